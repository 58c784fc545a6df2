"""Ingest: a micro-batch becomes level-0 files, and its offsets continue each log exactly once.

Records go into files where they are read, in the reading tasks themselves (`write_level0`): they never cross into
Spark's JVM. Only the statistics of the files and the range reports of the tasks come to the driver (`gather`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from compactor.ingest.appends import Batch
from compactor.ingest.prefold import Prefold
from compactor.ingest.range_reports import SUPERSEDED, RangeReports
from compactor.model import record
from compactor.model.record import RangeRead, TopicPartition
from compactor.runs import file_stats, paths, writer
from compactor.runs.writer import RunTarget
from compactor.spark.errors import unwrapping

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FILE: Final = "file"
_RANGE_REPORT: Final = "range"
_READ: Final = "read"
_BYTES_READ: Final = pa.field("bytes_read", pa.int64())
_RANGE: Final = ("topic_id", "lo", "hi", "start")

WRITTEN: Final = pa.schema(
    [
        pa.field("kind", pa.string()),
        *(record.RANGE.field(name) for name in _RANGE),
        SUPERSEDED,
        _BYTES_READ,
        *file_stats.FILE_STATS,
    ]
)
"""What a reading task yields once its records are in files: a row for each partition of a file, one for each range
report, and one for the bytes of all that was read."""


class Intake(Struct, frozen=True, kw_only=True):
    """How reading tasks take records in.

    `keyed`: logs are folded by key, and a record without one is rejected. `folds`: what a later record of the same
    task and key supersedes is left out; only where there is no lag.
    """

    target: RunTarget
    keyed: bool = True
    folds: bool = False

    def of_batch(self, number: int, arrived_ms: int) -> Intake:
        """Returns the same for micro-batch `number` of a worker's run, planned at `arrived_ms`."""
        prefix = paths.numbered(self.target.prefix, number)
        return replace(self, target=replace(self.target, prefix=prefix, arrived_ms=arrived_ms))


def write_level0(batches: Iterable[pa.RecordBatch], intake: Intake) -> Iterator[pa.RecordBatch]:
    """Writes what a reading task yields (record.SOURCE columns) into level-0 files (step 3); yields rows of WRITTEN.

    Raises StorageError, and what the source raises.
    """
    prefold = Prefold()
    reports = RangeReports(prefold.superseded)
    records: Iterable[pa.RecordBatch | None] = reports.separate(batches, keyed=intake.keyed)
    if intake.folds:
        records = prefold.latest(records)
    found = list(writer.write(records, intake.target, "ingest.write"))
    yield _rows(file_stats.to_batch(found), _FILE)
    yield _rows(reports.rows(), _RANGE_REPORT)
    yield _rows(pa.RecordBatch.from_pydict({_BYTES_READ.name: [reports.bytes_read]}), _READ)


def gather(frame: DataFrame) -> Batch:
    """Runs the reading tasks of `frame` (WRITTEN columns) in one action (step 3), and gathers what they have written.

    The frame is used once: using it twice would read Kafka twice. Raises StorageError, and what the source raises.
    """
    with unwrapping():
        rows = [row.asDict() for row in frame.collect()]
    reported = (_range(row) for row in rows if row["kind"] == _RANGE_REPORT)
    found = (file_stats.from_row(row) for row in rows if row["kind"] == _FILE)
    return Batch(
        ranges=tuple(sorted(reported, key=lambda read: (read.tp, read.lo))),
        parts=tuple(sorted(found, key=lambda part: (part.tp, part.file.first))),
        bytes_read=sum(row[_BYTES_READ.name] for row in rows if row["kind"] == _READ),
    )


def _rows(rows: pa.RecordBatch, kind: str) -> pa.RecordBatch:
    """Returns `rows` with all columns of WRITTEN, null where they have none of that name."""
    size, names = rows.num_rows, set(rows.schema.names)
    columns = [
        rows[field.name].cast(field.type) if field.name in names else pa.nulls(size, field.type)
        for field in WRITTEN.remove(0)
    ]
    return pa.RecordBatch.from_arrays([pa.repeat(kind, size), *columns], schema=WRITTEN)


def _range(row: dict[str, Any]) -> RangeRead:
    tp = TopicPartition(row["topic"], row["partition"])
    counts = {"records": row["records"], "superseded": row["superseded"]}
    return RangeRead(tp=tp, **counts, **{name: row[name] for name in _RANGE})
