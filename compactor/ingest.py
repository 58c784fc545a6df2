"""Ingest: a micro-batch becomes level-0 files, and its offsets continue each log exactly once.

The frame is used once: using it twice would read Kafka twice. Records go into files where they were read;
only what was written, and what the reading tasks state of their ranges, comes to the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from compactor import parts, record, runfile
from compactor.append import appends
from compactor.batch import Batch, RangeRead, first_rejected
from compactor.faults import tagging, unwrapping
from compactor.parts import Part
from compactor.record import TopicPartition
from compactor.runfile import RunTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Batch", "Part", "RangeRead", "appends", "first_rejected", "write_batch"]

NULL_KEY: Final = "null key"
"""Why a record without a key is rejected: it is the latest of nothing."""

_WRITTEN: Final = "written"
_STATED: Final = "stated"
_RANGE: Final = ("topic_id", "lo", "hi", "start")
_META: Final = pa.schema([pa.field("kind", pa.string()), *(record.RANGE.field(name) for name in _RANGE), *parts.PARTS])


def write_batch(frame: DataFrame, target: RunTarget, *, keyed: bool = True) -> Batch:
    """Step 3: writes the records of `frame` (record.SOURCE columns) where they were read, in one action.

    Where logs are not folded by key (not `keyed`), a record needs none.

    Raises StorageError, and what the source raises.
    """

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tagging():
            yield from _write(batches, target, keyed=keyed)

    with unwrapping():
        rows = [row.asDict() for row in frame.mapInArrow(task, record.ddl(_META)).collect()]
    stated = (_range(row) for row in rows if row["kind"] == _STATED)
    written = (parts.from_row(row) for row in rows if row["kind"] == _WRITTEN)
    return Batch(
        ranges=tuple(sorted(stated, key=lambda read: (read.tp, read.lo))),
        parts=tuple(sorted(written, key=lambda part: (part.tp, part.file.first))),
    )


def _write(batches: Iterable[pa.RecordBatch], target: RunTarget, *, keyed: bool) -> Iterator[pa.RecordBatch]:
    """The files' parts and the statements that came between the records, as rows of _META."""
    statements: list[pa.RecordBatch] = []
    for part in runfile.write(_records(batches, statements, keyed=keyed), target, "ingest.write"):
        yield _meta(parts.to_batch([part]), _WRITTEN)
    for batch in statements:
        yield _meta(_flat(batch), _STATED)


def _records(
    batches: Iterable[pa.RecordBatch], statements: list[pa.RecordBatch], *, keyed: bool
) -> Iterator[pa.RecordBatch | None]:
    """The records of `batches` as a run keeps them; the statements are put aside.

    Records may follow a statement of their own partition: where some were lost in the middle of a range. None
    comes before them, so that no part of a file holds records of two statements.
    """
    stated: set[TopicPartition] = set()
    for batch in batches:
        for piece in _pieces(batch):
            if piece["range"].null_count == 0 and piece.num_rows:
                statements.append(piece)
                stated |= _partitions(piece)
                continue
            if stated and stated & _partitions(piece):
                stated.clear()
                yield None
            yield _as_run(piece, needs_key=keyed)


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


def _flat(statements: pa.RecordBatch) -> pa.RecordBatch:
    """Statements with the fields of `range` as columns."""
    names = record.RANGE.names
    stated = [pc.struct_field(statements["range"], name) for name in names]
    return pa.RecordBatch.from_arrays(
        [statements["topic"], statements["partition"], *stated], names=["topic", "partition", *names]
    )


def _meta(rows: pa.RecordBatch, kind: str) -> pa.RecordBatch:
    """`rows` with all columns of _META, null where they have none of that name."""
    size, names = rows.num_rows, set(rows.schema.names)
    columns = [
        rows[field.name].cast(field.type) if field.name in names else pa.nulls(size, field.type)
        for field in _META.remove(0)
    ]
    return pa.RecordBatch.from_arrays([pa.repeat(kind, size), *columns], schema=_META)


def _range(row: dict[str, Any]) -> RangeRead:
    tp = TopicPartition(row["topic"], row["partition"])
    return RangeRead(tp=tp, records=row["records"], **{name: row[name] for name in _RANGE})
