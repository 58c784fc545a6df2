"""Performs the steps of a history on the real engine, with nothing but Kafka and the clock replaced."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from unittest import mock

from compactor import failpoints
from compactor.catalog.catalog import Catalog
from compactor.clean.cleaner import Cleaner
from compactor.clean.rewriter import Rewriter
from compactor.engine import Engine
from compactor.errors import (
    FailpointError,
    FencedError,
    OutcomeUnknownError,
    PositionMovedError,
    PublishInterruptedError,
)
from compactor.maintenance import Maintenance
from compactor.model.actions import SetBuckets
from compactor.model.log import PartitionLog
from compactor.model.position import Position
from compactor.model.record import TopicPartition
from compactor.publish.changelog import Changelog
from compactor.publish.executors import Sending
from compactor.quarantine.quarantine import QuarantineManager
from compactor.settings import EngineSettings
from compactor.snapshot.snapshots import Snapshots
from compactor.storage.local import LocalStorage
from tests.support.engine import source_frame
from tests.support.localframe import LocalFrame
from tests.support.localspark import LocalSpark
from tests.support.memory.broker import MemoryBroker
from tests.support.memory.storage import Clock
from tests.support.oracle import steps, ways
from tests.support.oracle.source import Source
from tests.support.oracle.steps import (
    BASE_MS,
    CRASH,
    PARTITIONS,
    At,
    Failing,
    Fold,
    Ingest,
    Restart,
    Round,
    Settings,
    Snapshot,
    Tamper,
    Vacuum,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONNECTOR: Final = "c"


class Life(NamedTuple):
    """One life of the connector."""

    settings: Settings
    catalog: Catalog
    engine: Engine
    upkeep: Maintenance


class _Strict(QuarantineManager):
    """No fold may fail: what would be tried again later is raised."""

    def _count_failure(self, log: PartitionLog, error: Exception, now_ms: int) -> None:
        raise error


class World:
    """A connector, its surroundings, and what was done to them. `spark` None: what stands for it in this process.

    `settings` are those of each epoch; `tampered` the partitions whose position somebody else has touched; `times`
    all times that the clock has shown since a step began.
    """

    def __init__(self, spark: SparkSession | None, folder: Path) -> None:
        self.source = Source()
        self.clock = Clock(BASE_MS)
        self.storage = LocalStorage(str(folder / "store" / CONNECTOR))
        self.shelf = LocalStorage(str(folder / "shelf"))
        self.outside = MemoryBroker(LocalStorage(str(folder / "outside")), self.storage)
        self.settings: dict[int, Settings] = {}
        self.tampered: set[TopicPartition] = set()
        self.times = {BASE_MS}
        self._moved = False
        self._batches = 0
        self._local = spark is None
        self._spark = spark or cast("SparkSession", LocalSpark())
        self.life = self._begin(Settings())

    def perform(self, step: steps.Any) -> bool:
        """Does `step`; whether it came to its end undisturbed. What nobody could foresee is raised."""
        life = self.life
        try:
            with ways.taken(life.settings.way, local=self._local):
                return self._perform(step)
        except Exception as error:
            if not self._foreseen(error, step, life):
                raise
            if self.life is life:
                self.life = self._begin(life.settings)
            return False

    def _foreseen(self, error: Exception, step: steps.Any, life: Life) -> bool:
        if isinstance(error, FencedError):
            return self.life is not life
        if isinstance(error, PositionMovedError) and self._moved:
            return True
        if isinstance(step, At):
            return isinstance(error, FailpointError) and step.then == CRASH
        if not isinstance(step, Failing):
            return False
        return isinstance(error, PublishInterruptedError | OutcomeUnknownError) or (
            step.fault.dies and "Python worker" in str(error)
        )

    def _perform(self, step: steps.Any) -> bool:
        match step:
            case At():
                with self._armed(step):
                    self._plain(step.step)
                return False
            case Failing():
                self.outside.fault = step.fault
                try:
                    self._plain(step.step)
                finally:
                    self.outside.fault = None
                return False
            case _:
                self._plain(step)
                return True

    def _plain(self, step: steps.Plain) -> None:
        life, now_ms = self.life, self.clock.now_ms()
        match step:
            case Ingest():
                self._ingest(life, step, now_ms)
            case steps.Tick():
                life.engine.tick(now_ms)
            case steps.Advance():
                self.times.add(self.clock.advance(step.ms))
            case Restart():
                self.life = self._begin(step.settings or life.settings)
            case Tamper():
                self._tamper(step)
            case _:
                _keep(life, step, now_ms)

    def _ingest(self, life: Life, step: Ingest, now_ms: int) -> None:
        for rec in step.records:
            self.source.add(rec, now_ms)
        self.source.end_in_holes(step.tail)
        ranges = {}
        known = life.catalog.state.by_partition()
        for tp, end in self.source.ends.items():
            taken = known[tp].end if tp in known else 0
            if taken < end:
                ranges[tp] = (max(0, taken - step.again), min(end, taken + step.most))
                self._announce(tp)
        found = self.source.read(ranges, step.tasks)
        self._batches += 1
        intake = life.engine.intake.of_batch(self._batches, now_ms)
        on_spark = step.on_spark and not self._local
        frame = source_frame(self._spark, intake, *found) if on_spark else cast("DataFrame", LocalFrame(found, intake))
        life.engine.take(frame, now_ms)

    def _announce(self, tp: TopicPartition) -> None:
        """The source topic is there, with the records that it has."""
        names = [each for each in PARTITIONS if each.topic == tp.topic]
        topic = self.outside.topics.get(tp.topic) or self.outside.add_topic(tp.topic, len(names))
        topic.ends[:] = [self.source.ends[each] for each in names]

    def _tamper(self, step: Tamper) -> None:
        tp = PARTITIONS[step.place]
        self.outside.overwrite(tp, None if step.offset is None else Position(offset=step.offset))
        self.tampered.add(tp)
        self._moved = True

    def _begin(self, settings: Settings) -> Life:
        """Steps T1 to T3, and the engine on what they found."""
        now_ms = self.clock.now_ms()
        catalog = Catalog.open(self.storage, CONNECTOR)
        catalog.take_over("test", now_ms)
        self.outside.fence(range(max(settings.buckets, catalog.state.buckets)))
        self.settings[catalog.epoch] = settings
        if catalog.state.buckets != settings.buckets:
            catalog.commit(lambda _: [SetBuckets(count=settings.buckets)], now_ms)
        self.outside.most_records = settings.most
        self._moved = False
        return self._life(settings, catalog)

    def _life(self, settings: Settings, catalog: Catalog) -> Life:
        told = EngineSettings(
            connector=CONNECTOR,
            policy=settings.policy,
            fold=settings.fold,
            tolerate_rejected=True,
            publish_local_records=settings.local,
            snapshot_retention_count=2,
        )
        stopping = threading.Event()
        quarantine = _Strict(catalog, stopping)
        sending = Sending(self._spark, self.storage, self.outside, stopping.is_set)
        engine = Engine(catalog, self.outside, told, Changelog(catalog, self.outside, sending, quarantine))
        snapshots = Snapshots(self._spark, catalog, quarantine, self.outside, told, self.shelf, engine.uncertain)
        rewriter = Rewriter(self._spark, self.storage, stopping.is_set)
        cleaner = Cleaner(rewriter, catalog, quarantine, told, engine.counters, engine.uncertain)
        upkeep = Maintenance(cleaner, snapshots, catalog, quarantine, engine.counters, stopping)
        upkeep.begin()
        return Life(settings, catalog, engine, upkeep)

    @contextmanager
    def _armed(self, at: At) -> Iterator[None]:
        """The failpoint of `at` does what it says, once."""
        with mock.patch.dict(os.environ), mock.patch.object(failpoints, "_act", self._happening(at)):
            os.environ[failpoints.VARIABLE] = f"{at.point}=error"
            yield

    def _happening(self, at: At) -> Callable[[str, str], None]:
        left = at.nth

        def act(name: str, _action: str) -> None:
            nonlocal left
            left -= 1
            if left:
                return
            del os.environ[failpoints.VARIABLE]
            if at.then == CRASH:
                raise FailpointError(f"The process ends at {name}.", "")
            for step in cast("tuple[steps.Plain, ...]", at.then):
                self.perform(step)

        return act


def _keep(life: Life, step: Round | Fold | Snapshot | Vacuum, now_ms: int) -> None:
    """What comes behind publishing."""
    match step:
        case Round():
            life.upkeep.round(now_ms)
        case Fold():
            life.upkeep.clean(now_ms)
        case Snapshot():
            life.upkeep.snapshot(now_ms)
        case Vacuum():
            life.upkeep.vacuum(now_ms, 0, life.engine.running)
