"""Writes what a log keeps from after a truncate: the records that its next generation begins with (step G2).

They stay at their own offsets, so nothing of them is read again. Whether a record is after the truncate goes by the
connector's order (`model.fence`). Tombstones that are after it stay, as they hold back what comes late.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from compactor.fold.latest_per_key import is_foldable
from compactor.model.fence import Fence, are_before
from compactor.model.log import PartitionLog, Run
from compactor.model.order import values_of
from compactor.model.record import RUN
from compactor.runs.reader import read
from compactor.runs.scan import whole
from compactor.runs.writer import RunTarget, write_run
from compactor.storage.base import Storage


def write_carried(
    storage: Storage, log: PartitionLog, fence: Fence, order: str, sent: int, target: RunTarget, now_ms: int
) -> Run | None:
    """Writes the records of `log` that are not before `fence`; returns their run up to its end, None without any.

    Rejected ones stay from the offset `sent` on: those below are dead letters already. Raises StorageError,
    DamagedFileError, MissingFileError.
    """
    records = _left(storage, log, fence, order, sent)
    first = next(records, None)
    if first is None:
        return None
    start = first["offset"][0].as_py()
    return write_run(chain([first], records), target, "generation.carry", start, log.end, now_ms)


def _left(storage: Storage, log: PartitionLog, fence: Fence, order: str, sent: int) -> Iterator[pa.RecordBatch]:
    """Yields the records that stay, by offset. Their delete horizons go: the first clean stamps tombstones again."""
    place = RUN.get_field_index("delete_horizon")
    for rows in read(storage, whole(log)):
        goes = are_before(fence, log.partition, rows["offset"], values_of(rows, order))
        is_letter = pc.and_(pc.invert(is_foldable(rows)), pc.greater_equal(rows["offset"], sent))
        left = rows.filter(pc.or_(pc.and_(is_foldable(rows), pc.invert(goes)), is_letter))
        if left.num_rows:
            yield left.set_column(place, RUN.field(place), pa.nulls(left.num_rows, RUN.field(place).type))
