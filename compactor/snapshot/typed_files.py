"""Writes the files of a typed snapshot (docs/decisions/0007-typed-snapshots.md): two Spark jobs, without a shuffle.

The first collects which types keys and values have, the second decodes, sorts and writes. All files have the same
columns. A record that fits none of them, or cannot be read, is in a column of its own, as it is: no record makes a
snapshot fail.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import UNSET

from compactor.errors import DEFECT, FoldError, PortionTooLargeError, SnapshotError, StorageError
from compactor.model.log import PartitionLog
from compactor.model.state import CatalogState
from compactor.ports import ColumnTypes, Decoded, Decoder
from compactor.runs.reader import read_file_range
from compactor.runs.scan import FileRange
from compactor.runs.writer import ParquetFile
from compactor.snapshot import manifest
from compactor.snapshot.content import LATEST, is_held
from compactor.snapshot.data_files import TABLE, create_file, empty_file, split_work
from compactor.snapshot.manifest import DataFile, SnapshotInputs, Typed, TypedInputs, Unplaced, WrittenFiles
from compactor.snapshot.typed_table import KEY, METADATA, REST, TypedTable
from compactor.spark import tasks
from compactor.storage.base import Storage
from compactor.turns import most_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_READ: Final = [*TABLE.names, "rejected"]
_SECTION_BYTES: Final = 64 << 20
"""Arrow bytes that are sorted together, and become one row group: a task holds about three times as many."""
_LEAST_SECTION: Final = 1 << 20
_NAMED: Final = 100
"""Records that fit no column which a manifest names; all are counted."""
_LONGEST: Final = 300
"""Characters of an error's text that another one quotes."""
_FALSE_POSITIVES: Final = 0.01
"""How many of the keys that a row group has not pass its Bloom filter, which takes ten bits for each that it has."""
_HAS_BLOOM: Final = "bloom_filter_options" in inspect.signature(pq.ParquetWriter.__init__).parameters
_KINDS: Final = pa.schema(
    [pa.field("side", pa.string()), pa.field("kind", pa.binary()), pa.field("records", pa.int64())]
)
_FILES: Final = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("bytes", pa.int64()),
        pa.field("sha256", pa.string()),
        pa.field("records", pa.int64()),
        pa.field("report", pa.binary()),
    ]
)


class _Report(msgspec.Struct):
    """What a task says at its end: how many records it left out, those that fit no column by column, some by name."""

    left_out: int = 0
    counts: dict[str, int] = {}
    first: list[Unplaced] = []


def kept_columns(place: Storage, state: CatalogState, topic: str) -> Mapping[str, str]:
    """Returns what the newest snapshot of `topic` hands on to the next one, by side; nothing if it cannot be read."""
    newest = next(reversed(state.snapshots_of(topic)), None)
    if newest is None:
        return {}
    try:
        typed = manifest.read(place, newest.path).typed
    except (StorageError, FoldError):
        return {}
    return {} if typed is UNSET else typed.kept


def write_typed(
    spark: SparkSession,
    storage: Storage,
    folder: Storage,
    logs: Sequence[PartitionLog],
    inputs: SnapshotInputs,
    typed: TypedInputs,
    kept: Mapping[str, str],
) -> WrittenFiles:
    """Writes what a snapshot of `logs`, one topic's, holds below `folder`/data.

    Columns begin with those `kept` of an earlier snapshot. If there are other connectors, one of Spark's tasks is left
    to them: those here may wait for a registry, or read records that are made to take long. Raises SnapshotError if a
    registry does not answer, or a column that is to be text is not UTF-8.
    """
    most = most_tasks(spark.sparkContext.defaultParallelism)
    work = split_work(logs, inputs.mode, most)
    sides = {side: types for side, types in (("value", typed.value), ("key", typed.key)) if types is not None}
    if KEY not in typed.metadata:
        sides.pop("key", None)
    unknown = {side: types for side, types in sides.items() if types.needs_survey}
    kinds = {side: Counter[bytes]() for side in sides}
    if unknown:
        kinds |= _surveyed(spark, storage, work, inputs.mode, unknown, most)
    taken = {"value": [*METADATA, *REST.values()], "key": []}
    with _reading("columns"):
        layouts = {side: types.layout(kinds[side], kept.get(side), taken[side]) for side, types in sides.items()}
    table = TypedTable(layouts=layouts, metadata=typed.metadata, strings=inputs.strings)
    mode, file_bytes = inputs.mode, inputs.file_bytes

    def task(number: int) -> Iterator[pa.RecordBatch]:
        with ExitStack() as stack:
            decoders = {side: types.decoder(layouts[side]) for side, types in sides.items()}
            for decoder in decoders.values():
                stack.callback(decoder.close)
            yield from _TypedCopy(storage, folder, table, decoders, mode, file_bytes).run(work[number])

    rows = tasks.run(spark, len(work), task, _FILES, most)
    reports = [msgspec.json.decode(row["report"], type=_Report) for row in rows if row["report"]]
    files = [DataFile(**{name: row[name] for name in _FILES.names[:4]}) for row in rows if row["path"]]
    counts = sum((Counter(report.counts) for report in reports), Counter[str]())
    first = sorted(
        (each for report in reports for each in report.first), key=lambda each: (each.partition, each.offset)
    )
    return WrittenFiles(
        files=tuple(sorted(files or [empty_file(folder, table.schema)], key=lambda file: file.path)),
        left_out=sum(report.left_out for report in reports),
        schema=manifest.columns(table.schema),
        typed=Typed(
            value_format="typed" if "value" in layouts else "bytes",
            key_format="typed" if "key" in layouts else "bytes",
            metadata_columns=typed.metadata,
            settings=typed.settings,
            renamed=_renamed(table),
            unplaced=dict(sorted(counts.items())),
            first=tuple(first[:_NAMED]),
            kept={side: layout.kept for side, layout in layouts.items() if layout.kept is not None},
            converters={side: dict(types.converter) for side, types in sides.items()},
            schemas={side: layout.schemas for side, layout in layouts.items() if layout.schemas},
        ),
    )


def _renamed(table: TypedTable) -> dict[str, str]:
    names = {f"{KEY}.{name}": field for name, field in _renamed_of(table, "key").items()}
    return {**_renamed_of(table, "value"), **names}


def _renamed_of(table: TypedTable, side: str) -> Mapping[str, str]:
    return table.layouts[side].renamed if side in table.layouts else {}


def _surveyed(
    spark: SparkSession,
    storage: Storage,
    work: Sequence[Sequence[FileRange]],
    mode: str,
    sides: Mapping[str, ColumnTypes],
    most: int,
) -> dict[str, Counter[bytes]]:
    """Collects the kinds of keys and values of all records, each with the number of its records, by side."""
    columns = [*sides, "headers", *({"value", "rejected"} - sides.keys())]

    def task(number: int) -> Iterator[pa.RecordBatch]:
        with ExitStack() as stack:
            surveys = {side: types.survey() for side, types in sides.items()}
            for survey in surveys.values():
                stack.callback(survey.close)
            for file_range in work[number]:
                for batch in read_file_range(storage, file_range, columns):
                    held = batch.filter(is_held(batch, mode))
                    for side, survey in surveys.items():
                        with _reading(side):
                            survey.add(held)
            for side, survey in surveys.items():
                rows = [{"side": side, "kind": kind, "records": count} for kind, count in survey.kinds().items()]
                yield pa.RecordBatch.from_pylist(rows, schema=_KINDS)

    kinds: dict[str, Counter[bytes]] = {side: Counter() for side in sides}
    for row in tasks.run(spark, len(work), task, _KINDS, most):
        kinds[row["side"]][bytes(row["kind"])] += row["records"]
    return kinds


class _TypedCopy:
    """Writes one task's files, one after the other."""

    def __init__(
        self,
        storage: Storage,
        folder: Storage,
        table: TypedTable,
        decoders: Mapping[str, Decoder],
        mode: str,
        file_bytes: int,
    ) -> None:
        self._storage = storage
        self._folder = folder
        self._table = table
        self._decoders = decoders
        self._mode = mode
        self._file_bytes = file_bytes
        # What was left out, and what fitted no column, so far.
        self._report = _Report()

    def run(self, file_ranges: Sequence[FileRange]) -> Iterator[pa.RecordBatch]:
        sections = self._sections(file_ranges)
        section = next(sections, None)
        while section is not None:
            first, rows = section
            options = _options(self._table.bloom_paths(), rows.num_rows)
            with create_file(self._folder, *first, self._table.schema, options) as file:
                records = 0
                while section is not None and file.bytes < self._file_bytes:
                    file.write(section[1])
                    records += section[1].num_rows
                    section = next(sections, None)
            yield _file_row(file, records)
        yield pa.RecordBatch.from_pylist([{"report": msgspec.json.encode(self._report)}], schema=_FILES)

    def _sections(self, file_ranges: Sequence[FileRange]) -> Iterator[tuple[tuple[int, int], pa.Table]]:
        """Yields rows of about _SECTION_BYTES by key, each with partition and offset of the first that was read."""
        most = min(_SECTION_BYTES, max(_LEAST_SECTION, self._file_bytes))
        first, held, keys = (0, 0), list[pa.RecordBatch](), list[list[pa.Array]]()
        size = 0
        for records, rows, sort_keys in self._typed(file_ranges):
            if not held:
                first = records["partition"][0].as_py(), records["offset"][0].as_py()
            held.append(rows)
            keys.append(sort_keys)
            size += rows.nbytes
            if size >= most:
                yield first, self._sorted(held, keys)
                held, keys, size = [], [], 0
        if held:
            yield first, self._sorted(held, keys)

    def _sorted(self, held: list[pa.RecordBatch], keys: list[list[pa.Array]]) -> pa.Table:
        table = pa.Table.from_batches(held)
        if self._mode != LATEST:  # every record, as the log has them
            return table
        parts = [pa.chunked_array(list(arrays)) for arrays in zip(*keys, strict=True)]
        by = pa.table(parts, names=[str(number) for number in range(len(parts))])
        return table.take(pc.sort_indices(by, sort_keys=[(name, "ascending") for name in by.column_names]))

    def _typed(
        self, file_ranges: Sequence[FileRange]
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch, list[pa.Array]]]:
        for file_range in file_ranges:
            for batch in read_file_range(self._storage, file_range, _READ):
                held = batch.filter(is_held(batch, self._mode))
                self._report.left_out += batch.num_rows - held.num_rows
                if not held.num_rows:
                    continue
                most = max(1, _SECTION_BYTES // self._table.row_bytes())
                for start in range(0, held.num_rows, most):
                    for records, decoded in self._decoded(held.slice(start, most)):
                        rows = self._table.batch(records, file_range.tp, decoded)
                        yield records, rows, self._table.sort_keys(records, decoded)

    def _decoded(self, records: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, Mapping[str, Decoded]]]:
        """Yields records with their columns: all at once, or by halves if the columns would take too much memory."""
        decoded: dict[str, Decoded] = {}
        try:
            for side, decoder in self._decoders.items():
                with _reading(side):
                    decoded[side] = decoder.decode(records)
        except PortionTooLargeError:
            half = records.num_rows // 2
            yield from self._decoded(records.slice(0, half))
            yield from self._decoded(records.slice(half))
            return
        for side, each in decoded.items():
            self._note(records, REST[side], each.unplaced)
        yield records, decoded

    def _note(self, records: pa.RecordBatch, column: str, unplaced: Mapping[int, str]) -> None:
        """Counts records that fit no column, and names the first of them."""
        if not unplaced:
            return
        self._report.counts[column] = self._report.counts.get(column, 0) + len(unplaced)
        room = max(0, _NAMED - len(self._report.first))
        for row, reason in list(unplaced.items())[:room]:
            partition, offset = (records[name][row].as_py() for name in ("partition", "offset"))
            self._report.first.append(Unplaced(column, partition, offset, reason))


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Raises SnapshotError for what reading keys or values raises, of whatever class: only the snapshot fails."""
    try:
        yield
    except (SnapshotError, StorageError, PortionTooLargeError):
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}"[:_LONGEST]
        raise SnapshotError(f"No typed snapshot can be taken: {what} could not be read: {said}.", DEFECT) from error


def _options(bloomed: Sequence[str], rows: int) -> dict[str, Any]:
    """Returns how a file is written: all columns with statistics, and keys with Bloom filters for `rows` of a group."""
    options: dict[str, Any] = {"use_dictionary": True, "write_statistics": True}
    if _HAS_BLOOM and bloomed:
        options["bloom_filter_options"] = {path: {"ndv": max(1, rows), "fpp": _FALSE_POSITIVES} for path in bloomed}
    return options


def _file_row(file: ParquetFile, records: int) -> pa.RecordBatch:
    row = {"path": file.path, "bytes": file.bytes, "sha256": file.sha256, "records": records}
    return pa.RecordBatch.from_pylist([row], schema=_FILES)
