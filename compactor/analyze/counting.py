"""What has to be counted of logs before it can be told what a full fold would do, whoever counts it.

`localcount` reads little in this process, `sparkcount` any amount on Spark; the same tests hold both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from compactor.analyze.effect import SplitKeys, Survivors
from compactor.analyze.preview import RangeCounts
from compactor.model.log import PartitionLog

Fold = tuple[tuple[int, int], ...]
"""By number of the log, the offsets [start, end) that a full fold reads of it."""

EXAMPLES: Final = 5
"""How many split keys of a topic are named: the smallest."""

LITTLE_BYTES: Final = 64 << 20
LITTLE_RECORDS: Final = 1_000_000


class Counting(Protocol):
    """Counts what some logs hold; lists are by number of the log. Raises StorageError, and what damaged files raise."""

    def censuses(self, bounds: Sequence[tuple[int, ...]]) -> list[RangeCounts]:
        """Of each log what lies between its own `bounds`, of which there is at least one."""
        ...

    def survivors(self, folds: Sequence[Fold], now_ms: int) -> dict[Fold, list[Survivors]]:
        """By fold, the last records of all keys, by what the fold makes of them at `now_ms`."""
        ...

    def split_keys(self, ranges: Fold) -> dict[str, SplitKeys]:
        """By topic the keys whose last records in several of its partitions have a value; without topics of none."""
        ...


def little(logs: Iterable[PartitionLog]) -> bool:
    """Whether `logs` hold so little that counting it takes less than Spark's start."""
    runs = [run for log in logs for run in (log.base, *log.runs) if run]
    return sum(run.bytes for run in runs) <= LITTLE_BYTES and sum(run.records for run in runs) <= LITTLE_RECORDS
