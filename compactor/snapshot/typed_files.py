"""Writes the files of a typed snapshot (docs/decisions/0007-typed-snapshots.md): in up to three Spark jobs.

The first collects which types keys and values have, the second decodes and sorts. If it has more rows than are sorted
at once, the third sorts those of all tasks (`sections`). All files have the same columns. A record that fits none of
them, or cannot be read, is in a column of its own, as it is: no record makes a snapshot fail.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import UNSET

from compactor.bin_packing import Until, pack
from compactor.errors import DEFECT, FoldError, PortionTooLargeError, SnapshotError, StorageError
from compactor.failpoints import hit
from compactor.fold.task_split import task_bytes
from compactor.json_types import decoded_as
from compactor.model.log import PartitionLog
from compactor.model.state import CatalogState
from compactor.ports import ColumnTypes, Decoded, Decoder
from compactor.runs.reader import read_file_range
from compactor.runs.scan import FileRange
from compactor.snapshot import manifest, partitions, sections
from compactor.snapshot.content import LATEST, is_held
from compactor.snapshot.data_files import TABLE, create_file, empty_file, split_work
from compactor.snapshot.manifest import DataFile, SnapshotInputs, Typed, TypedInputs, Unplaced, WrittenFiles
from compactor.snapshot.sections import Section, section_data, section_from
from compactor.snapshot.typed_table import KEY, METADATA, REST, TypedTable
from compactor.spark import tasks
from compactor.storage.base import Storage
from compactor.turns import most_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_READ: Final = [*TABLE.names, "rejected"]
_SECTION_BYTES: Final = 64 << 20
"""Arrow bytes that are sorted together, of a section and of a row group: a task holds about three times as many."""
_LEAST_SECTION: Final = 1 << 20
_MERGED_BYTES: Final = 512 << 20
"""Arrow bytes of sorted rows that a task writes to files: some hundred MB."""
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
        pa.field("section", pa.binary()),
    ]
)


class _Report(msgspec.Struct):
    """What a task says at its end: how many records it left out, those that fit no column by column, some by name."""

    left_out: int = 0
    counts: dict[str, int] = {}
    first: list[Unplaced] = []


class EarlierColumns(NamedTuple):
    """The columns of the newest snapshot: what it hands on to the next one, by side, and their names."""

    kept: Mapping[str, str] = MappingProxyType({})
    names: frozenset[str] = frozenset()


def earlier_columns(place: Storage, state: CatalogState, topic: str) -> EarlierColumns:
    """Returns the columns of the newest snapshot of `topic`; none if there is none, or it cannot be read."""
    newest = next(reversed(state.snapshots_of(topic)), None)
    if newest is None:
        return EarlierColumns()
    try:
        read = manifest.read(place, newest.path)
    except (StorageError, FoldError):
        return EarlierColumns()
    if read.typed is UNSET:
        return EarlierColumns()
    return EarlierColumns(read.typed.kept, frozenset(column.name for column in read.schema))


def write_typed(
    spark: SparkSession,
    storage: Storage,
    folder: Storage,
    logs: Sequence[PartitionLog],
    inputs: SnapshotInputs,
    typed: TypedInputs,
    earlier: EarlierColumns,
) -> WrittenFiles:
    """Writes what a snapshot of `logs`, one topic's, holds below `folder`/data.

    Columns begin with those of an `earlier` snapshot. While connectors read, one of Spark's tasks is left to them:
    those here may wait for a registry, or read records that are made to take long. Raises SnapshotError if a
    registry does not answer, a column that is to be text is not UTF-8, or one of partitions is none of the records.
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
        layouts = {
            side: types.layout(kinds[side], earlier.kept.get(side), taken[side]) for side, types in sides.items()
        }
    table = TypedTable(
        layouts=layouts,
        metadata=typed.metadata,
        strings=inputs.strings,
        partitions=typed.partitions,
        appends=inputs.mode != LATEST,
    )
    partitions.check_columns(typed.partitions, table.schema)
    if any(column not in taken["value"] for column in table.schema.names):  # otherwise no record has a value
        partitions.check_names(typed.partitions, earlier.names.union(table.schema.names), logs[0].topic)
    mode, file_bytes = inputs.mode, inputs.file_bytes

    is_alone = len(work) == 1

    def task(number: int) -> Iterator[pa.RecordBatch]:
        with ExitStack() as stack:
            decoders = {side: types.decoder(layouts[side]) for side, types in sides.items()}
            for decoder in decoders.values():
                stack.callback(decoder.close)
            yield from _TypedCopy(storage, folder, table, decoders, mode, file_bytes).run(
                work[number], number, is_alone=is_alone
            )

    rows = tasks.run(spark, len(work), task, _FILES, most)
    sorted_parts = [section_from(row["section"]) for row in rows if row["section"]]
    if sorted_parts:
        rows += _merged(spark, folder, table, file_bytes, sorted_parts, most)
    reports = [decoded_as(row["report"], _Report) for row in rows if row["report"]]
    files = [DataFile(**{name: row[name] for name in _FILES.names[:4]}) for row in rows if row["path"]]
    partitions.check_count({file.path.rpartition("/")[0] for file in files})
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
            partition_by=tuple(map(str, typed.partitions)),
            settings=typed.settings,
            renamed=_renamed(table),
            unplaced=dict(sorted(counts.items())),
            first=tuple(first[:_NAMED]),
            kept={side: layout.kept for side, layout in layouts.items() if layout.kept is not None},
            converters={side: dict(types.converter) for side, types in sides.items()},
            schemas={side: layout.schemas for side, layout in layouts.items() if layout.schemas},
        ),
    )


def _merged(
    spark: SparkSession,
    folder: Storage,
    table: TypedTable,
    file_bytes: int,
    sorted_parts: Sequence[Section],
    most: int,
) -> list[dict[str, Any]]:
    """Writes the data files of rows that tasks have written as sorted sections, and removes these."""
    ranges = sections.ranges_of(sorted_parts, _section_bytes(file_bytes))
    size = task_bytes(sum(part.bytes for part in ranges), _MERGED_BYTES, most)
    work = list(pack(ranges, Until(size, lambda part: part.bytes)))

    def task(number: int) -> Iterator[pa.RecordBatch]:
        read = ((_range_name(part.number), sections.read_range(folder, part, table.keys)) for part in work[number])
        yield from _written(folder, table, file_bytes, read)

    rows = tasks.run(spark, len(work), task, _FILES, most)
    folder.delete_folder(sections.FOLDER)
    return rows


def _range_name(number: int) -> str:
    return f"{number:05d}"


def _section_bytes(file_bytes: int) -> int:
    return min(_SECTION_BYTES, max(_LEAST_SECTION, file_bytes))


def _written(
    folder: Storage, table: TypedTable, file_bytes: int, groups: Iterable[tuple[str, pa.Table]]
) -> Iterator[pa.RecordBatch]:
    """Writes each of `groups` as a row group, and yields the files; each has the name of its first group."""
    rest = ((name, place, rows) for name, group in groups for place, rows in table.parts(group))
    part, places = next(rest, None), set[str]()
    while part is not None:
        name, place, rows = part
        places.add(place)
        partitions.check_count(places)
        options = _options(table.bloom_paths(), rows.num_rows)
        with create_file(folder, f"data/{place}{name}.parquet", table.schema, options) as file:
            records = 0
            while part is not None and part[1] == place and file.bytes < file_bytes:
                file.write(part[2])
                records += part[2].num_rows
                part = next(rest, None)
        hit("snapshot.file")
        yield _answer(path=file.path, bytes=file.bytes, sha256=file.sha256, records=records)


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


class _Group(NamedTuple):
    """Rows that are sorted together, with partition and offset of the first; `is_last`: the task has no more."""

    partition: int
    offset: int
    rows: pa.Table
    is_last: bool


class _TypedCopy:
    """Decodes the records of one task, and writes its files or sections, one after the other."""

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

    def run(self, file_ranges: Sequence[FileRange], number: int, *, is_alone: bool) -> Iterator[pa.RecordBatch]:
        """Writes data files; or sorted sections, unless this task `is_alone` and has no more than one."""
        groups = self._groups(file_ranges)
        if self._mode != LATEST:  # every record, as the log has them
            keys = self._table.keys
            named = (
                (f"{group.partition:05d}-{group.offset:020d}", sections.in_order(group.rows, keys)) for group in groups
            )
            yield from _written(self._folder, self._table, self._file_bytes, named)
        else:
            yield from self._sorted(groups, number, is_alone=is_alone)
        yield _answer(report=msgspec.json.encode(self._report))

    def _sorted(self, groups: Iterable[_Group], number: int, *, is_alone: bool) -> Iterator[pa.RecordBatch]:
        keys = self._table.keys
        for count, group in enumerate(groups):
            rows = sections.in_order(group.rows, keys)
            if is_alone and group.is_last and not count:
                yield from _written(self._folder, self._table, self._file_bytes, [(_range_name(0), rows)])
                continue
            path = f"{sections.FOLDER}/{number:05d}-{count:05d}.arrow"
            section = sections.write_section(self._folder, path, rows, keys)
            hit("snapshot.section")
            yield _answer(section=section_data(section))

    def _groups(self, file_ranges: Sequence[FileRange]) -> Iterator[_Group]:
        """Yields rows of about _SECTION_BYTES, in the order in which they are read, with what they are sorted by."""
        most = _section_bytes(self._file_bytes)
        first, held, size = (0, 0), list[pa.RecordBatch](), 0
        for records, rows in self._typed(file_ranges):
            if size >= most:
                yield _Group(*first, pa.Table.from_batches(held), is_last=False)
                held, size = [], 0
            if not held:
                first = records["partition"][0].as_py(), records["offset"][0].as_py()
            held.append(rows)
            size += rows.nbytes
        if held:
            yield _Group(*first, pa.Table.from_batches(held), is_last=True)

    def _typed(self, file_ranges: Sequence[FileRange]) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        for file_range in file_ranges:
            for batch in read_file_range(self._storage, file_range, _READ):
                held = batch.filter(is_held(batch, self._mode))
                self._report.left_out += batch.num_rows - held.num_rows
                if not held.num_rows:
                    continue
                most = max(1, _SECTION_BYTES // self._table.row_bytes())
                for start in range(0, held.num_rows, most):
                    for records, decoded in self._decoded(held.slice(start, most)):
                        yield records, self._table.batch(records, file_range.tp, decoded)

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
        placed = self._table.placed(decoded)
        for side, each in placed.items():
            self._note(records, REST[side], each.unplaced)
        yield records, placed

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


def _answer(**fields: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([fields], schema=_FILES)
