"""Which logs are published next, without Spark; docs/protocol.md, steps 5 to 12."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from compactor.catalog.catalog import Catalog
from compactor.errors import PublishInterruptedError
from compactor.fold import on_spark
from compactor.fold.chooser import Folds
from compactor.fold.latest_per_key import Folded, FoldJob
from compactor.model.actions import AddPartition, AddTopic, Append, CloseTopic, PlanFold, Publish, SetBuckets
from compactor.model.position import Position
from compactor.model.publish_plan import PublishPlan, PublishResult
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState, rejection_of
from compactor.publish.changelog import MAX_LOGS_BESIDE_DAMAGE, Changelog
from compactor.publish.executors import PublishExecutor
from compactor.quarantine.quarantine import QuarantineManager, quarantine_of
from compactor.quarantine.verify import find_damage
from compactor.runs.scan import OffsetRange
from compactor.settings import CompactionPolicy, EngineSettings
from compactor.storage.base import Storage
from tests.support.clocks import ManualClock
from tests.support.java_errors import JavaError, job_cancelled, worker_ended
from tests.support.logs import run
from tests.support.memory.broker import MemoryBroker
from tests.support.memory.storage import MemoryStorage

SETTINGS = EngineSettings(connector="c", policy=CompactionPolicy())
PARTITIONS = MAX_LOGS_BESIDE_DAMAGE + 8
HOUR = 3_600_000


class Fold:
    """Stands for one way to fold: has `run` do it."""

    def __init__(self, run: Callable[[FoldJob], Folded]) -> None:
        self.run = run


class Outside(MemoryBroker):
    """A broker whose publishers give what is due to a world."""

    def __init__(self, storage: MemoryStorage, send: Callable[[PublishPlan], tuple[PublishResult, ...]]) -> None:
        super().__init__(storage)
        self._send = send

    def publisher(self, state: CatalogState) -> Any:
        return SimpleNamespace(publish=lambda plan, _: self._send(plan))

    def local_publisher(self, state: CatalogState, stopped: Callable[[], bool]) -> Any:
        return self.publisher(state)


class World:
    """Many partitions of topic t, which grow; what is sent is noted instead of sent."""

    def __init__(self) -> None:
        storage = MemoryStorage()
        self.catalog = Catalog.open(storage, "c")
        self.catalog.take_over("test", 0)
        topics = [AddTopic(topic=name, topic_id=name, output=f"{name}.out", output_id="O") for name in ("gone", "t")]
        adds = [AddPartition(topic="t", partition=one, bucket=0, start=0) for one in range(PARTITIONS)]
        one_more = AddPartition(topic="gone", partition=0, bucket=0, start=0)
        self.catalog.commit(lambda _: [SetBuckets(count=1), *topics, *adds, one_more], 0)
        self.stopping = threading.Event()
        manager = QuarantineManager(self.catalog, self.stopping, self._find_damage)
        self.reads_files = True
        self.outside = Outside(storage, self._send)
        self.clock = ManualClock(1_000)
        self.in_tasks: Callable[[FoldJob], Folded] = lambda job: Folded([], job)
        folds = Folds(
            in_memory=Fold(lambda job: self._run("here", job) if self.sound else Folded([], job)),
            in_tasks=Fold(self._in_tasks),
            on_spark=Fold(lambda job: self._run("tasks", job)),
        )
        sending = PublishExecutor(cast("Any", None), storage, self.outside, self.stopping.is_set, folds)
        self.changelog = Changelog(self.catalog, self.outside, sending, manager, lambda: self.clock.advance(7))
        self.fails: Exception | None = None
        self.ways: list[str] = []
        self.plans: list[PublishPlan] = []
        self.sound = True

    def grow(self) -> None:
        """One more record for every partition of t."""
        logs = [log for log in self.catalog.state.logs if log.topic == "t"]
        grown = [
            Append(topic="t", partition=log.partition, start=log.end, end=log.end + 1, run=run(log.end, log.end + 1, 1))
            for log in logs
        ]
        self.catalog.commit(lambda _: grown, 0)

    def quarantine(self, topic: str, partition: int) -> None:
        log = self.catalog.state.log(TopicPartition(topic, partition))
        self.catalog.commit(lambda _: [quarantine_of(log, "damaged", 0)], 0)

    def publish(self, now_ms: int = 0, local: int = -1) -> list[int]:
        """The partitions that are sent now, up to `local` records without Spark."""
        settings = replace(SETTINGS, publish_local_max_records=local)
        return [one.partition for one in self.changelog.publish(settings, now_ms)]

    def _run(self, way: str, job: FoldJob) -> Folded:
        self.ways.append(way)
        return Folded(
            [row for number in job.tasks or () for batch in job.work()(number, iter(())) for row in batch.to_pylist()]
        )

    def _in_tasks(self, job: FoldJob) -> Folded:
        return self.in_tasks(job)

    def _find_damage(self, storage: Storage, ranges: Iterable[OffsetRange], stopped: Callable[[], bool]) -> Any:
        assert self.reads_files
        return find_damage(storage, ranges, stopped)

    def _send(self, plan: PublishPlan) -> tuple[PublishResult, ...]:
        self.plans.append(plan)
        if self.fails:
            raise self.fails
        return tuple(
            PublishResult(
                topic=one.topic,
                partition=one.partition,
                end=one.end,
                output_offset=one.end,
                records=one.end - one.start,
                bytes=9,
                transactions=1,
            )
            for one in plan.targets
        )


@pytest.fixture
def world() -> World:
    return World()


def test_a_few_records_are_sent_without_spark(world: World) -> None:
    """Up to the limit here, beyond it by tasks; so is what lies in a file that is not what was written."""
    for local in (PARTITIONS, PARTITIONS - 1, -1):
        world.grow()
        assert len(world.publish(local=local)) == PARTITIONS
    world.grow()
    world.sound = False
    assert len(world.publish(local=PARTITIONS)) == PARTITIONS
    assert world.ways == ["here", "tasks", "tasks", "tasks"]


def test_the_ends_of_folds_that_are_foreseen_are_not_committed_again(world: World) -> None:
    """They are what step 5 would commit, and go into the commit of the batch: a publish is one commit less then."""
    world.publish()
    world.grow()
    state, commits = world.catalog.state, world.catalog.commits
    foreseen = world.changelog.foreseen(state, SETTINGS, 5)
    assert foreseen == [PlanFold(topic="t", partition=one, end=1, at_ms=5) for one in range(PARTITIONS)]
    world.catalog.commit(lambda _: foreseen, 5)
    assert len(world.publish(5)) == PARTITIONS
    assert world.catalog.commits == commits + 2


@pytest.mark.parametrize("why", ["unread positions", "a position of a closed topic", "unnamed ids", "a lag", "damage"])
def test_nothing_is_foreseen_if_something_comes_before_it(world: World, why: str) -> None:
    """Positions that are read or committed again, and looks at young or damaged records, come before the plan."""
    now_ms, settings = 100 * HOUR, SETTINGS
    if why == "unnamed ids":
        held = Position(offset=0, catalog_id=world.catalog.state.catalog_id, output_id="O")
        world.outside.overwrite(TopicPartition("t", 3), held)
    if why != "unread positions":
        world.publish(now_ms)
    if why == "a position of a closed topic":
        world.catalog.commit(lambda _: [Append(topic="gone", partition=0, start=0, end=1, run=run(0, 1, 1))], 0)
        world.publish(now_ms)
        world.catalog.commit(lambda _: [CloseTopic(topic="gone", reason=rejection_of("a bad record"))], 0)
        now_ms += SETTINGS.position_refresh_ms
    world.grow()
    if why == "damage":
        world.quarantine("t", 3)
    if why == "a lag":
        settings = replace(SETTINGS, policy=CompactionPolicy(min_compaction_lag_ms=1))
    assert world.changelog.foreseen(world.catalog.state, settings, now_ms) == ()


def test_while_something_is_damaged_no_log_starves(world: World) -> None:
    """Then no more logs than a scan reads apart are sent at once: those come first that waited longest."""
    world.quarantine("t", 3)
    sent: list[list[int]] = []
    for now_ms in (1_000_000, 0, 0, 0):  # a clock that is set back changes nothing
        world.grow()
        sent.append(world.publish(now_ms))
    assert [len(one) for one in sent] == [MAX_LOGS_BESIDE_DAMAGE] * 4
    assert set(sent[0]) | set(sent[1]) == set(range(PARTITIONS))
    assert set(sent[1]) | set(sent[2]) == set(range(PARTITIONS))


def test_a_topic_that_is_gone_slows_nobody(world: World) -> None:
    """What is set aside of a closed topic is read by nobody, so all others are sent at once."""
    world.quarantine("gone", 0)
    world.catalog.commit(lambda _: [CloseTopic(topic="gone", reason="deleted")], 0)
    world.grow()
    assert len(world.publish()) == PARTITIONS


def test_a_position_is_committed_again_also_by_a_clock_that_was_set_back(world: World) -> None:
    """Positions expire by the broker's clock: one that ours says nothing of is committed again."""
    world.grow()
    world.publish(100 * HOUR)
    assert world.publish(100 * HOUR + SETTINGS.position_refresh_ms - 1) == []
    assert len(world.publish(99 * HOUR)) == PARTITIONS
    assert world.publish(99 * HOUR) == []
    assert len(world.publish(99 * HOUR + SETTINGS.position_refresh_ms)) == PARTITIONS


@pytest.mark.parametrize("stopping", [True, False])
def test_what_a_stop_breaks_off_is_raised_at_once(world: World, *, stopping: bool) -> None:
    """Neither a job that was cancelled nor anything that fails on the way out makes publishing read its files."""
    world.reads_files = False
    if stopping:
        world.stopping.set()
    world.fails = RuntimeError("a page is damaged") if stopping else job_cancelled()
    world.grow()
    with pytest.raises(RuntimeError if stopping else JavaError, match=r"damaged|cancelled"):
        world.publish()


def test_where_a_tasks_process_ends_spark_folds_from_then_on(world: World) -> None:
    """It may have had too little memory: the same plan would end it again. Once more is tried, and no more."""
    tried: list[int] = []

    def ends(_: FoldJob) -> Folded:
        tried.append(1)
        raise worker_ended()

    world.in_tasks = ends
    for _ in range(2):
        world.grow()
        assert len(world.publish()) == PARTITIONS
    assert (len(tried), world.ways) == (1, ["tasks", "tasks"])
    assert [entry.bucket for entry in world.outside.entries] == [0]  # what the task had left open is ended, once
    world.fails = worker_ended()
    world.grow()
    with pytest.raises(JavaError, match="crashed"):
        world.publish()


def test_nothing_behind_touches_a_log_that_is_published_inside_a_folded_run(world: World) -> None:
    """A catalog was set back, and what had been published is taken in again, folded: no end is there yet."""
    world.grow()
    world.publish()
    log = world.catalog.state.log(TopicPartition("t", 0))
    again = Append(
        topic="t", partition=0, start=log.end, end=log.end + 9, run=replace(run(log.end, log.end + 9, 2), folded=True)
    )
    ahead = Publish(topic="t", partition=0, end=log.end + 4)
    world.catalog.commit(lambda _: [again, ahead], 0)
    assert world.changelog.positions.uncertain() == {log.tp}
    assert world.publish() == [0]
    assert world.changelog.positions.uncertain() == frozenset()


def test_nothing_behind_touches_a_log_with_a_fold_that_only_its_position_names(world: World) -> None:
    """A rebuild says so in the position: what is published by then is no end before that fold is sent."""
    world.grow()
    world.publish()
    log = world.catalog.state.log(TopicPartition("t", 0))
    more = Append(topic="t", partition=0, start=log.end, end=log.end + 9, run=run(log.end, log.end + 9, 2))
    world.catalog.commit(lambda _: [more], 0)
    state = world.catalog.state
    position = Position(
        offset=log.published,
        catalog_id=state.catalog_id,
        output_id=state.topics["t"].output_id,
        fold_end=log.end + 9,
    )
    world.outside.overwrite(log.tp, position)
    world.changelog.positions.forget()
    world.changelog.resolve_positions(0)
    assert world.changelog.positions.uncertain() == {log.tp}
    assert world.publish() == [0]
    assert world.changelog.positions.uncertain() == frozenset()


@pytest.mark.parametrize(("local", "way"), [(1_000_000, "local"), (-1, "spark")])
def test_each_publish_that_moves_records_is_a_line_of_the_log(local: int, way: str) -> None:
    """At debug: how it was done, how much it was, in how many partitions and transactions, and how long it took."""
    world = World()
    world.grow()
    with capture_logs() as told:
        world.publish(local=local)
        assert world.publish(SETTINGS.position_refresh_ms, local=local)
    assert [line for line in told if line["event"] == "published"] == [
        {
            "event": "published",
            "log_level": "debug",
            "implementation": way,
            "ms": 7,
            "dead_letters": 0,
            "partitions": PARTITIONS,
            "records": PARTITIONS,
            "bytes": 9 * PARTITIONS,
            "transactions": PARTITIONS,
        }
    ]


def test_logs_beside_damage_are_read_by_row_groups_of_their_own() -> None:
    """No more logs are sent at once beside a damaged one than Spark's scan reads without those of their neighbours."""
    assert MAX_LOGS_BESIDE_DAMAGE <= on_spark.MAX_RANGES_NAMED


def test_transactions_that_a_failed_publish_aborted_are_counted(world: World) -> None:
    """Its error says how many; one that is no error of keyfold's cannot."""
    world.fails = PublishInterruptedError("Interrupted.")
    world.fails.aborted = 2
    for error in (world.fails, job_cancelled()):
        world.fails = error
        world.grow()
        with pytest.raises((PublishInterruptedError, JavaError)):
            world.publish()
    assert world.changelog.counters.values()["transactions_aborted"] == 2


def test_positions_alone_are_committed_again_where_nothing_may_be_sent(world: World) -> None:
    """A paused connector keeps them alive: those that are old, and no record with them."""
    world.grow()
    world.publish(100 * HOUR)
    world.grow()
    published = {log.tp: log.published for log in world.catalog.state.logs}
    world.changelog.renew_positions(SETTINGS, 100 * HOUR + SETTINGS.position_refresh_ms - 1)
    assert len(world.plans) == 1
    world.changelog.renew_positions(SETTINGS, 100 * HOUR + SETTINGS.position_refresh_ms)
    world.changelog.renew_positions(SETTINGS, 100 * HOUR + SETTINGS.position_refresh_ms + 1)
    assert [(one.start, one.end, one.committed) for one in world.plans[1].targets] == [(1, 1, 1)] * PARTITIONS
    assert len(world.plans) == 2
    assert {log.tp: log.published for log in world.catalog.state.logs} == published
    assert len(world.publish(101 * HOUR)) == PARTITIONS


def test_the_position_of_a_log_that_is_set_aside_is_kept_alive(world: World) -> None:
    """Its files may be mended weeks later; nothing of it is sent meanwhile, and it moves nowhere."""
    world.grow()
    world.publish(100 * HOUR)
    aside = TopicPartition("t", 3)
    log = world.catalog.state.log(aside)
    world.catalog.commit(lambda _: [quarantine_of(log, "damaged", 0, publishing=True)], 0)
    world.grow()
    world.plans.clear()
    world.publish(100 * HOUR + SETTINGS.position_refresh_ms)
    assert [(one.start, one.end) for plan in world.plans for one in plan.targets if one.tp == aside] == [(1, 1)]
    assert world.catalog.state.log(aside).published == 1
    world.plans.clear()
    world.publish(100 * HOUR + SETTINGS.position_refresh_ms + 1)
    assert aside not in {one.tp for plan in world.plans for one in plan.targets}
