"""Ingest: a micro-batch becomes level-0 files, and its offsets continue each log exactly once.

Records go into files where they are read, in the reading tasks themselves (`written`): they never cross into Spark's
JVM. Only what was written, and what the tasks state of their ranges, comes to the driver (`gathered`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from compactor import jobs, parts, record, runfile
from compactor.append import appends
from compactor.batch import Batch, RangeRead, first_rejected
from compactor.faults import unwrapping
from compactor.parts import Part
from compactor.prefold import Prefold
from compactor.record import TopicPartition
from compactor.runfile import RunTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["WRITTEN", "Batch", "Intake", "Part", "RangeRead", "appends", "first_rejected", "gathered", "written"]

NULL_KEY: Final = "null key"
"""Why a record without a key is rejected: it is the latest of nothing."""

_PART: Final = "part"
_STATED: Final = "stated"
_READ: Final = "read"
_RANGE: Final = ("topic_id", "lo", "hi", "start")
_SUPERSEDED: Final = pa.field("superseded", pa.int64())

WRITTEN: Final = pa.schema(
    [pa.field("kind", pa.string()), *(record.RANGE.field(name) for name in _RANGE), _SUPERSEDED, *parts.PARTS]
)
"""What a reading task yields once its records are in files: a row for each part of a file, one for each statement, and
one for the bytes of all that was read."""


class Intake(Struct, frozen=True, kw_only=True):
    """How reading tasks take records in.

    `keyed`: logs are folded by key, and a record without one is rejected. `folds`: what a later record of the same
    task and key supersedes is left out; only where there is no lag.
    """

    target: RunTarget
    keyed: bool = True
    folds: bool = False

    def of_batch(self, number: int, arrived_ms: int) -> Intake:
        """The same for micro-batch `number` of a life, planned at `arrived_ms`."""
        prefix = jobs.numbered(self.target.prefix, number)
        return replace(self, target=replace(self.target, prefix=prefix, arrived_ms=arrived_ms))


def written(batches: Iterable[pa.RecordBatch], intake: Intake) -> Iterator[pa.RecordBatch]:
    """Step 3, in a reading task: puts its yield (record.SOURCE columns) into files; rows of WRITTEN.

    Raises StorageError, and what the source raises.
    """
    statements = _Statements()
    records: Iterable[pa.RecordBatch | None] = statements.apart(batches, keyed=intake.keyed)
    if intake.folds:
        records = statements.prefold.latest(records)
    for part in runfile.write(records, intake.target, "ingest.write"):
        yield _row(parts.to_batch([part]), _PART)
    yield from statements.rows()


def gathered(frame: DataFrame) -> Batch:
    """Step 3: runs the reading tasks of `frame` (WRITTEN columns), in one action, and gathers what they have written.

    The frame is used once: using it twice would read Kafka twice. Raises StorageError, and what the source raises.
    """
    with unwrapping():
        rows = [row.asDict() for row in frame.collect()]
    stated = (_range(row) for row in rows if row["kind"] == _STATED)
    found = (parts.from_row(row) for row in rows if row["kind"] == _PART)
    return Batch(
        ranges=tuple(sorted(stated, key=lambda read: (read.tp, read.lo))),
        parts=tuple(sorted(found, key=lambda part: (part.tp, part.file.first))),
        bytes=sum(row["bytes"] for row in rows if row["kind"] == _READ),
    )


class _Statements:
    """The statements of a task, which come between its records, and what was left out of each one's."""

    def __init__(self) -> None:
        self.prefold = Prefold()
        self._bytes = 0
        self._open: dict[TopicPartition, pa.RecordBatch] = {}
        self._done: list[pa.RecordBatch] = []

    def apart(self, batches: Iterable[pa.RecordBatch], *, keyed: bool) -> Iterator[pa.RecordBatch | None]:
        """The records of `batches` as a run keeps them; the statements are put aside.

        More may follow a statement of the same partition: where records were lost in the middle of a range. None
        comes before it, so that no part of a file holds records of two statements.
        """
        for batch in batches:
            for piece in _pieces(batch):
                if self._open and self._open.keys() & _partitions(piece):
                    yield None
                    self._close()
                if piece["range"].null_count:
                    self._bytes += record.measure(piece)
                    yield _as_run(piece, needs_key=keyed)
                else:
                    self._open.update(dict.fromkeys(_partitions(piece), piece))

    def rows(self) -> list[pa.RecordBatch]:
        """All of them as rows of WRITTEN, once everything is written; and the bytes of all records."""
        self._close()
        read = pa.RecordBatch.from_pydict({"bytes": [self._bytes]})
        return [*self._done, _row(read, _READ)]

    def _close(self) -> None:
        """Whatever came before is folded and written by now."""
        for tp, statement in self._open.items():
            left_out = self.prefold.superseded.pop(tp, 0)
            self._done.append(_row(_flat(statement, left_out), _STATED))
        self._open.clear()


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """`batch` cut before and after each statement, in its order."""
    rows = pc.indices_nonzero(pc.is_valid(batch["range"])).to_pylist()
    start = 0
    for row in rows:
        if row > start:
            yield batch.slice(start, row - start)
        yield batch.slice(row, 1)
        start = row + 1
    if start < batch.num_rows:
        yield batch.slice(start)


def _partitions(rows: pa.RecordBatch) -> set[TopicPartition]:
    return {tp for tp, _ in runfile.split(rows.select(["topic", "partition", "offset"]))}


def _as_run(batch: pa.RecordBatch, *, needs_key: bool) -> pa.RecordBatch:
    size = batch.num_rows
    known = [batch[field.name].cast(field.type) for field in record.RECORDS]
    rejected = batch["rejected"].cast(pa.string())
    if needs_key:
        rejected = pc.if_else(pc.and_(pc.is_null(rejected), pc.is_null(batch["key"])), NULL_KEY, rejected)
    return pa.RecordBatch.from_arrays([*known, pa.nulls(size, pa.int64()), rejected], schema=record.RUN)


def _flat(statement: pa.RecordBatch, superseded: int) -> pa.RecordBatch:
    """A statement with the fields of `range` as columns, and what was left out of its records."""
    names = record.RANGE.names
    stated = [pc.struct_field(statement["range"], name) for name in names]
    columns = [statement["topic"], statement["partition"], *stated, pa.array([superseded], _SUPERSEDED.type)]
    return pa.RecordBatch.from_arrays(columns, names=["topic", "partition", *names, _SUPERSEDED.name])


def _row(rows: pa.RecordBatch, kind: str) -> pa.RecordBatch:
    """`rows` with all columns of WRITTEN, null where they have none of that name."""
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
