"""Performs the steps of a history on the real engine, with nothing but Kafka and the clock replaced."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from unittest import mock

from msgspec import UNSET

from compactor import failpoints
from compactor.catalog.catalog import Catalog
from compactor.clean.cleaner import Cleaner
from compactor.clean.rewriter import Rewriter
from compactor.engine import Engine
from compactor.errors import (
    FailpointError,
    FencedError,
    OffsetChangeError,
    OutcomeUnknownError,
    PositionMovedError,
    PublishInterruptedError,
    RebuildError,
    TruncatedError,
)
from compactor.generation.plan import OffsetChange
from compactor.generation.tombstones import Compare
from compactor.maintenance import Maintenance
from compactor.model.actions import SetBuckets
from compactor.model.log import PartitionLog
from compactor.model.position import Position
from compactor.model.record import TopicPartition
from compactor.model.state import BY_BYTES, BY_OFFSET, BYTES, NO_FILL, OF_TOPIC, CatalogState
from compactor.publish.changelog import Changelog
from compactor.publish.executors import PublishExecutor
from compactor.quarantine.quarantine import QuarantineManager
from compactor.settings import EngineSettings
from compactor.snapshot.location import MARK
from compactor.snapshot.snapshots import Snapshots
from compactor.storage.local import LocalStorage
from connectors.runtime.offset_change import Choose, after_truncates, every_log
from tests.support.clocks import ManualClock
from tests.support.engine import gathered, source_frame
from tests.support.local_spark import LocalFrame, LocalSpark
from tests.support.memory.broker import OUTPUTS, MemoryBroker
from tests.support.memory.offset_changer import MemoryOffsetChanger
from tests.support.memory.rebuilder import MemoryRebuilder
from tests.support.oracle import filling, fold_methods, identity, steps
from tests.support.oracle.rebuilding import LostCatalog, lost_catalog
from tests.support.oracle.source import Source
from tests.support.oracle.steps import (
    BASE_MS,
    CRASH,
    PARTITIONS,
    AtFailpoint,
    FailingPublisher,
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
OF_PARTITION: Final = "partition"
NewRule = steps.ChangeOrder | steps.ChangeIdentity | steps.ChangeFill | steps.ChangeScope


def _rule(change: NewRule) -> dict[str, str]:
    """Returns the rule that a step changes, by its name."""
    match change:
        case steps.ChangeOrder():
            return {"order": change.order}
        case steps.ChangeIdentity():
            return {"key_identity": identity.NAME if change.any_case else BY_BYTES}
        case steps.ChangeFill():
            return {"fill": filling.NAME if change.fills else NO_FILL}
        case steps.ChangeScope():
            return {"scope": _scope(of_topics=change.of_topics)}


def _scope(*, of_topics: bool) -> str:
    return OF_TOPIC if of_topics else OF_PARTITION


class Components(NamedTuple):
    """What one run of the connector consists of, from a take-over to the next."""

    settings: Settings
    catalog: Catalog
    engine: Engine
    maintenance: Maintenance


class _Strict(QuarantineManager):
    """Raises the errors of folds instead of trying again later: none may fail here."""

    def _count_failure(self, log: PartitionLog, error: Exception, now_ms: int) -> None:
        raise error


class Simulation:
    """A connector with its source, storage and broker. `spark` None: LocalSpark.

    `settings` are those of each epoch; `tampered` the partitions whose position a Tamper has changed; `times`
    all times that the clock has shown since a step began.
    """

    def __init__(
        self,
        spark: SparkSession | None,
        folder: Path,
        *,
        any_case: bool = False,
        order: str = BY_OFFSET,
        fills: bool = False,
        of_topics: bool = False,
        keeps_all: bool = False,
    ) -> None:
        self.source = Source(
            identity.compared if any_case else None, order, fills=fills, of_topics=of_topics, keeps_all=keeps_all
        )
        self.clock = ManualClock(BASE_MS)
        self.storage = LocalStorage(str(folder / "store" / CONNECTOR))
        self.shelf = LocalStorage(str(folder / "shelf"))
        self.broker = MemoryBroker(LocalStorage(str(folder / "outside")), self.storage)
        self.compares_by(identity.compared)
        self.settings: dict[int, Settings] = {}
        self.tampered: set[TopicPartition] = set()
        self.times = {BASE_MS}
        # What was there of the last catalog that was lost, and the numbers of its output partitions (scope=topic).
        self.lost: LostCatalog | None = None
        self._outputs: dict[str, int] = {}
        # Whether some run has left out records that change nothing.
        self.has_skipped = False
        self._moved = False
        self._grows = of_topics
        self._batches = 0
        self._local = spark is None
        self._spark = spark or cast("SparkSession", LocalSpark())
        self.components = self._begin(Settings(keeps_all=keeps_all, retention_ms=-1 if keeps_all else None))

    def compares_by(self, compare: Compare) -> None:
        """Has keys compared by `compare` for as long as the catalog says that they have an identity."""
        self.broker.compare = self.source.with_identity = compare
        self.source.compare = None if self.source.compare is None else compare

    def perform(self, step: steps.AnyStep) -> bool:
        """Performs `step`; returns whether it completed. Raises errors that the step does not explain."""
        components = self.components
        try:
            with fold_methods.forced(components.settings.fold_method, local=self._local):
                return self._perform(step)
        except Exception as error:
            if not self._foreseen(error, step, components):
                raise
            if self.components is components:
                if isinstance(step, AtFailpoint) and isinstance(step.step, steps.Rebuild):
                    self._rebuild()
                else:
                    self.components = self._begin(components.settings)
            return False

    def _foreseen(self, error: Exception, step: steps.AnyStep, components: Components) -> bool:
        if isinstance(error, FencedError):
            return self.components is not components
        if isinstance(error, OffsetChangeError):
            return "is published as a whole only up to" in str(error) or (
                self.source.of_topics and "begin again together" in str(error)
            )
        if isinstance(error, PositionMovedError) and self._moved:
            return True
        if isinstance(step, AtFailpoint):
            return isinstance(error, FailpointError) and step.then == CRASH
        if not isinstance(step, FailingPublisher):
            return False
        return isinstance(error, PublishInterruptedError | OutcomeUnknownError) or (
            step.fault.dies and "Python worker" in str(error)
        )

    def _perform(self, step: steps.AnyStep) -> bool:
        match step:
            case AtFailpoint():
                with self._armed(step):
                    self._plain(step.step)
                return False
            case FailingPublisher():
                self.broker.fault = step.fault
                try:
                    self._plain(step.step)
                finally:
                    self.broker.fault = None
                return False
            case _:
                self._plain(step)
                return True

    def _plain(self, step: steps.PlainStep) -> None:
        components, now_ms = self.components, self.clock.now_ms()
        match step:
            case Ingest():
                self._ingest(components, step, now_ms)
            case steps.Tick():
                components.engine.tick(now_ms)
            case steps.Advance():
                self.times.add(self.clock.advance(step.ms))
            case Tamper():
                self._tamper(step)
            case Round() | Fold() | Snapshot() | Vacuum():
                _keep(components, step, now_ms)
            case _:
                self._change_hands(step)

    def _change_hands(self, step: steps.PlainStep) -> None:
        """Performs a step by which the connector is taken over; those that a history begins with do nothing."""
        settings = self.components.settings
        match step:
            case Restart():
                self.components = self._begin(step.settings or settings)
            case steps.ChangeOffset() | steps.ChangeOrder() | steps.ChangeIdentity() | steps.ChangeFill():
                self.components = self._begin(settings, step)
            case steps.ChangeScope():
                self.components = self._begin(settings, step)
            case steps.Rebuild():
                self._lose_and_rebuild()

    def _ingest(self, components: Components, step: Ingest, now_ms: int) -> None:
        for rec in step.records:
            self.source.add(rec, now_ms)
        self.source.end_in_holes(step.tail)
        truncates = self._met(components, step, now_ms)
        if truncates is None:
            return
        own = self.components = self._begin(components.settings, after_truncates(truncates.offsets, truncates.fences))
        try:
            self._read(own, step, now_ms)
        except Exception:
            if self.components is own:
                self.components = self._begin(own.settings)
            raise

    def _met(self, components: Components, step: Ingest, now_ms: int) -> TruncatedError | None:
        """Ingests a micro-batch; returns the error by which the next run applies truncates that it has."""
        try:
            self._read(components, step, now_ms)
        except TruncatedError as error:
            return error
        return None

    def _read(self, components: Components, step: Ingest, now_ms: int) -> None:
        ranges = {}
        known = components.catalog.state.by_partition()
        for tp, end in self.source.ends.items():
            taken = known[tp].end if tp in known else 0
            if taken < end:
                ranges[tp] = (max(0, taken - step.again), min(end, taken + step.most))
                self._announce(tp)
        is_compared = components.catalog.state.key_identity is not None
        found = self.source.read(ranges, step.tasks, self.broker.compare if is_compared else None)
        self._batches += 1
        intake = components.engine.intake.of_batch(self._batches, now_ms)
        on_spark = step.on_spark and not self._local
        frame = source_frame(self._spark, intake, *found) if on_spark else cast("DataFrame", LocalFrame(found, intake))
        components.engine.take(gathered(frame), now_ms)

    def _announce(self, tp: TopicPartition) -> None:
        """Gives the broker the source topic with its ends."""
        names = [each for each in PARTITIONS if each.topic == tp.topic]
        if self._grows:  # its last partition comes once that has a record
            names = [each for each in names if each.partition < OUTPUTS or self.source.ends[each]]
        topic = self.broker.topics.get(tp.topic) or self.broker.add_topic(
            tp.topic, len(names), published=not self.source.keeps_all
        )
        topic.ends[:] = [self.source.ends[each] for each in names]

    def _lose_and_rebuild(self) -> None:
        """Loses the storage, and has it made again by the rules that the positions name."""
        state = self.components.catalog.state
        lost = None if self.source.keeps_all else lost_catalog(state, self.broker.output)
        if lost is None:
            return
        self.lost = lost
        self._outputs = {name: topic.outputs for name, topic in state.topics.items() if topic.outputs is not UNSET}
        order, scope, fill = lost.winners
        self.source.named_order, self.source.of_topics = order, scope == OF_TOPIC
        self.source.fills = fill != NO_FILL
        self.source.compare = None if lost.identity is None else self.broker.compare
        self.source.fences.clear()
        self.storage.delete_folder("")
        self.shelf.delete(f"{CONNECTOR}/{MARK}")  # as the error of the next snapshot would say
        self._rebuild()

    def _rebuild(self) -> None:
        try:
            self.components = self._begin(self.components.settings, steps.Rebuild())
        except RebuildError as error:
            if "nothing is lost" not in error.message:  # it was made again before the process ended
                raise
            self.components = self._begin(self.components.settings)

    def _tamper(self, step: Tamper) -> None:
        tp = PARTITIONS[step.place]
        self.broker.overwrite(tp, None if step.offset is None else Position(offset=step.offset))
        self.tampered.add(tp)
        self._moved = True

    def _begin(
        self, settings: Settings, change: steps.ChangeOffset | NewRule | steps.Rebuild | Choose | None = None
    ) -> Components:
        """Takes the connector over (steps T1 to T3, with G1 to G4 where there is a `change`), makes its components."""
        now_ms = self.clock.now_ms()
        catalog = Catalog.open(self.storage, CONNECTOR)
        self.settings[catalog.state.epoch + 1] = settings
        self.has_skipped |= settings.unchanged == "skip"
        named = BYTES if self.source.compare is None else identity.NAME
        fill = filling.NAME if self.source.fills else UNSET
        scope = _scope(of_topics=self.source.of_topics)
        if (self.source.named_order, named, scope, fill) != (BY_OFFSET, BYTES, OF_PARTITION, UNSET):
            state = catalog.state
            asked = self.source.named_order, named, scope, fill
            catalog.require(*((state.order, state.identity, state.scope, state.fill) if catalog.version else asked))
        catalog.take_over("test", now_ms)
        self.broker.fence(range(max(settings.buckets, catalog.state.buckets)))
        if catalog.state.buckets != settings.buckets:
            catalog.commit(lambda _: [SetBuckets(count=settings.buckets)], now_ms)
        if isinstance(change, steps.Rebuild):
            MemoryRebuilder(catalog, self.broker, self.source.see_end, self._outputs).rebuild(now_ms, accepts_loss=True)
        elif isinstance(change, steps.ChangeOffset):
            choose = self._choice(change, catalog.state)
            MemoryOffsetChanger(catalog, self.broker, self.source).change(choose, now_ms)
        elif callable(change):
            MemoryOffsetChanger(catalog, self.broker, self.source).change(change, now_ms)
        elif change is not None:
            changer = MemoryOffsetChanger(catalog, self.broker, self.source, **_rule(change))
            changer.change(every_log(accepts_loss=True), now_ms)
        self.broker.most_records = settings.most
        self._moved = False
        components = self._life(settings, catalog)
        components.engine.resolve_positions(now_ms)
        return components

    def _choice(self, change: steps.ChangeOffset, state: CatalogState) -> Choose:
        tp = PARTITIONS[change.place]
        if state.is_of_topics:
            return self._choice_of_topic(change)
        offset = None if change.offset is None else min(change.offset, self.source.ends[tp])
        return lambda state: OffsetChange(
            offsets={tp: offset} if tp in state.by_partition() else {},
            anew=offset is None or change.anew,
            accepts_loss=True,
        )

    def _choice_of_topic(self, change: steps.ChangeOffset) -> Choose:
        """Has all partitions of the topic begin again, or one go on at an offset that lies forward."""
        tp = PARTITIONS[change.place]
        forward = None if change.offset is None or change.anew else min(change.offset, self.source.ends[tp])

        def choose(state: CatalogState) -> OffsetChange:
            logs = state.logs_of(tp.topic)
            if forward is not None and any(log.tp == tp and log.published < forward for log in logs):
                return OffsetChange(offsets={tp: forward}, anew=False, accepts_loss=True)
            offset = change.offset if change.anew else None
            offsets = {log.tp: None if offset is None else min(offset, self.source.ends[log.tp]) for log in logs}
            return OffsetChange(offsets=offsets, anew=True, accepts_loss=True)

        return choose

    def _life(self, settings: Settings, catalog: Catalog) -> Components:
        engine_settings = EngineSettings(
            connector=CONNECTOR,
            policy=settings.policy,
            fold=settings.fold,
            publish_unchanged=settings.unchanged,
            tolerate_rejected=True,
            applies_truncates=True,
            publish_local_max_records=settings.local,
            snapshot_retention_count=2,
            snapshot_mode="append" if settings.keeps_all else "latest",
        )
        stopping = threading.Event()
        quarantine = _Strict(catalog, stopping)
        sending = PublishExecutor(self._spark, self.storage, self.broker, stopping.is_set)
        changelog, fill = Changelog(catalog, self.broker, sending, quarantine), filling.FillOfBars()
        engine = Engine(catalog, self.broker, engine_settings, changelog, None if catalog.state.fill is UNSET else fill)
        snapshots = Snapshots(
            self._spark, catalog, quarantine, self.broker, engine_settings, self.shelf, engine.positions.uncertain
        )
        rewriter = Rewriter(self._spark, self.storage, stopping.is_set, local_records=settings.local)
        cleaner = Cleaner(rewriter, catalog, quarantine, engine_settings, engine.counters, engine.positions.uncertain)
        maintenance = Maintenance(cleaner, snapshots, catalog, quarantine, engine.counters, stopping)
        snapshots.begin()
        return Components(settings, catalog, engine, maintenance)

    @contextmanager
    def _armed(self, at: AtFailpoint) -> Iterator[None]:
        """Sets the failpoint of `at`, once."""
        with mock.patch.dict(os.environ), mock.patch.object(failpoints, "act", self._happening(at)):
            os.environ[failpoints.VARIABLE] = f"{at.point}=error"
            yield

    def _happening(self, at: AtFailpoint) -> Callable[[str, str], None]:
        left = at.nth

        def act(name: str, _action: str) -> None:
            nonlocal left
            left -= 1
            if left:
                return
            del os.environ[failpoints.VARIABLE]
            if at.then == CRASH:
                raise FailpointError(f"The process ends at {name}.", "")
            for step in cast("tuple[steps.PlainStep, ...]", at.then):
                self.perform(step)

        return act


def _keep(components: Components, step: Round | Fold | Snapshot | Vacuum, now_ms: int) -> None:
    """Performs a step of the maintenance thread."""
    match step:
        case Round():
            components.maintenance.cleaner.round(now_ms)
        case Fold():
            components.maintenance.cleaner.clean(now_ms)
        case Snapshot():
            components.maintenance.snapshot(now_ms)
        case Vacuum():
            components.maintenance.vacuum(now_ms, 0, components.engine.running)
