"""Runs one connector once: take-over, reading through the worker's query, maintenance, its end.

The way of a record: source/ → shared_query.py → reading_thread.py → compactor.engine (ingest, publish) →
sinks/publisher.py → maintenance_thread.py → compactor.maintenance (clean, snapshot).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog
from msgspec.structs import replace

from compactor.catalog.catalog import Catalog
from compactor.catalog.owner_lock import OwnerLock
from compactor.catalog.owner_starts import Start
from compactor.engine import Engine
from compactor.errors import DEFECT, CatalogError, FencedError, IngestError, StorageError
from compactor.failpoints import hit
from compactor.metrics import Freshness
from connectors.clock import Clock
from connectors.config.connector import ConnectorConfig
from connectors.config.selection import matches
from connectors.config.stores import connector_storage, snapshot_storage
from connectors.config.worker import WorkerConfig
from connectors.kafka.client_settings import ClientSettings
from connectors.progress.observer import Interval, Observer
from connectors.runtime.components import TaskComponents, assemble
from connectors.runtime.kafka_broker import KafkaBroker
from connectors.runtime.maintenance_thread import VACUUM_GRACE_MS, MaintenanceSchedule, MaintenanceThread
from connectors.runtime.reading_thread import ReadingThread
from connectors.runtime.run_ending import RunEnding
from connectors.runtime.shared_query import SharedQuery
from connectors.runtime.stop import Stop
from connectors.runtime.takeover import CHECKPOINT, Fenced, OwnerClaim, take_over
from connectors.source.options import source_options
from connectors.source.source_errors import check_none_closed, closing_topic
from connectors.spark import session
from connectors.spark.cancellable_job import CancellableJob
from connectors.threads import CancellableThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from compactor.catalog.requests import Request

_log = structlog.get_logger()

WATCH_MS: Final = 500
"""How often a connector is looked at, and its requests, as long as it is not known to work."""
WATCH_WORKED_MS: Final = 1_000
"""How often after that: what cannot wait (a stop, a thread that ends) wakes the thread that watches."""
FENCE_CHECK_MS: Final = 5_000
STORE_REQUESTS_MS: Final = 5_000
"""How often requests are looked for in an object store, where each look is paid for."""
REPORT_MS: Final = 5_000
"""How often a report that has not changed is repeated, for status.json and for what a store has refused."""
IDLE_MS: Final = 10_000


class TaskReport(NamedTuple):
    """What a running task has counted since it was started, and whether it has `worked` (see ConnectorTask).

    `paused`: nothing is taken in or published, and the step before has ended. `topics`: counts by source topic, once
    the task has ended. `asked`: commands may wait for an answer.
    """

    counters: dict[str, int]
    worked: bool
    paused: bool = False
    freshness: Freshness = Freshness()
    topics: Mapping[str, Mapping[str, int]] = MappingProxyType({})
    asked: bool = False


class ConnectorTask:
    """Runs one connector once, from its take-over to its stop.

    `catalog` is the one that it works on, None until it has taken over. `worked`: it has read a micro-batch and
    published what was due with it, or had nothing to do for IDLE_MS.
    """

    def __init__(
        self,
        spark: SparkSession,
        worker: WorkerConfig,
        connector: ConnectorConfig,
        clock: Clock,
        observer: Observer,
        report: Callable[[TaskReport], None],
        lock: OwnerLock,
    ) -> None:
        self.catalog: Catalog | None = None
        self.worked = False
        self._spark = spark
        self._connector = connector
        self._clock = clock
        self._observer = observer
        self._report = report
        self._storage = connector_storage(worker, connector.name)
        self._snapshot_storage = snapshot_storage(worker, connector)
        self._clients = ClientSettings.of(worker, connector)
        self._chain = connector.chain_spec(worker.given)
        self._claim = OwnerClaim(self._storage, lock)
        self._schedule = MaintenanceSchedule(
            initial_delay_ms=worker.log_cleaner_initial_delay_ms, backoff_ms=worker.log_cleaner_backoff_ms
        )
        # Whether a look at the owner's epoch, or at requests, is due.
        self._fence_due = Interval(clock, FENCE_CHECK_MS)
        self._requests_due = Interval(clock, 0 if self._storage.is_folder else STORE_REQUESTS_MS)
        # The last report, and when (monotonic ms) it is repeated if nothing changes.
        self._reported: TaskReport | None = None
        self._repeated_at_ms = 0
        # Since when (monotonic ms) the run has had nothing to do.
        self._idle_from_ms = clock.monotonic_ms()
        # The offsets that `--once` has before it, for the progress display; None for a run without an end.
        self._total: int | None = None
        # Gives the connectors of the worker, as `run` was told; by themselves a run knows none.
        self._others: Callable[[], Iterable[ConnectorConfig]] = tuple
        self._reading: ReadingThread | None = None
        self._engine: Engine | None = None

    def run(
        self,
        stop: Stop,
        query: SharedQuery,
        *,
        once: bool,
        start: Start,
        known: str | None = None,
        change: Callable[[Fenced], object] | None = None,
        others: Callable[[], Iterable[ConnectorConfig]] = tuple,
    ) -> None:
        """Runs, reading through `query`, until `stop` is set or, with `once`, until all that is stable now is done.

        `start` is when this process was told to run it, among all starts on its storage location.
        `known` is the id of the catalog that an earlier run in this process worked on: it must be there still.
        `change` changes offsets before anything is read or published. `others` gives the worker's connectors. Raises
        KeyfoldError: FencedError when a newer owner took over, ConnectorError if an operator must decide.
        """
        if stop.is_set():  # a run that never began fences no owner
            return
        self._others = others
        with ExitStack() as stack:
            components = self.take_over(stack, start, self._tasks_max(query.tasks_max), known, change)
            catalog, broker = components.catalog, components.broker
            with _fenced_first(catalog, stop), closing_topic(catalog, broker.look_into, self._clock):
                self._run(components, query, stack, stop, once=once)

    def _run(self, components: TaskComponents, query: SharedQuery, stack: ExitStack, stop: Stop, *, once: bool) -> None:
        """Runs from the committed positions on; `stack` ends what this starts."""
        catalog, broker, engine = components.catalog, components.broker, components.engine
        broker.retry_until(stop.is_set)
        self._observer.stage(self._connector.name, "reading positions")
        engine.resolve_positions(self._clock.now_ms())
        maintenance = self._maintenance_thread(components, once=once)
        # What `stack` calls at the end, last in, first out: interrupt maintenance, cancel reading, abort transactions,
        # end maintenance, close engine, close broker.
        ending = RunEnding(components, maintenance, self._connector, self._clients, self._clock, stop)
        stack.callback(ending.end_maintenance)
        stack.callback(ending.abort_transactions)
        maintenance.when_over(stop.wake)
        maintenance.start()
        self._count_unread(catalog, broker, once=once)
        reading = self._reading_thread(components, query, stop.paused, once=once)
        self._reading = reading
        reading.when_over(stop.wake)
        stack.callback(reading.cancel)
        stack.callback(ending.interrupt_maintenance)
        reading.start()
        self._watch(reading, maintenance, components, stop)
        if stop.is_set():
            ending.await_step()
        elif not once:
            message = f"Connector {self._connector.name}: reading from its topics has ended, and nothing says why."
            raise IngestError(message, DEFECT)  # it is started again
        else:
            maintenance.cancel(finishes=lambda: not stop.drops)
            self._finish(components, ending)

    def perform(self, request: Request, start: Start) -> dict[str, Any]:
        """Takes over, publishes what is due and carries `request` out, without reading anything new."""
        with ExitStack() as stack:
            components = self.take_over(stack, start, self._tasks_max())
            stack.callback(components.maintenance.interrupt)  # a command that is cancelled waits for no broker
            components.engine.tick(self._clock.now_ms())
            done = components.requests.carry_out(request)
            self._check_visible(components)
            return done

    @property
    def counted(self) -> TaskReport | None:
        """What it has counted by now, also once it has ended; None if it has not taken over."""
        if self._engine is None:
            return None
        counters = self._engine.counters
        return TaskReport(self._engine.counts(), self.worked, freshness=counters.freshness, topics=counters.by_topic())

    def take_over(
        self,
        stack: ExitStack,
        start: Start,
        tasks_max: int,
        known: str | None = None,
        change: Callable[[Fenced], object] | None = None,
    ) -> TaskComponents:
        """Takes steps T1 to T3 on the catalog with the id `known`, and makes the components of this run."""
        self._observer.stage(self._connector.name, "taking over")
        self._claim.start = start.number
        self._claim.claim(0)  # first, so that a command finds a worker here, not a connector to take over
        self._claim.warn_of_another()
        now_ms = self._clock.now_ms()
        owned = take_over(
            self._storage, self._connector, self._clients, tasks_max, now_ms, known, change,
            start=start, changes_rules=change is not None, others=self._others,
        )  # fmt: skip
        self.catalog = owned.catalog
        self._claim.claim(owned.catalog.epoch)
        components = assemble(
            self._spark, self._connector, self._chain, self._storage, self._snapshot_storage, self._clock, owned
        )
        self._engine = components.engine
        stack.callback(owned.broker.close)
        stack.callback(components.engine.close)
        return components

    def _maintenance_thread(self, components: TaskComponents, *, once: bool) -> MaintenanceThread:
        """Makes the maintenance thread, not started; `--once` takes its one snapshot in `_finish`."""
        maintenance, requests, running = components.maintenance, components.requests, components.engine.running
        schedule = replace(self._schedule, snapshots=not once)
        name, clock = self._connector.name, self._clock
        return MaintenanceThread(self._spark, name, maintenance, requests, running, clock, schedule)

    def _reading_thread(
        self, components: TaskComponents, query: SharedQuery, paused: threading.Event, *, once: bool
    ) -> ReadingThread:
        """Makes the thread that reads through the worker's query from the catalog's end on (step T4), not started.

        A Spark checkpoint in the connector's storage is of an earlier version of keyfold, which nothing reads.
        """
        engine, state = components.engine, components.catalog.state
        self._storage.delete_folder(CHECKPOINT)
        hit("takeover.query")
        tasks_max = self._tasks_max(query.tasks_max)
        intake, chain = engine.intake, self._chain
        options = source_options(self._connector, self._clients, state, tasks_max, intake, pinned=once, chain=chain)
        self._observer.stage(self._connector.name, "reading")
        report = partial(self._took, engine)
        return ReadingThread(self._spark, query, options, components, self._clock, report, paused)

    def _took(self, engine: Engine) -> None:
        """Shows that a micro-batch was taken, or that the connector has paused."""
        self.worked |= not self._is_paused
        self._show(engine)

    @property
    def _is_paused(self) -> bool:
        return self._reading is not None and self._reading.is_paused

    def _count_unread(self, catalog: Catalog, broker: KafkaBroker, *, once: bool) -> None:
        """Counts the offsets that `--once` has before it, for the progress display; a running connector has no end."""
        if once:
            state = catalog.state
            logs = {log.tp: log for log in state.logs if state.topics[log.topic].closed is None}
            ends = broker.ends(logs)
            self._total = sum(max(0, end - logs[tp].end) for tp, end in ends.items())

    def _show(self, engine: Engine, *, asked: bool = False) -> None:
        """Reports what has been counted, if anything is new or `asked`; in any case every REPORT_MS."""
        counters, freshness = engine.counts(), engine.counters.freshness
        report = TaskReport(counters, self.worked, paused=self._is_paused, freshness=freshness, asked=asked)
        now_ms = self._clock.monotonic_ms()
        if report == self._reported and not asked and self.worked and now_ms < self._repeated_at_ms:
            return
        self._reported, self._repeated_at_ms = report, now_ms + REPORT_MS
        name = self._connector.name
        done = counters["offsets_read"] if self._total is not None else counters["records_read"]
        self._observer.progress(name, "reading", done, self._total, "offsets" if self._total else "records")
        self._observer.counts(name, counters)
        self._report(report)

    def _watch(
        self, reading: ReadingThread, maintenance: MaintenanceThread, components: TaskComponents, stop: Stop
    ) -> None:
        """Watches a connector until it has read everything (`--once`) or `stop` is set; waits for no step of it.

        Raises what one of its threads failed with. What a stop interrupts is no failure: the next run goes on from the
        catalog.
        """
        self._idle_from_ms = now_ms = self._clock.monotonic_ms()
        self._fence_due.begin_pause("fence")  # the take-over has just committed
        next_look_ms = now_ms + WATCH_MS
        while reading.is_alive() and not stop.is_set_within(next_look_ms - self._clock.monotonic_ms(), self._clock):
            _raise_failure(reading, maintenance)
            reading.notice_pause()
            if (now_ms := self._clock.monotonic_ms()) < next_look_ms:
                continue
            next_look_ms = now_ms + (WATCH_WORKED_MS if self.worked and self._claim.held else WATCH_MS)
            self._look(reading, maintenance, components)
        if not stop.is_set():
            _raise_failure(reading, maintenance)

    def _look(self, reading: ReadingThread, maintenance: MaintenanceThread, components: TaskComponents) -> None:
        catalog = components.catalog
        if self._fence_due.ready("fence"):
            self._claim.claim(catalog.epoch)
            catalog.refresh()  # an idle owner commits nothing: only so it sees a newer owner
        elif not self._claim.held:
            self._claim.claim(catalog.epoch)
        is_asked = self._requests_due.ready("requests") and components.requests.is_any_pending()
        if is_asked:
            maintenance.wake()
        self._note_idle(components.engine, reading)
        self._show(components.engine, asked=is_asked)

    def _note_idle(self, engine: Engine, reading: ReadingThread) -> None:
        now_ms = self._clock.monotonic_ms()
        if not (engine.is_idle() and reading.is_idle):
            self._idle_from_ms = now_ms
        self.worked |= now_ms - self._idle_from_ms >= IDLE_MS

    def _finish(self, components: TaskComponents, ending: RunEnding) -> None:
        """Ends `--once`: publishes what is still due, folds and snapshots everything published.

        It ends only once readers see all of that: they may begin as soon as the command has ended. A stop ends it after
        the publish, and anywhere in a fold.
        """
        catalog, broker, engine, maintenance, _ = components
        name, now = self._connector.name, self._clock.now_ms
        self._observer.stage(name, "publishing, folding")
        steps: tuple[tuple[str, Callable[[], object]], ...] = (
            ("look at topics", lambda: engine.commit(broker.discover, now())),
            ("publish", lambda: engine.finish(now())),
            ("fold", lambda: maintenance.cleaner.round(now())),
            ("snapshot", lambda: maintenance.snapshot(now(), again=False)),
            ("vacuum", lambda: maintenance.vacuum(now(), VACUUM_GRACE_MS, engine.running)),
            ("wait for readers", lambda: self._check_visible(components)),
        )
        for what, step in steps:
            if not ending.run_step(self._job(what, step), what):
                return
        self._show(engine)
        maintenance.check_complete()
        check_none_closed(name, catalog.state, partial(matches, self._connector))

    def _check_visible(self, components: TaskComponents) -> None:
        """Waits until readers see what was published, and the dead letters that this run has sent."""
        letters = components.engine.counters.values()["dead_letters"] > 0
        components.broker.check_visible(components.catalog.state, letters=letters)

    def _job(self, what: str, step: Callable[[], object]) -> CancellableJob:
        return CancellableJob(self._spark, f"{what}-{self._connector.name}", lambda _: step())

    def _tasks_max(self, share: int | None = None) -> int:
        return self._connector.tasks_max or share or session.cores(self._spark)


def _raise_failure(*threads: CancellableThread) -> None:
    for thread in threads:
        if thread.failure is not None:
            raise thread.failure


@contextmanager
def _fenced_first(catalog: Catalog, stop: Stop) -> Iterator[None]:
    """Raises FencedError in place of the block's error, if there is a newer owner.

    The newer owner may be the reason: its vacuum removes files that only our version of the catalog names, for one.
    After any other error the connector is started again and takes over, which would fence that owner.
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
