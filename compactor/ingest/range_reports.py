"""What a reading task says of the ranges that it reads: statements, which come between its records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from compactor.model import record
from compactor.model.partitioned import split
from compactor.model.record import TopicPartition

NULL_KEY: Final = "null key"
"""Why a record without a key is rejected: it is the latest of nothing."""

SUPERSEDED: Final = pa.field("superseded", pa.int64())


class RangeReports:
    """The statements of one task. `bytes_read`: key, value and headers of all records that have come.

    `superseded`: by partition what was left out of its records, counted by whoever folds them; it is taken from there
    as statements are closed.
    """

    def __init__(self, superseded: dict[TopicPartition, int]) -> None:
        self.bytes_read = 0
        self._superseded = superseded
        self._open: dict[TopicPartition, pa.RecordBatch] = {}
        self._done: list[tuple[pa.RecordBatch, int]] = []

    def apart(self, batches: Iterable[pa.RecordBatch], *, keyed: bool) -> Iterator[pa.RecordBatch | None]:
        """The records of `batches` as a run keeps them; the statements are put aside.

        More may follow a statement of the same partition: where records were lost in the middle of a range. None
        comes before it, so that no part of a file holds records of two statements.
        """
        for batch in batches:
            for piece in _pieces(batch):
                states = piece["range"].null_count == 0
                own = _partitions(piece) if self._open or states else set()
                if self._open.keys() & own:
                    yield None
                    self._close()
                if states:
                    self._open.update(dict.fromkeys(own, piece))
                else:
                    self.bytes_read += record.measure(piece)
                    yield _as_run(piece, needs_key=keyed)

    def rows(self) -> pa.RecordBatch:
        """All of them, once everything is written: the fields of record.RANGE as columns, and SUPERSEDED."""
        self._close()
        return _flat(self._done)

    def _close(self) -> None:
        """Whatever came before is folded and written by now."""
        for tp, statement in self._open.items():
            self._done.append((statement, self._superseded.pop(tp, 0)))
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
    if rows.num_rows == 1:
        return {TopicPartition(rows["topic"][0].as_py(), rows["partition"][0].as_py())}
    return {tp for tp, _ in split(rows.select(["topic", "partition", "offset"]))}


def _as_run(batch: pa.RecordBatch, *, needs_key: bool) -> pa.RecordBatch:
    size = batch.num_rows
    known = [batch[field.name].cast(field.type) for field in record.RECORDS]
    rejected = batch["rejected"].cast(pa.string())
    if needs_key:
        rejected = pc.if_else(pc.and_(pc.is_null(rejected), pc.is_null(batch["key"])), NULL_KEY, rejected)
    return pa.RecordBatch.from_arrays([*known, pa.nulls(size, pa.int64()), rejected], schema=record.RUN)


def _flat(statements: Sequence[tuple[pa.RecordBatch, int]]) -> pa.RecordBatch:
    """Statements with the fields of `range` as columns, and what was left out of the records of each."""
    names = record.RANGE.names
    superseded = [left_out for _, left_out in statements]
    none = pa.RecordBatch.from_pylist([], record.SOURCE)
    rows = pa.concat_batches([one for one, _ in statements]) if statements else none
    stated = [pc.struct_field(rows["range"], name) for name in names]
    columns = [rows["topic"], rows["partition"], *stated, pa.array(superseded, SUPERSEDED.type)]
    return pa.RecordBatch.from_arrays(columns, names=["topic", "partition", *names, SUPERSEDED.name])
