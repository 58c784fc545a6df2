"""The acceptance scenarios about what is folded, and when: decisions over metadata, with the time as an argument."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from compactor.clean.due import Queue, Reason, evaluate, quarantined
from compactor.clean.log_to_clean import LogToClean
from compactor.clean.schedule import choose, evaluate_all
from compactor.model.log import PartitionLog
from compactor.model.record import TopicPartition
from compactor.publish.publishable import first_young, publishable
from compactor.quarantine import quarantine
from compactor.settings import CompactionPolicy, FoldPolicy
from tests.support.brokerless import BrokerlessConnector
from tests.support.engine import Row, row
from tests.support.logs import HOUR, base, log, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLD = FoldPolicy()
LAG = CompactionPolicy(min_compaction_lag_ms=HOUR)
T0 = 1_000 * HOUR


def stamped(*stamps: int) -> list[Row]:
    """A record at each offset from 0, with these timestamps."""
    return [row(0, offset, b"k%d" % (offset % 2), b"v%d" % offset, timestamp=at) for offset, at in enumerate(stamps)]


def lag_end(kept: BrokerlessConnector, now_ms: int) -> int:
    """The offset up to which the log may be folded and sent, from the records that are stored."""
    kept_log, policy = kept.log(), kept.settings.policy
    return publishable(
        kept_log, policy, now_ms, lambda newest: first_young(kept.storage, kept_log, kept_log.folded_end, newest)
    )


def test_scenario_03_open_chunk_excluded(spark: SparkSession, tmp_path: Path) -> None:
    """Records inside the lag are neither folded, nor published, nor counted in the dirty ratio."""
    kept = BrokerlessConnector(spark, tmp_path, policy=LAG)
    rows = stamped(*[T0] * 4, *[T0 + HOUR] * 4)
    kept.ingest(rows, now_ms=T0 + HOUR)
    kept.publish({0: lag_end(kept, T0 + HOUR)})
    assert kept.log().published == 4
    assert kept.cleaner.round(T0 + HOUR).cleaned == 1
    assert kept.rows() == [(offset, b"k%d" % (offset % 2), b"v%d" % offset) for offset in range(2, 8)]
    held = LogToClean.of(kept.log())
    assert (held.clean_bytes, held.cleanable_bytes, held.ratio) == (8, 0, 0.0)
    assert evaluate(kept.log(), LAG, FOLD, T0 + HOUR).reason is Reason.HELD


def test_scenario_07_min_lag(tmp_path: Path) -> None:
    """A lag of 1 h holds a record until its hour is over, and what is behind it; a future stamp counts as arrival."""
    kept = BrokerlessConnector(None, tmp_path, policy=LAG)  # type: ignore[arg-type]  # nothing is folded here
    kept.ingest(stamped(T0 - 1, T0, T0 - 5, T0 + 1, T0 + 99 * HOUR), now_ms=T0 + 1)
    ends = {now: lag_end(kept, now) for now in (T0 + HOUR // 2, T0 + HOUR - 1, T0 + HOUR, T0 + HOUR + 1)}
    assert ends == {T0 + HOUR // 2: 0, T0 + HOUR - 1: 1, T0 + HOUR: 3, T0 + HOUR + 1: 5}


def test_scenario_08_max_lag_over_ratio() -> None:
    """With ratio 1.0 and a maximum of 6 h a log is not due at 3 h nor 6 h, and is 1 ms later, though it is idle."""
    policy = CompactionPolicy(min_cleanable_dirty_ratio=1.0, min_compaction_lag_ms=HOUR, max_compaction_lag_ms=6 * HOUR)
    idle = log(run(10, 20, 5, arrived=T0 + HOUR, oldest=T0), clean=base(10, 500), folded_ms=T0)
    due = {hours: evaluate(idle, policy, FOLD, T0 + hours * HOUR) for hours in (3, 6)}
    assert [found.reason for found in due.values()] == [Reason.CLEAN_ENOUGH] * 2
    late = evaluate(idle, policy, FOLD, T0 + 6 * HOUR + 1)
    assert (late.reason, late.due_ms) == (Reason.OVERDUE, T0 + 6 * HOUR + 1)
    assert choose([late], None, FOLD.job_bytes).picked == (late,)


def test_scenario_09_ratio() -> None:
    """Of 2 clean, 2 cleanable and 2 held runs the ratio is that of the exact bytes, and has to be exceeded."""
    runs = [run(20, 30, 31), run(30, 40, 32), run(40, 50, 500), run(50, 60, 600)]
    clean = replace(base(20, 62), files=(run(0, 10, 30).files[0], run(10, 20, 32).files[0]))
    kept = log(*runs, clean=clean, published=40, folded_ms=0)
    assert replace(LogToClean.of(kept), cleanable_records=0, oldest_ms=None) == LogToClean(
        clean_bytes=62, cleanable_bytes=63, uncleanable_bytes=1100
    )
    assert LogToClean.of(kept).ratio == 63 / 125
    for limit, reason in ((63 / 125, Reason.CLEAN_ENOUGH), (0.5039, Reason.DIRTY)):
        policy = CompactionPolicy(min_cleanable_dirty_ratio=limit)
        assert evaluate(kept, policy, FOLD, 0).reason is reason


def dirty(partition: int, head: int) -> PartitionLog:
    """A log of 20 clean bytes and `head` dirty ones."""
    heads = [run(20, 30, head, arrived=T0)] if head else []
    return log(*heads, clean=base(20, 20), tp=TopicPartition("t", partition), folded_ms=T0)


@pytest.mark.parametrize("hold", ["busy", "quarantined"])
def test_scenario_10_choice(hold: str) -> None:
    """The filthiest log is first, one that is held is passed over, and one that is overdue is served in two jobs."""
    policy = replace(LAG, min_cleanable_dirty_ratio=0.0, max_compaction_lag_ms=6 * HOUR)
    logs = [dirty(0, 0), dirty(1, 5), dirty(2, 10)]

    def picked(*held: int) -> list[int]:
        """The partition that a job of one log takes while those of `held` may not be folded."""
        aside = [one for one in logs if one.partition in held]
        if hold == "busy":
            holds = {one.tp: Reason.BUSY for one in aside}
        else:
            found = [replace(one, quarantine=quarantine.quarantine_of(one, "broken", T0).quarantined) for one in aside]
            holds = quarantined(found)
        choice = choose(evaluate_all(logs, policy, FOLD, T0, holds), None, 1)
        return [one.tp.partition for one in choice.picked]

    assert [picked(), picked(2), picked(1, 2)] == [[2], [1], []]
    overdue = log(run(20, 21, 1, arrived=0), clean=base(20, 999), tp=TopicPartition("t", 9), folded_ms=T0)
    last: Queue | None = None
    served: list[int] = []
    for _ in range(4):
        choice = choose(evaluate_all([*logs, overdue], policy, FOLD, T0, {}), last, 1)
        last, served = choice.last, [*served, *(one.tp.partition for one in choice.picked)]
    assert served == [9, 2, 9, 2]
    assert last is Queue.FILTHY
