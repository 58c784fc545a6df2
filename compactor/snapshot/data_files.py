"""Writes a snapshot's data files: tasks copy the records of runs, without a shuffle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from compactor.bin_packing import Until, pack
from compactor.errors import SnapshotError
from compactor.failpoints import hit
from compactor.fold.task_split import task_bytes
from compactor.model import record
from compactor.model.log import PartitionLog
from compactor.model.record import TopicPartition
from compactor.ports import LAST_TIME_MS
from compactor.runs.parquet_file import ParquetFile
from compactor.runs.reader import read_file_range
from compactor.runs.scan import FileRange
from compactor.snapshot import manifest
from compactor.snapshot.content import is_held, range_of
from compactor.snapshot.manifest import DataFile, SnapshotInputs, WrittenFiles
from compactor.spark import tasks
from compactor.storage.base import Storage
from compactor.turns import bound, most_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
        pa.field("headers", record.HEADERS),
    ]
)
"""A snapshot's columns, unless key or value are to be text."""

# Record bytes that a task copies, and Arrow bytes of a row group in its memory.
_TASK_BYTES: Final = 512 << 20
_ROW_GROUP_BYTES: Final = 16 << 20

_FILES: Final = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("bytes", pa.int64()),
        pa.field("sha256", pa.string()),
        pa.field("records", pa.int64()),
        pa.field("left_out", pa.int64()),
    ]
)


def columns(strings: frozenset[str]) -> pa.Schema:
    """Returns a snapshot's columns; those of `strings` (key, value) are UTF-8 text."""
    return pa.schema([pa.field(field.name, pa.string()) if field.name in strings else field for field in TABLE])


def write_data(
    spark: SparkSession,
    storage: Storage,
    folder: Storage,
    logs: Sequence[PartitionLog],
    inputs: SnapshotInputs,
) -> WrittenFiles:
    """Writes what a snapshot of `logs` holds below `folder`/data by (partition, offset), in one Spark job.

    `logs` are one topic's, by partition. Raises SnapshotError if a column that is to be text is not UTF-8. There is a
    file even if there is no record, so that readers find the columns.
    """
    cores = spark.sparkContext.defaultParallelism
    most = most_tasks(cores)
    work = split_work(logs, inputs.mode, most)
    schema, mode, file_bytes = columns(inputs.strings), inputs.mode, inputs.file_bytes

    def task(number: int) -> Iterator[pa.RecordBatch]:
        return _Copy(storage, folder, schema, mode, file_bytes).run(work[number])

    rows = tasks.run(spark, len(work), task, _FILES, bound(most, cores))
    left_out = sum(row.pop("left_out") for row in rows)
    files = [DataFile(**row) for row in rows if row["path"]] or [empty_file(folder, schema)]
    by_name = sorted(files, key=lambda file: file.path)
    return WrittenFiles(files=tuple(by_name), left_out=left_out, schema=manifest.columns(schema))


def split_work(logs: Sequence[PartitionLog], mode: str, cores: int) -> list[tuple[FileRange, ...]]:
    """Splits the runs into what each task copies: neighbouring file ranges."""
    file_ranges = [file_range for log in logs for file_range in range_of(log, mode).file_ranges]
    size = task_bytes(sum(file_range.file.bytes for file_range in file_ranges), _TASK_BYTES, cores)
    return [tuple(packed) for packed in pack(file_ranges, Until(size, lambda file_range: file_range.file.bytes))]


class _Copy:
    """Writes one task's files, one after the other."""

    def __init__(self, storage: Storage, folder: Storage, schema: pa.Schema, mode: str, file_bytes: int) -> None:
        self.storage = storage
        self._folder = folder
        self._schema = schema
        self._mode = mode
        self._file_bytes = file_bytes
        # Records of this task so far that the files leave out.
        self._left_out = 0

    def run(self, file_ranges: Sequence[FileRange]) -> Iterator[pa.RecordBatch]:
        groups = _row_groups(self._held(file_ranges))
        group = next(groups, None)
        while group is not None:
            name, records = _name(group["partition"][0].as_py(), group["offset"][0].as_py()), 0
            with create_file(self._folder, name, self._schema) as file:
                while group is not None and file.bytes < self._file_bytes:
                    file.write(group)
                    records += group.num_rows
                    group = next(groups, None)
            hit("snapshot.file")
            yield _row(path=file.path, bytes=file.bytes, sha256=file.sha256, records=records, left_out=0)
        yield _row(left_out=self._left_out)

    def _held(self, file_ranges: Sequence[FileRange]) -> Iterator[pa.RecordBatch]:
        for file_range in file_ranges:
            for batch in read_file_range(self.storage, file_range, [*TABLE.names, "rejected"]):
                held = batch.filter(is_held(batch, self._mode))
                self._left_out += batch.num_rows - held.num_rows
                yield _as_table(held, file_range.tp, self._schema)


def _name(partition: int, offset: int) -> str:
    """Returns the path of the file that begins with this record."""
    return f"data/{partition:05d}-{offset:020d}.parquet"


def create_file(folder: Storage, path: str, schema: pa.Schema, options: Mapping[str, Any] | None = None) -> ParquetFile:
    """Creates a data file; what a failed attempt left of it is removed.

    `options`: those of `pyarrow.parquet.ParquetWriter`.
    """
    folder.delete(path)
    return ParquetFile(folder, path, schema, options)


def empty_file(folder: Storage, schema: pa.Schema) -> DataFile:
    """Creates a file without records."""
    with create_file(folder, _name(0, 0), schema) as file:
        pass
    return DataFile(path=file.path, bytes=file.bytes, sha256=file.sha256, records=0)


def _row(**fields: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([fields], schema=_FILES)


def _as_table(batch: pa.RecordBatch, tp: TopicPartition, schema: pa.Schema) -> pa.RecordBatch:
    text = {field.name: text_column(batch, field.name, tp) for field in schema if field.type == pa.string()}
    by_name = {**{name: batch[name] for name in schema.names}, **text, "timestamp": times_of(batch)}
    return pa.RecordBatch.from_arrays([by_name[name] for name in schema.names], schema=schema)


def times_of(batch: pa.RecordBatch) -> pa.Array:
    """Returns the column `timestamp` as times; null beyond what tools can tell."""
    times = batch["timestamp"]
    in_bounds = pc.and_(pc.less_equal(times, LAST_TIME_MS), pc.greater_equal(times, -LAST_TIME_MS))
    return pc.if_else(in_bounds, times, pa.scalar(None, pa.int64())).cast(TABLE.field("timestamp").type)


def text_column(batch: pa.RecordBatch, name: str, tp: TopicPartition) -> pa.Array:
    """Casts the column `name` to text; SnapshotError names the first record in which it is not UTF-8."""
    try:
        return batch[name].cast(pa.string())
    except pa.ArrowInvalid:
        offset = batch["offset"][_first_not_utf8(batch[name])].as_py()
        raise SnapshotError(
            f"No snapshot of topic {tp.topic} can be taken: the {name} of its record in partition {tp.partition} at "
            f"offset {offset} is not UTF-8, and snapshot.string.columns has {name}.",
            f"Take {name} out of snapshot.string.columns, so that it is written as bytes; or see that a later record "
            "of the same key replaces that one.",
        ) from None


def _first_not_utf8(values: pa.Array) -> int:
    """Finds the index of the first of `values` that is not UTF-8, by bisection; one of them is not."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            values[low:middle].cast(pa.string())
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Gathers `batches` into tables of about 16 MiB; none is empty."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.extend([batch] if batch.num_rows else [])
        if sum(rows.nbytes for rows in held) >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)
