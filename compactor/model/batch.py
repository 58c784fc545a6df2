"""A micro-batch that is written and not yet in the catalog, as a value."""

from __future__ import annotations

from msgspec import Struct

from compactor.model.record import TopicPartition
from compactor.runs.file_stats import FileStats


class RangeRead(Struct, frozen=True, kw_only=True):
    """A reading task's statement: it read all of [lo, hi), which holds `records` records.

    `start` is above `lo` only where the log began there: the offsets between were lost. Of the records, `superseded`
    were left out, as a later one of the same range has the same key.
    """

    tp: TopicPartition
    topic_id: str
    lo: int
    hi: int
    start: int
    records: int
    superseded: int = 0


class Batch(Struct, frozen=True, kw_only=True):
    """`ranges` by partition and lo, `parts` by partition and first offset; `bytes_read`: of all that was read."""

    ranges: tuple[RangeRead, ...]
    parts: tuple[FileStats, ...]
    bytes_read: int = 0


def first_rejected(batch: Batch) -> tuple[TopicPartition, int, str] | None:
    """The first record of `batch` that cannot be folded: where it is, and why; None where there is none."""
    for part in batch.parts:
        if part.first_rejected_offset is not None:
            return part.tp, part.first_rejected_offset, part.first_rejected_reason or ""
    return None
