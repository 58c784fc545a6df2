"""One connector in one worker: take-over, streaming query, the clock's ticks, and the end.

The way of a record: source/ → stream.py → compactor.microbatch (ingest, fold) → sinks/changelog.py →
background.py → compactor.upkeep (clean, snapshot).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog

from compactor import owner
from compactor.catalog import Catalog
from compactor.cleaner import Cleaner
from compactor.failpoints import hit
from compactor.isolation import Isolation
from compactor.microbatch import Engine
from compactor.snapshots import Snapshots
from compactor.storage import Storage, open_storage
from compactor.upkeep import Upkeep
from connectors import spark as sparks
from connectors import stream
from connectors.answers import Answers
from connectors.background import VACUUM_GRACE_MS, Background, Rhythm
from connectors.clock import Clock
from connectors.config.connector import ConnectorConfig
from connectors.config.worker import WorkerConfig
from connectors.engine_settings import engine_settings
from connectors.kafka.settings import ClientSettings
from connectors.progress import Observer
from connectors.stopping import Stop
from connectors.stores import connector_storage
from connectors.takeover import Owned, take_over

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from compactor.requests import Request

_log = structlog.get_logger()

POLL_SECONDS: Final = 0.1
TICK_MS: Final = 500
FENCE_CHECK_MS: Final = 5_000
TOPICS_CHECK_MS: Final = 30_000


class Life(NamedTuple):
    """What one life of a connector works with, once it has taken over."""

    owned: Owned
    engine: Engine
    upkeep: Upkeep
    answers: Answers


class Pipeline:
    """One life of one connector: what is needed to run it, from take-over to stop."""

    def __init__(
        self,
        spark: SparkSession,
        worker: WorkerConfig,
        connector: ConnectorConfig,
        clock: Clock,
        observer: Observer,
        report: Callable[[dict[str, int]], None],
        lock: owner.OwnerLock | None = None,
    ) -> None:
        self._spark = spark
        self._connector = connector
        self._clock = clock
        self._observer = observer
        self._report = report
        self._storage = connector_storage(worker, connector.name)
        self._clients = ClientSettings.of(worker, connector)
        self._lock = lock or owner.OwnerLock(self._storage)
        self._rhythm = Rhythm(
            initial_delay_ms=worker.log_cleaner_initial_delay_ms, backoff_ms=worker.log_cleaner_backoff_ms
        )
        self._due: dict[str, float] = {}
        self._failure: Exception | None = None
        self._total: int | None = None

    def run(self, stop: Stop, *, once: bool) -> None:
        """Runs until `stop` is set or, with `once`, until all that is stable now is done.

        Raises KeyfoldError: FencedError when a newer owner took over, ConnectorError where an operator must decide.
        """
        with ExitStack() as stack:
            life = self.begin(stack)
            background = self._background(life)
            stack.callback(lambda: background.stop(lambda: stop.patient))
            background.start()
            self._expect(life.owned, once=once)
            query = self._query(life.engine, life.owned.catalog, once=once)
            stack.callback(query.stop)
            self._watch(query, life, background, stop)
            if once and not stop.is_set():
                background.stop(lambda: stop.patient or not stop.is_set())
            if once and not stop.is_set():
                self._finish(life)

    def perform(self, request: Request) -> dict[str, Any]:
        """Takes over, publishes what is due and carries `request` out, without reading anything new."""
        with ExitStack() as stack:
            life = self.begin(stack)
            life.engine.tick(self._clock.now_ms())
            return life.answers.carry_out(request)

    def begin(self, stack: ExitStack) -> Life:
        """Steps T1 to T3, and the engine on what they found."""
        self._observer.stage(self._connector.name, "taking over")
        stack.callback(self._lock.release)
        self._lock.claim(owner.here())  # first, so that a command finds a worker here, not one to take over from
        owned = take_over(self._storage, self._connector, self._clients, self._tasks_max(), self._clock.now_ms())
        self._lock.claim(owner.here(owned.catalog.epoch))
        life = self._life(owned)
        stack.callback(life.engine.close)
        return life

    def _life(self, owned: Owned) -> Life:
        settings, (catalog, gateway) = engine_settings(self._connector), owned
        isolation, shelf = Isolation(self._storage, catalog), _shelf(self._connector)
        engine = Engine(self._spark, self._storage, catalog, gateway, settings, isolation)
        snapshots = Snapshots(self._spark, isolation, gateway, settings, shelf, engine.uncertain)
        cleaner = Cleaner(self._spark, isolation, settings, engine.counters, engine.uncertain)
        upkeep = Upkeep(cleaner, snapshots, engine.counters, isolation)
        upkeep.settle()
        return Life(owned, engine, upkeep, Answers(self._storage, catalog, upkeep, self._clock))

    def _background(self, life: Life) -> Background:
        name, clock = self._connector.name, self._clock
        return Background(self._spark, name, life.upkeep, life.answers, life.engine.running, clock, self._rhythm)

    def _query(self, engine: Engine, catalog: Catalog, *, once: bool) -> StreamingQuery:
        """Step T4: a checkpoint of this epoch, begun where the catalog ends."""
        hit("takeover.query")
        options = stream.source_options(self._connector, self._clients, catalog.state, self._tasks_max())
        self._observer.stage(self._connector.name, "reading")
        return stream.start(
            self._spark,
            options,
            self._storage.url(f"checkpoint/{catalog.epoch}"),
            lambda frame: self._take(engine, frame),
            None if once else self._connector.trigger_interval_ms,
        )

    def _expect(self, owned: Owned, *, once: bool) -> None:
        """How many offsets `--once` has before it, for whoever watches; a running connector has no end."""
        if once:
            logs = owned.catalog.state.by_partition()
            ends = owned.gateway.ends(logs)
            self._total = sum(max(0, end - logs[tp].end) for tp, end in ends.items())

    def _take(self, engine: Engine, frame: DataFrame) -> None:
        """One micro-batch, on a thread of Spark's; its error is kept, as Spark passes only its text on."""
        with structlog.contextvars.bound_contextvars(connector=self._connector.name):
            try:
                engine.take(frame, self._clock.now_ms())
            except Exception as error:
                self._failure = error
                raise
            self._show(engine)

    def _show(self, engine: Engine) -> None:
        counters = dict(engine.counters.values())
        name = self._connector.name
        done = counters["offsets_read"] if self._total is not None else counters["records_read"]
        self._observer.progress(name, "reading", done, self._total, "offsets" if self._total else "records")
        self._observer.counts(name, counters)
        self._report(counters)

    def _watch(self, query: StreamingQuery, life: Life, background: Background, stop: threading.Event) -> None:
        """The clock's side of a running connector, until its query ends."""
        (catalog, gateway), engine = life.owned, life.engine
        while query.isActive and self._failure is None and not self._clock.wait(POLL_SECONDS, stop):
            if background.failure is not None:
                raise background.failure
            now_ms = self._clock.now_ms()
            if not self._every("tick", TICK_MS):
                continue
            if self._every("fence", FENCE_CHECK_MS):
                self._lock.claim(owner.here(catalog.epoch))  # one who was frozen may have held it until now
                catalog.refresh()  # an idle owner commits nothing, so it has to look whether it still is the owner
            engine.tick(now_ms)
            if self._every("topics", TOPICS_CHECK_MS):
                engine.commit(gateway.discover, now_ms)
            self._show(engine)
        failure = self._failure  # what stopping interrupts is no failure: the next life goes on from the catalog
        query.stop()
        if failure is None and not stop.is_set():
            failure = query.exception()
        if failure is not None:
            raise failure

    def _finish(self, life: Life) -> None:
        """The end of `--once`: what is still due is published, everything published is folded and snapshotted."""
        name, clock = self._connector.name, self._clock
        self._observer.stage(name, "publishing, folding")
        life.engine.finish(clock.now_ms())
        life.upkeep.round(clock.now_ms())
        life.upkeep.snapshot(clock.now_ms())
        life.upkeep.vacuum(clock.now_ms(), VACUUM_GRACE_MS, life.engine.running)
        self._show(life.engine)
        life.upkeep.check_whole()

    def _tasks_max(self) -> int:
        return self._connector.tasks_max or sparks.cores(self._spark)

    def _every(self, what: str, period_ms: int) -> bool:
        """True once in each period, the first time after one has passed; a clock set back changes nothing."""
        now = self._clock.monotonic()
        due = self._due.setdefault(what, now + period_ms / 1000)
        if now < due:
            return False
        self._due[what] = now + period_ms / 1000
        return True


def _shelf(connector: ConnectorConfig) -> Storage | None:
    """Where the connector's snapshots are kept."""
    if connector.snapshot_path is None:
        return None
    return open_storage(str(connector.snapshot_path))
