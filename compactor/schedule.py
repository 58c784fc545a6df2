"""What is due, decided from metadata: pure."""

from __future__ import annotations

from collections.abc import Callable

from compactor.log import PartitionLog
from compactor.policy import CompactionPolicy


def publishable(
    log: PartitionLog,
    policy: CompactionPolicy,
    now_ms: int,
    first_young: Callable[[int], int | None],
    *,
    bootstrap_fold: bool = True,
) -> int:
    """The offset up to which `log` may be folded and sent: the first record inside the lag, or the log's end.

    `first_young` gives the first offset from folded_end on whose record is younger than the time that it is
    told, in ms; it is asked only where there is a lag (KIP-58, by record instead of by segment). Never below
    folded_end: a fold that began once ends where it was to end, whatever clock and lag say now. While the
    backlog that a topic had when it was first seen is not read to its end, nothing more is publishable, so
    that a reader of a fresh output gets each key once.
    """
    if bootstrap_fold and log.backlog_end is not None and log.end < log.backlog_end:
        return log.folded_end
    if policy.min_compaction_lag_ms <= 0 or log.folded_end >= log.end:
        return log.end
    young = first_young(now_ms - policy.min_compaction_lag_ms)
    return log.end if young is None else max(log.folded_end, young)
