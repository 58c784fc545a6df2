"""Ingest: a micro-batch becomes level-0 files, and its offsets continue each log exactly once.

The reading tasks themselves write records into files (`write_level0`): records never cross into Spark's JVM. Only the
statistics of the files and the range reports of the tasks come to the driver (`gather`). One Spark micro-batch may hold
those of several connectors: each has a *portion* of it, and each portion is an answer of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import KeyfoldError
from compactor.ingest.appends import Batch
from compactor.ingest.prefold import Prefold
from compactor.ingest.range_reports import SUPERSEDED, RangeReports
from compactor.model import record
from compactor.model.record import RangeRead, TopicPartition
from compactor.runs import file_stats, paths, writer
from compactor.runs.writer import RunTarget
from compactor.spark.errors import tag, untagged, unwrapping
from compactor.storage.request_counts import REQUESTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The kinds of rows that a reading task yields (WRITTEN).
_FILE: Final = "file"
_RANGE_REPORT: Final = "range"
_READ: Final = "read"
_ERROR: Final = "error"
_REQUESTS: Final = "requests"
_FULL: Final = "full"
_PORTION: Final = pa.field("portion", pa.int64())
_TEXT: Final = pa.field("error", pa.string())
_BYTES_READ: Final = pa.field("bytes_read", pa.int64())
_RANGE: Final = ("topic_id", "lo", "hi", "start")
_FILTERED: Final = record.RANGE.field("filtered")
_TRUNCATES: Final = ("truncates", "last_truncate", "truncate_order", "truncate_at")

WRITTEN: Final = pa.schema(
    [
        pa.field("kind", pa.string()),
        _PORTION,
        _TEXT,
        *(record.RANGE.field(name) for name in _RANGE),
        SUPERSEDED,
        _FILTERED,
        *(record.RANGE.field(name) for name in _TRUNCATES),
        _BYTES_READ,
        *file_stats.FILE_STATS,
    ]
)
"""What a reading task yields once its records are in files: a row for each partition of a file, one for each range
report, and one for the bytes of all that was read; each names its portion. A row of kind `error` stands for a portion
that could not be taken in, one of kind `full` for a read that has ended early (`Batch.is_full`), one of kind `requests`
reports what was asked of an object store."""


class Intake(Struct, frozen=True, kw_only=True):
    """How reading tasks take records in.

    `keyed`: logs are folded by key, and a record without one is rejected. `folds`: what a later record of the same
    task and key supersedes is left out; only without a min.compaction.lag.ms.
    """

    target: RunTarget
    keyed: bool = True
    folds: bool = False

    def of_batch(self, number: int, arrived_ms: int) -> Intake:
        """Returns the same for micro-batch `number` of a worker's run, planned at `arrived_ms`."""
        prefix = paths.numbered(self.target.prefix, number)
        return replace(self, target=replace(self.target, prefix=prefix, arrived_ms=arrived_ms))


def write_level0(
    batches: Iterable[pa.RecordBatch],
    intake: Intake,
    portion: int = 0,
    note_written: Callable[[int], None] = lambda _: None,
) -> Iterator[pa.RecordBatch]:
    """Writes what a reading task yields (record.SOURCE columns) into level-0 files (step 3); yields rows of WRITTEN.

    `note_written` is called with the bytes of all these files as they grow. Raises StorageError, and what the source
    raises.
    """
    prefold, before = Prefold(), REQUESTS.values()
    reports = RangeReports(prefold.superseded)
    records: Iterable[pa.RecordBatch | None] = reports.separate(batches, keyed=intake.keyed)
    if intake.folds:
        records = prefold.latest(records)
    stats = list(writer.write(records, intake.target, "ingest.write", note_written))
    yield _rows(file_stats.to_batch(stats), _FILE, portion)
    yield _rows(reports.rows(), _RANGE_REPORT, portion)
    yield _rows(pa.RecordBatch.from_pydict({_BYTES_READ.name: [reports.bytes_read]}), _READ, portion)
    if (report := REQUESTS.report_since(before)) is not None:
        yield _rows(pa.RecordBatch.from_pydict({_TEXT.name: [report]}), _REQUESTS, portion)


def error_row(portion: int, error: KeyfoldError) -> pa.RecordBatch:
    """Returns the row of WRITTEN that says why `portion` was not taken in."""
    return _rows(pa.RecordBatch.from_pydict({_TEXT.name: [tag(error)]}), _ERROR, portion)


def full_row(portion: int) -> pa.RecordBatch:
    """Returns the row of WRITTEN that says that `portion` has ended early: enough was written, or its time is over."""
    return _rows(pa.RecordBatch.from_pydict({_TEXT.name: [None]}), _FULL, portion)


def gather(frame: DataFrame) -> dict[int, Batch | KeyfoldError]:
    """Runs the reading tasks of `frame` (WRITTEN columns) in one action (step 3), and gathers what they have written.

    Returns for each portion what was written of it, or the first of its errors: no commit names what else was written
    of it then. The frame is used once: using it twice would read Kafka twice. Raises StorageError, and what the
    source raises.
    """
    with unwrapping():
        return portions(row.asDict() for row in frame.collect())


def portions(rows: Iterable[Mapping[str, Any]]) -> dict[int, Batch | KeyfoldError]:
    """Returns what rows of WRITTEN say of each portion; see `gather`."""
    by_portion: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["kind"] == _REQUESTS:
            REQUESTS.add_report(row[_TEXT.name])
            continue
        by_portion.setdefault(row[_PORTION.name], []).append(row)
    return {portion: _error(mine) or _batch(mine) for portion, mine in by_portion.items()}


def _error(rows: Iterable[Mapping[str, Any]]) -> KeyfoldError | None:
    return next((untagged(row[_TEXT.name]) for row in rows if row["kind"] == _ERROR), None)


def _batch(rows: Sequence[Mapping[str, Any]]) -> Batch:
    reported = (_range(row) for row in rows if row["kind"] == _RANGE_REPORT)
    parts = (file_stats.from_row(dict(row)) for row in rows if row["kind"] == _FILE)
    return Batch(
        ranges=tuple(sorted(reported, key=lambda read: (read.tp, read.lo))),
        parts=tuple(sorted(parts, key=lambda part: (part.tp, part.file.first))),
        bytes_read=sum(row[_BYTES_READ.name] for row in rows if row["kind"] == _READ),
        is_full=any(row["kind"] == _FULL for row in rows),
    )


def _rows(rows: pa.RecordBatch, kind: str, portion: int) -> pa.RecordBatch:
    """Returns `rows` with all columns of WRITTEN; columns that they do not have are null."""
    size, names = rows.num_rows, set(rows.schema.names)
    columns = [
        rows[field.name].cast(field.type) if field.name in names else pa.nulls(size, field.type)
        for field in list(WRITTEN)[2:]
    ]
    own = [pa.repeat(kind, size), pa.array([portion] * size, _PORTION.type)]
    return pa.RecordBatch.from_arrays([*own, *columns], schema=WRITTEN)


def _range(row: Mapping[str, Any]) -> RangeRead:
    tp = TopicPartition(row["topic"], row["partition"])
    counts = {"records": row["records"], "superseded": row["superseded"], "filtered": row["filtered"] or 0}
    truncates = {name: row[name] for name in _TRUNCATES} | {"truncates": row["truncates"] or 0}
    return RangeRead(tp=tp, **counts, **truncates, **{name: row[name] for name in _RANGE})
