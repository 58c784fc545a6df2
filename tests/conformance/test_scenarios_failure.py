"""The acceptance scenarios about what goes wrong, and about records that go by retention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from compactor.catalog.catalog import Catalog
from compactor.clean.due import Reason, quarantined
from compactor.clean.schedule import evaluate_all
from compactor.errors import FailpointError, FencedError, QuarantinedError, StorageError
from compactor.failpoints import STEPS, VARIABLE
from compactor.maintenance import Maintenance
from compactor.model.actions import CloseTopic
from compactor.runs import writer as runfile
from compactor.settings import CompactionPolicy, FoldPolicy
from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.conformance.reader import Rows, Shelf
from tests.spark.test_cleaner import damage_page, some
from tests.support.brokerless import BrokerlessConnector, before_next_rewrite
from tests.support.engine import row
from tests.support.publishing import ONE_RECORD_EACH, Changelog, RunRecord, source_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KeptOf: TypeAlias = Callable[..., BrokerlessConnector]

ON_COMMAND = FoldPolicy(level0_files=2, full_interval_ms=-1)
COMPACT = CompactionPolicy(min_cleanable_dirty_ratio=1.0)
BOTH = CompactionPolicy(cleanup_policy=("compact", "delete"), min_cleanable_dirty_ratio=1.0, retention_ms=100)


@pytest.fixture
def kept_of(spark: SparkSession, tmp_path: Path) -> KeptOf:
    """A connector's kept side, by default one that merges by itself and folds on command."""
    return lambda **settings: BrokerlessConnector(
        spark, tmp_path / "kept", **{"policy": COMPACT, "fold": ON_COMMAND, **settings}
    )


@contextmanager
def failing(step: str, spark: SparkSession | None = None) -> Iterator[None]:
    """What is done inside ends at a failpoint; with `spark` one in a task."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, f"{step}=error")
        if spark is not None:
            patch.setitem(spark.sparkContext.environment, VARIABLE, f"{step}=error")
        with pytest.raises(FailpointError):
            yield


RAW: Rows = [(0, b"a", b"0"), (1, b"b", b"1"), (2, b"a", b"2"), (3, b"c", b"3"), (4, b"a", b"4"), (5, b"b", b"5")]
MERGED = [*RAW[:2], *RAW[3:]]
FOLDED = RAW[3:]

CRASHES = [
    ("merge.write", RAW, RAW[:2]),
    ("merge.before-commit", RAW, RAW[:2]),
    ("catalog.create", RAW, RAW[:2]),
    ("catalog.created", MERGED, RAW[:2]),
    ("clean.write", MERGED, RAW[:2]),
    ("clean.before-commit", MERGED, RAW[:2]),
    ("clean.after-commit", FOLDED, RAW[:2]),
    ("snapshot.file", FOLDED, RAW[:2]),
    ("snapshot.write", FOLDED, RAW[:2]),
    ("snapshot.manifest", FOLDED, RAW[:2]),
    ("snapshot.before-latest", FOLDED, RAW[:2]),
]
"""After a crash at each step: what the log keeps, and what the snapshot has that LATEST names."""
_IN_A_TASK = {"merge.write", "clean.write", "snapshot.file"}
_ELSEWHERE = {"snapshot.section", "catalog.replace", "catalog.checkpoint", "merge.index", "clean.index"}
"""Steps that cleaning comes to only in a catalog of 50 versions, in one that was replaced, with an index of keys, or
with a typed snapshot: tests/faults and spark/test_typed_snapshot.py have them."""


def test_scenario_21_crash_at_every_step(spark: SparkSession, kept_of: KeptOf, tmp_path: Path) -> None:
    """Wherever cleaning ends, a reader of log and snapshot finds all of the old or all of the new; repeating mends."""
    kept, shelf = kept_of(), Shelf(tmp_path / "shelf")

    def ingest(lo: int, hi: int) -> None:
        kept.ingest([row(0, offset, key, value) for offset, key, value in RAW[lo:hi]])
        kept.publish()

    def clean(step: str) -> None:
        """As far as the step is one of: merges, then a full fold, then a snapshot."""
        kept.cleaner.round(0)
        if not step.startswith(("merge", "catalog")):
            kept.cleaner.clean(0)
            shelf.take(kept)

    ingest(0, 2)
    clean("clean")
    ingest(2, 4)
    ingest(4, 6)
    for step, log, snapshot in CRASHES:
        with failing(step, spark if step in _IN_A_TASK else None):
            clean(step)
        kept.restart()
        assert (step, kept.rows(), shelf.newest()) == (step, log, snapshot)
    clean("clean")
    assert kept.rows() == shelf.newest() == FOLDED
    kept.configure(BOTH, ON_COMMAND)
    with failing("retain.before-commit"):
        kept.cleaner.round(1000)
    kept.restart()
    assert kept.rows() == FOLDED
    assert (kept.cleaner.round(1000).expired, kept.rows(), kept.log().start) == (1, [], 6)
    tried = {*(step for step, _, _ in CRASHES), "retain.before-commit"}
    assert tried == {step for step in STEPS if step.split(".")[0] in {one.split(".")[0] for one in tried}} - _ELSEWHERE


def test_scenario_21_crash_at_every_step_of_the_changelog(
    broker: EmbeddedKafka, tmp_path: Path, topic_name: str
) -> None:
    """Wherever a publish ends, a reader finds whole transactions, and going on sends what is missing, once."""
    changelog = Changelog(broker.bootstrap, tmp_path, topic_name)
    publisher = changelog.publisher(limits=ONE_RECORD_EACH)
    seen: list[int] = []
    steps = [
        "publish.fence",
        "publish.position",
        "publish.begin",
        "publish.sent",
        "publish.offsets",
        "publish.committed",
    ]
    for number, step in enumerate(steps):
        lo = 10 * number
        records = [RunRecord(lo + 1), RunRecord(lo + 3), RunRecord(lo + 9)]
        with failing(step):
            changelog.publish(changelog.target(lo, lo + 10, output_offset=None), records, publisher)
        arrived = [lo + 1] if step == "publish.committed" else []
        assert (step, source_offsets(changelog.read())) == (step, [*seen, *arrived])
        held = changelog.position()
        at = held.offset if held else 0
        assert at == (lo + 2 if arrived else lo)
        rest = [one for one in records if one.offset >= at]
        output = held.output_offset if held else None
        changelog.publish(changelog.target(at, lo + 10, output_offset=output), rest, publisher)
        seen += [one.offset for one in records]
        assert source_offsets(changelog.read()) == seen


def test_scenario_22_rebalance(kept_of: KeptOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fold during which another owner takes over, or that is broken off, changes nothing; the owner goes on."""
    kept = kept_of()
    kept.ingest(some(0, 10))
    kept.publish()
    before, old = kept.log(), kept.cleaner
    before_next_rewrite(kept, kept.restart)
    with pytest.raises(FencedError):
        old.clean(0)
    assert Catalog.open(kept.storage, "c").state.log(before.tp) == kept.log() == before

    def stop() -> None:
        kept.stopping.set()
        raise InterruptedError("the job was cancelled")

    before_next_rewrite(kept, stop)
    with pytest.raises(InterruptedError):
        kept.cleaner.clean(0)
    assert kept.cleaner.clean(0) == ()
    kept.restart()
    assert kept.log() == before
    assert [one.end for one in kept.cleaner.clean(7)] == [10]
    with pytest.raises(FencedError):
        old.clean(8)
    kept.restart()
    assert (kept.log().clean_end, kept.log().last_full_fold_ms, len(kept.rows())) == (10, 7, 5)


def held(kept: BrokerlessConnector) -> dict[int, int]:
    """What `describe` shows as quarantined: partition → bytes that no fold takes."""
    logs, settings = kept.catalog.state.logs, kept.settings
    found = evaluate_all(logs, settings.policy, settings.fold, 0, quarantined(logs))
    return {one.tp.partition: one.measured.cleanable_bytes for one in found if one.reason is Reason.QUARANTINED}


@pytest.mark.long  # spark/test_cleaner.py has a damaged page
def test_scenario_23_quarantine(kept_of: KeptOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three logs the damaged one alone is set aside, exactly counted, looked at again later and later, released."""
    monkeypatch.setattr(runfile, "SHARED_BYTES", 0)  # with more records each has row groups of its own
    kept = kept_of(partitions=3, policy=CompactionPolicy())
    kept.ingest([one for p in range(3) for one in some(0, 20, partition=p)])
    kept.publish()
    size = kept.log(1).runs[0].bytes
    restore = damage_page(kept, 1)
    assert kept.cleaner.round(1000).cleaned == 2
    assert [kept.log(p).clean_end for p in range(3)] == [20, 0, 20]
    waits = []
    for _ in range(3):
        found = kept.log(1).quarantine
        assert found is not None
        waits.append((found.failures, found.retry_ms))
        kept.cleaner.round(found.retry_ms - 1)
        assert kept.log(1).quarantine == found
        kept.cleaner.round(found.retry_ms)
    assert waits == [(1, 61_000), (2, 181_000), (3, 421_000)]
    assert held(kept) == {1: size}
    with pytest.raises(StorageError, match="t-1"):
        kept.quarantine.release([kept.log(1)], 500_000)
    restore()
    assert kept.quarantine.release([kept.log(1)], 500_000) == 1
    assert (held(kept), kept.cleaner.round(500_000).cleaned) == ({}, 1)


def test_scenario_23_quarantine_ends_with_what_was_damaged(kept_of: KeptOf) -> None:
    """Retention goes on for a log that is set aside; once it has passed the damage, the log is taken up by itself."""
    kept = kept_of(policy=BOTH)
    kept.ingest(some(0, 20), now_ms=20)
    kept.ingest([{**one, "timestamp": 200_000} for one in some(20, 25)], now_ms=200_000)
    kept.publish()
    damage_page(kept, 0)
    assert kept.cleaner.clean(100) == ()
    assert [*held(kept)] == [0]
    assert kept.cleaner.round(200).expired == 1
    kept.cleaner.round(100 + 60_000)
    assert (held(kept), kept.log().start) == ({}, 20)


def test_scenario_23_quarantine_of_a_topic_that_goes(kept_of: KeptOf, tmp_path: Path) -> None:
    """Once its topic is deleted, a partition that is set aside is no trouble of the connector any more."""
    kept = kept_of()
    kept.ingest(some(0, 20))
    kept.publish()
    damage_page(kept, 0)
    kept.cleaner.clean(100)
    upkeep = Maintenance(kept.cleaner, None, kept.catalog, kept.quarantine, kept.counters, kept.stopping)  # type: ignore[arg-type]
    with pytest.raises(QuarantinedError):
        upkeep.check_complete()
    kept.catalog.commit(lambda _: [CloseTopic(topic="t", reason="deleted")], 200)
    kept.cleaner.round(100 + 60_000)
    upkeep.check_complete()


def test_scenario_24_compact_delete(kept_of: KeptOf, tmp_path: Path) -> None:
    """With delete, whole ranges go by their youngest record; start, log and snapshot follow; all may go."""
    kept, shelf = kept_of(policy=BOTH), Shelf(tmp_path / "shelf")
    kept.ingest([row(0, 0, b"a", b"0", timestamp=10), row(0, 1, b"only", b"1", timestamp=50)], now_ms=50)
    kept.ingest([row(0, 2, b"c", b"2", timestamp=200), row(0, 3, b"a", b"3", timestamp=60)], now_ms=200)
    kept.publish()
    kept.configure(BOTH, FoldPolicy(full_interval_ms=-1))
    assert [kept.cleaner.round(now).expired for now in (150, 151)] == [0, 1]
    assert kept.log().start == 2
    kept.cleaner.clean(160)
    shelf.take(kept)
    assert kept.rows() == shelf.newest() == [(2, b"c", b"2"), (3, b"a", b"3")]
    assert [kept.cleaner.round(now).expired for now in (300, 301)] == [0, 1]
    kept.restart()
    assert (kept.log().start, kept.log().clean_end, kept.rows()) == (4, 4, [])
    shelf.take(kept, 400)
    assert shelf.newest() == []
    kept.ingest([row(0, 4, b"c", b"4", timestamp=400)], now_ms=400)
    kept.publish()
    kept.cleaner.clean(400)
    assert kept.rows() == [(4, b"c", b"4")]


def test_scenario_24_policy_flip(kept_of: KeptOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """With compact alone a last value never goes; a fold that runs through a change of it undoes nothing."""
    kept = kept_of(policy=CompactionPolicy(min_cleanable_dirty_ratio=1.0, retention_ms=1, retention_bytes=1))
    kept.ingest(some(0, 10))
    kept.publish()
    assert kept.cleaner.round(10**12).expired == 0

    def flip() -> None:
        kept.restart()
        kept.configure(BOTH, ON_COMMAND)
        assert kept.cleaner.round(10**12).expired == 1

    before_next_rewrite(kept, flip)
    with pytest.raises(FencedError):
        kept.cleaner.clean(10**12)
    assert (kept.log().start, kept.log().base, kept.rows()) == (10, None, [])
    kept.configure(COMPACT, ON_COMMAND)
    kept.ingest(some(10, 20), now_ms=10)
    kept.publish()
    kept.cleaner.clean(20)
    assert (kept.cleaner.round(10**13).expired, len(kept.rows())) == (0, 5)
