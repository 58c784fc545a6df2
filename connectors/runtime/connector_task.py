"""One connector in one worker: take-over, streaming query, the clock's ticks, and the end.

The way of a record: source/ → stream.py → compactor.engine (ingest, fold) → sinks/changelog.py →
background.py → compactor.maintenance (clean, snapshot).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog
from msgspec.structs import replace

from compactor.catalog import owner
from compactor.catalog.catalog import Catalog
from compactor.clean.cleaner import Cleaner
from compactor.clean.rewriter import Rewriter
from compactor.engine import Engine
from compactor.errors import CatalogError, FencedError, PublishInterruptedError, StorageError
from compactor.failpoints import hit
from compactor.maintenance import Maintenance
from compactor.publish.changelog import Changelog
from compactor.publish.executors import Sending
from compactor.quarantine.quarantine import QuarantineManager
from compactor.snapshot.snapshots import Snapshots
from compactor.storage.base import Storage
from compactor.storage.location import open_storage
from connectors.clock import Clock
from connectors.config.connector import ConnectorConfig
from connectors.config.engine import engine_settings
from connectors.config.stores import connector_storage
from connectors.config.topics import matches
from connectors.config.worker import WorkerConfig
from connectors.kafka.client_settings import ClientSettings
from connectors.progress.observer import Observer
from connectors.runtime.breakable import CancellableJob
from connectors.runtime.cancellation import StopToken
from connectors.runtime.components import TaskComponents
from connectors.runtime.maintenance_thread import VACUUM_GRACE_MS, MaintenanceSchedule, MaintenanceThread
from connectors.runtime.request_handler import RequestHandler
from connectors.runtime.shutdown import Shutdown
from connectors.runtime.takeover import Owned, take_over
from connectors.source import aside, stream
from connectors.source.topic_fault import setting_aside
from connectors.spark import session as sparks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from compactor.catalog.requests import Request

_log = structlog.get_logger()

POLL_SECONDS: Final = 0.1
TICK_MS: Final = 500
FENCE_CHECK_MS: Final = 5_000
IDLE_S: Final = 10.0
TOPICS_CHECK_MS: Final = 30_000


class ConnectorTask:
    """One life of one connector: what is needed to run it, from take-over to stop.

    `catalog` is the one that it works on, None until it has taken over. `worked`: it has taken a micro-batch in and
    published what was due with it, or had nothing to do for IDLE_S.
    """

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
        self.catalog: Catalog | None = None
        self.worked = False
        self._spark = spark
        self._connector = connector
        self._clock = clock
        self._observer = observer
        self._report = report
        self._storage = connector_storage(worker, connector.name)
        self._clients = ClientSettings.of(worker, connector)
        self._own_lock = lock is None
        self._lock = lock or owner.OwnerLock(self._storage)
        self._rhythm = MaintenanceSchedule(
            initial_delay_ms=worker.log_cleaner_initial_delay_ms, backoff_ms=worker.log_cleaner_backoff_ms
        )
        self._locked = False
        self._due: dict[str, float] = {}
        self._idle_from = clock.monotonic()
        self._failure: Exception | None = None
        self._total: int | None = None

    def run(self, stop: StopToken, *, once: bool, known: str | None = None) -> None:
        """Runs until `stop` is set or, with `once`, until all that is stable now is done.

        `known` is the catalog that an earlier life in this process worked on: it must be there still. Raises
        KeyfoldError: FencedError when a newer owner took over, ConnectorError where an operator must decide.
        """
        if stop.is_set():  # who never began has nobody to fence
            return
        with ExitStack() as stack:
            life = self.begin(stack, known)
            with _fenced_first(life.owned.catalog, stop), setting_aside(life.owned, self._clock.now_ms):
                self._live(life, stack, stop, once=once)

    def _live(self, life: TaskComponents, stack: ExitStack, stop: StopToken, *, once: bool) -> None:
        """From the positions on; `stack` ends what this begins."""
        life.owned.gateway.retry_until(stop.is_set)
        self._observer.stage(self._connector.name, "reading positions")
        life.engine.resolve_positions(self._clock.now_ms())
        background = self._background(life, once=once)
        ending = Shutdown(life, background, self._connector, self._clients, self._clock, stop)
        stack.callback(background.stop, lambda: stop.patient)
        stack.callback(ending.abort_transactions)
        background.start()
        self._expect(life.owned, once=once)
        query = self._query(life.engine, life.owned.catalog, once=once)
        stack.callback(query.stop)
        ticks = CancellableJob(self._spark, f"tick-{self._connector.name}", partial(self._ticks, life))
        stack.callback(ticks.break_off)
        stack.callback(ending.hurry)
        ticks.start()
        self._watch(query, life, (background, ticks), stop)
        if stop.is_set():
            ending.let_finish()
        elif once:
            ticks.end()
            background.stop(lambda: stop.patient or not stop.is_set())
            self._finish(life, ending)

    def perform(self, request: Request) -> dict[str, Any]:
        """Takes over, publishes what is due and carries `request` out, without reading anything new."""
        with ExitStack() as stack:
            life = self.begin(stack)
            stack.callback(life.upkeep.interrupt)  # whoever breaks the command off does not wait for brokers
            life.engine.tick(self._clock.now_ms())
            return life.answers.carry_out(request)

    def begin(self, stack: ExitStack, known: str | None = None) -> TaskComponents:
        """Steps T1 to T3 on the catalog `known`, and the engine on what they found."""
        self._observer.stage(self._connector.name, "taking over")
        if self._own_lock:  # else whoever gave it holds it for longer than this life
            stack.callback(self._lock.release)
        self._claim(0)  # first, so that a command finds a worker here, not one to take over from
        self._warn_of_another()
        now_ms = self._clock.now_ms()
        owned = take_over(self._storage, self._connector, self._clients, self._tasks_max(), now_ms, known)
        self.catalog = owned.catalog
        self._claim(owned.catalog.epoch)
        life = self._life(owned)
        stack.callback(owned.gateway.close)
        stack.callback(life.engine.close)
        return life

    def _life(self, owned: Owned) -> TaskComponents:
        settings, (catalog, gateway) = engine_settings(self._connector), owned
        now_ms, shelf, stopping = self._clock.now_ms, _shelf(self._connector), threading.Event()
        quarantine = QuarantineManager(catalog, stopping)
        sending = Sending(self._spark, self._storage, gateway, stopping.is_set)
        engine = Engine(catalog, gateway, settings, Changelog(catalog, gateway, sending, quarantine, now_ms))
        snapshots = Snapshots(self._spark, catalog, quarantine, gateway, settings, shelf, engine.uncertain)
        rewriter = Rewriter(self._spark, self._storage, stopping.is_set)
        cleaner = Cleaner(rewriter, catalog, quarantine, settings, engine.counters, engine.uncertain, now_ms)
        upkeep = Maintenance(catalog, cleaner, snapshots, engine.counters, quarantine, stopping)
        upkeep.settle()
        return TaskComponents(owned, engine, upkeep, RequestHandler(self._storage, catalog, upkeep, self._clock))

    def _background(self, life: TaskComponents, *, once: bool) -> MaintenanceThread:
        """The thread behind publishing; `--once` takes its one snapshot at its end."""
        name, clock = self._connector.name, self._clock
        rhythm = replace(self._rhythm, snapshots=not once)
        return MaintenanceThread(self._spark, name, life.upkeep, life.answers, life.engine.running, clock, rhythm)

    def _query(self, engine: Engine, catalog: Catalog, *, once: bool) -> StreamingQuery:
        """Step T4: a checkpoint of this epoch, begun where the catalog ends.

        One that is there already is of another history, which a catalog that was restored does not know.
        """
        self._storage.delete_folder(f"checkpoint/{catalog.epoch}")
        hit("takeover.query")
        options = stream.source_options(self._connector, self._clients, catalog.state, self._tasks_max(), engine.intake)
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
            state = owned.catalog.state
            logs = {log.tp: log for log in state.logs if state.topics[log.topic].closed is None}
            ends = owned.gateway.ends(logs)
            self._total = sum(max(0, end - logs[tp].end) for tp, end in ends.items())

    def _take(self, engine: Engine, frame: DataFrame) -> None:
        """One micro-batch, on a thread of Spark's; its error is kept, as Spark passes only its text on."""
        with structlog.contextvars.bound_contextvars(connector=self._connector.name):
            try:
                engine.take(frame, self._clock.now_ms())
            except Exception as error:  # noqa: BLE001  # whatever it was, `_watch` raises it
                self._failure = error
                # A short text: Spark looks through it with a pattern, which a whole trace of Java's takes too deep.
                message = f"Connector {self._connector.name}: the micro-batch was not taken: {type(error).__name__}."
                raise PublishInterruptedError(message, "The connector says why.") from None
            self.worked = True
            self._show(engine)

    def _show(self, engine: Engine) -> None:
        counters = dict(engine.counters.values())
        name = self._connector.name
        done = counters["offsets_read"] if self._total is not None else counters["records_read"]
        self._observer.progress(name, "reading", done, self._total, "offsets" if self._total else "records")
        self._observer.counts(name, counters)
        self._report(counters)

    def _watch(
        self,
        query: StreamingQuery,
        life: TaskComponents,
        parts: tuple[MaintenanceThread | CancellableJob, ...],
        stop: StopToken,
    ) -> None:
        """Looks after a running connector until its query ends or it is to stop; it waits for no step of it.

        Raises what any part of it fails with. What stopping interrupts is no failure: the next life goes on from the
        catalog.
        """
        epoch = life.owned.catalog.epoch
        self._idle_from = self._clock.monotonic()
        while query.isActive and not self._clock.wait(POLL_SECONDS, stop):
            self._raise_failure(parts)
            if not self._every("tick", TICK_MS):
                continue
            if self._every("fence", FENCE_CHECK_MS):
                self._claim(epoch)
                life.owned.catalog.refresh()  # an idle owner commits nothing: it has to look whether it still is it
            elif not self._locked:
                self._claim(epoch)
            self._note_idle(life.engine)
            self._show(life.engine)
        if not stop.is_set():
            self._raise_failure(parts)
            if error := query.exception():
                raise error

    def _note_idle(self, engine: Engine) -> None:
        now = self._clock.monotonic()
        if not engine.is_idle():
            self._idle_from = now
        self.worked |= now - self._idle_from >= IDLE_S

    def _raise_failure(self, parts: tuple[MaintenanceThread | CancellableJob, ...]) -> None:
        for failure in (self._failure, *(part.failure for part in parts)):
            if failure is not None:
                raise failure

    def _claim(self, epoch: int) -> None:
        """Takes the lock, which a command or a frozen owner may have held until now, and says who we are.

        It is a courtesy: a store that refuses it shows that where it matters.
        """
        try:
            self._locked = self._lock.claim(owner.here(epoch))
        except StorageError as error:
            _log.warning("owner.lock could not be taken", error=str(error))

    def _warn_of_another(self) -> None:
        other = None if self._locked else owner.living(self._storage)
        if other is not None:
            _log.warning("taking over from a worker that lives, which ends with exit code 5", owner=str(other))

    def _ticks(self, life: TaskComponents, ending: threading.Event) -> None:
        """The clock's side of a running connector: what is due with time, between micro-batches and beside them."""
        (_, gateway), engine = life.owned, life.engine
        topics_due = False
        while not self._clock.wait(POLL_SECONDS, ending):
            if self._every("publish", TICK_MS):
                engine.tick(self._clock.now_ms())
            topics_due = topics_due or self._every("topics", TOPICS_CHECK_MS)
            if topics_due:
                topics_due = not engine.commit(gateway.discover, self._clock.now_ms())

    def _finish(self, life: TaskComponents, ending: Shutdown) -> None:
        """The end of `--once`: what is still due is published, everything published is folded and snapshotted.

        A stop ends it after the publish, and wherever it is in a fold.
        """
        name, now = self._connector.name, self._clock.now_ms
        self._observer.stage(name, "publishing, folding")
        steps: tuple[tuple[str, Callable[[], object]], ...] = (
            ("look at topics", lambda: life.engine.commit(life.owned.gateway.discover, now())),
            ("publish", lambda: life.engine.finish(now())),
            ("fold", lambda: life.upkeep.round(now())),
            ("snapshot", lambda: life.upkeep.snapshot(now())),
            ("vacuum", lambda: life.upkeep.vacuum(now(), VACUUM_GRACE_MS, life.engine.running)),
        )
        for what, step in steps:
            if not ending.carry_out(self._breakable(what, step), what):
                return
        self._show(life.engine)
        life.upkeep.check_whole()
        aside.check(name, life.owned.catalog.state, partial(matches, self._connector))

    def _breakable(self, what: str, step: Callable[[], object]) -> CancellableJob:
        return CancellableJob(self._spark, f"{what}-{self._connector.name}", lambda _: step())

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


@contextmanager
def _fenced_first(catalog: Catalog, stop: StopToken) -> Iterator[None]:
    """Whatever fails inside, that a newer owner is there counts first: it may well be why, and it must not be fenced.

    Its vacuum takes our checkpoint, for one. A life that ended for another reason is begun again, and takes over.
    """
    try:
        yield
    except FencedError:
        raise
    except Exception:
        if not stop.is_set():
            with suppress(StorageError, CatalogError):
                catalog.refresh()
        raise


def _shelf(connector: ConnectorConfig) -> Storage | None:
    """Where the connector's snapshots are kept."""
    if connector.snapshot_path is None:
        return None
    return open_storage(str(connector.snapshot_path), shared=True)
