"""When a log is set aside, for how long, and what that holds back: pure.

Kafka marks such a partition uncleanable until the broker is restarted (`LogCleanerManager.markPartitionUncleanable`);
here it is looked at again and again, and the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable

from compactor import backoff
from compactor.model.actions import Quarantine, Release
from compactor.model.log import PartitionLog, Quarantined


def set_aside(log: PartitionLog, error: str, now_ms: int, *, publishing: bool = False) -> Quarantine:
    """`log` is set aside, or for longer."""
    before = log.quarantine
    failures = before.failures + 1 if before else 1
    found = Quarantined(
        since_ms=before.since_ms if before else now_ms,
        retry_ms=backoff.next_try_ms(failures, now_ms),
        failures=failures,
        error=error,
        publishing=publishing or (before is not None and before.publishing),
    )
    return Quarantine(topic=log.topic, partition=log.partition, found=found)


def release(log: PartitionLog) -> Release:
    """`log` is taken up again."""
    return Release(topic=log.topic, partition=log.partition)


def due(logs: Iterable[PartitionLog], now_ms: int) -> tuple[PartitionLog, ...]:
    """The logs that are to be looked at again."""
    return tuple(log for log in logs if log.quarantine and not backoff.waits(log.quarantine.retry_ms, now_ms))
