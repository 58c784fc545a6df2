"""Separates the range reports of a reading task from the records among which they come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from compactor.model import record
from compactor.model.record import TopicPartition, split_by_partition

SUPERSEDED: Final = pa.field("superseded", pa.int64())


class RangeReports:
    """Collects the range reports of one task.

    `bytes_read`: key, value and headers of all records that have come, in bytes.

    `superseded`: by partition how many of its records were left out, counted by what folds them (`Prefold`); it is
    taken from there as reports are closed.
    """

    def __init__(self, superseded: dict[TopicPartition, int]) -> None:
        self.bytes_read = 0
        self._superseded = superseded
        # By partition the report after which no record of the partition has come yet.
        self._open: dict[TopicPartition, pa.RecordBatch] = {}
        # Each closed report with the number of its records that were superseded.
        self._done: list[tuple[pa.RecordBatch, int]] = []

    def separate(self, batches: Iterable[pa.RecordBatch], *, keyed: bool) -> Iterator[pa.RecordBatch | None]:
        """Yields the records of `batches` as a run keeps them (record.RUN), and keeps the range reports for `rows`.

        If records were lost in the middle of a range, more records follow a report of the same partition. Then None is
        yielded first, so that no part of a file holds records of two reports.
        """
        for batch in batches:
            for piece in _pieces(batch):
                is_report = piece["range"].null_count == 0
                own = _partitions(piece) if self._open or is_report else set()
                if self._open.keys() & own:
                    yield None
                    self._close()
                if is_report:
                    self._open.update(dict.fromkeys(own, piece))
                else:
                    self.bytes_read += record.measure(piece)
                    yield _as_run(piece, needs_key=keyed)

    def rows(self) -> pa.RecordBatch:
        """Returns all of them, once everything is written: the fields of record.RANGE as columns, and SUPERSEDED."""
        self._close()
        reports = [report for report, _ in self._done]
        rows = pa.concat_batches(reports) if reports else pa.RecordBatch.from_pylist([], record.SOURCE)
        fields = [pc.struct_field(rows["range"], name) for name in record.RANGE.names]
        superseded = pa.array([left_out for _, left_out in self._done], SUPERSEDED.type)
        columns = [rows["topic"], rows["partition"], *fields, superseded]
        return pa.RecordBatch.from_arrays(columns, names=["topic", "partition", *record.RANGE.names, SUPERSEDED.name])

    def _close(self) -> None:
        """Closes the open reports: the records before them are folded and written by now."""
        for tp, report in self._open.items():
            self._done.append((report, self._superseded.pop(tp, 0)))
        self._open.clear()


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cuts `batch` before and after each range report, in its order."""
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
    return {tp for tp, _ in split_by_partition(rows.select(["topic", "partition", "offset"]))}


def _as_run(batch: pa.RecordBatch, *, needs_key: bool) -> pa.RecordBatch:
    size = batch.num_rows
    known = [batch[field.name].cast(field.type) for field in record.RECORDS]
    rejected = batch["rejected"].cast(pa.string())
    if needs_key:
        rejected = pc.if_else(pc.and_(pc.is_null(rejected), pc.is_null(batch["key"])), record.NULL_KEY, rejected)
    held = set(batch.schema.names)
    compared = [
        batch[name] if name in held else pa.nulls(size, record.RUN.field(name).type)
        for name in (record.KEY_IDENTITY, record.KEY_ENCODING, record.ORDER_VALUE)
    ]
    return pa.RecordBatch.from_arrays([*known, pa.nulls(size, pa.int64()), rejected, *compared], schema=record.RUN)
