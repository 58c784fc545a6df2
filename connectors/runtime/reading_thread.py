"""The thread of one connector that takes what was read for it, publishes it, and publishes what time has let go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from compactor.errors import OutcomeUnknownError, PortionTooLargeError, PublishInterruptedError, StoppedError
from compactor.failpoints import hit
from compactor.ingest.appends import Batch
from connectors.clock import Clock
from connectors.errors import UnreachableError
from connectors.progress.observer import Interval
from connectors.runtime.components import TaskComponents
from connectors.runtime.left_out import warn_of_truncates
from connectors.runtime.shared_query import SharedQuery
from connectors.source.options import SourceOptions
from connectors.source.portion import Offer
from connectors.source.read_task import read_apart
from connectors.source.subscription import Subscription
from connectors.source.topics import ask_again_ms
from connectors.spark.cancellable_job import CancellableJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from compactor.model.actions import AnyAction
    from compactor.model.state import CatalogState

_log = structlog.get_logger()

TICK_MS: Final = 500
SETTLED_TICK_MS: Final = 5_000
"""The longest time between two ticks where nothing is left to be published: only positions grow old by themselves."""
TOPICS_CHECK_MS: Final = 30_000
"""How often topics are looked for, unless a look takes so long that it is later (`ask_again_ms`)."""
SILENT_MS: Final = 2_000
"""Once the source was silent for so long, topics are looked for at once: that look tells within its own time limit
whether brokers answer at all, and would otherwise come up to TOPICS_CHECK_MS later. The election of a leader is over
by then, as a rule."""
APART_POLL_S: Final = 0.1
PAUSED_POLL_MS: Final = 200
RENEW_MS: Final = 30_000
"""How often a paused connector looks whether positions are old: they live for hours at the least."""


class ReadingThread(CancellableJob):
    """Reads for one connector through the worker's query, from its catalog's end on. `failure` is what ended it.

    Pinned, it ends when everything is taken that is stable at its begin. `report` is called after each micro-batch,
    and once it has paused: for that to be known no thread is needed that waits for a store. While `paused` is set
    nothing is taken in or published; its clients and files are kept, and its positions are committed again before they
    expire.
    """

    def __init__(
        self,
        spark: SparkSession,
        query: SharedQuery,
        options: SourceOptions,
        components: TaskComponents,
        clock: Clock,
        report: Callable[[], None],
        paused: threading.Event,
    ) -> None:
        with structlog.contextvars.bound_contextvars(connector=options.connector):
            super().__init__(spark, f"reading-{options.connector}", self._read)
        self._spark = spark
        self._query = query
        self._options = options
        self._engine = components.engine
        self._broker = components.broker
        self._clock = clock
        self._report = report
        self._paused = paused
        # Whether it pauses, and everything that it had begun has ended; set by its own thread, read by reports.
        self.is_paused = False
        self._ticks = Interval(clock, TICK_MS)
        self._renewals = Interval(clock, RENEW_MS)
        # Whether the last renewal of positions failed: topics are looked for before the next one then.
        self._renewal_failed = False
        # When (monotonic ms) the next look at topics is due, and whether one is due and has not been made yet.
        self._topics_at_ms = clock.monotonic_ms() + TOPICS_CHECK_MS  # the take-over has just looked for them
        self._topics_due = False
        # Whether the source was silent for SILENT_MS at the last look at it.
        self._was_silent = False
        self._subscription: Subscription | None = None

    def interrupt(self) -> None:
        """Interrupts the publish, or the job that reads apart, and the wait for a micro-batch."""
        if self._subscription is not None:
            self._subscription.close()
        super().interrupt()

    def _read(self, stop: threading.Event) -> None:
        with self._query.subscribed(self._options, stop) as subscription:
            self._subscription = subscription
            try:
                while not stop.is_set() and not subscription.finished:
                    if self._paused.is_set():
                        self._pause(subscription, stop)
                    else:
                        subscription.resume()
                        self._take(subscription, stop)
                        if not self._paused.is_set():
                            self._notice_silence(subscription)
                            self._tick()
                        subscription.leave_out(self._engine.topics_aside)
            except (UnreachableError, PublishInterruptedError) as error:
                error.silent_ms = max(error.silent_ms, subscription.silent_ms)  # the planner asks most often
                raise

    def _notice_silence(self, subscription: Subscription) -> None:
        """Makes a look at topics due when a silence of the source has lasted for SILENT_MS, once for each silence."""
        is_silent = subscription.silent_ms >= SILENT_MS
        self._topics_due |= is_silent and not self._was_silent
        self._was_silent = is_silent

    def notice_pause(self) -> None:
        """Ends its wait for a micro-batch if `paused` was set meanwhile. To be called from another thread."""
        if self._paused.is_set() and not self.is_paused and self._subscription is not None:
            self._subscription.pause()

    def _pause(self, subscription: Subscription, stop: threading.Event) -> None:
        """Waits until it is resumed or stopped; the step before has ended, so nothing is under way."""
        subscription.pause()
        self.is_paused = True
        _log.info("paused")
        self._report()
        while self._paused.is_set() and not self._clock.wait_ms(PAUSED_POLL_MS, stop):
            if self._renewals.ready("positions"):
                self._renew_positions()
        self.is_paused = False
        if not stop.is_set():
            _log.info("resumed")

    def _renew_positions(self) -> None:
        """Commits old positions again; brokers that do not answer leave the connector paused, and are asked later.

        Topics are looked for before that next try: a group takes no position for a source topic that was deleted, which
        would keep back those of all others until it is closed.
        """
        try:
            if self._renewal_failed:
                self._engine.commit(self._look, self._clock.now_ms())
            self._engine.renew_positions(self._clock.now_ms())
            self._renewal_failed = False
        except (UnreachableError, PublishInterruptedError, OutcomeUnknownError) as error:
            self._renewal_failed = True
            _log.warning("positions not committed again", error=str(error), again_in_s=RENEW_MS / 1000)

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to take, and waits for nothing that is read."""
        return self._subscription is not None and self._subscription.is_idle

    def _take(self, subscription: Subscription, stop: threading.Event) -> None:
        """Takes what comes until the next tick."""
        settled = self._engine.is_settled() and not self._topics_due and not subscription.silent_ms
        batch = subscription.next((SETTLED_TICK_MS if settled else TICK_MS) / 1000)
        if self._paused.is_set():
            return
        if isinstance(batch, Offer):
            batch = self._read_apart(batch, subscription, stop)
        if batch is not None and (kept := self._taken(batch, subscription)) is not None:
            warn_of_truncates(self._options.connector, kept.ranges)
            subscription.taken(batch, kept)
            self._report()
            self._ticks.begin_pause("publish")

    def _taken(self, batch: Batch, subscription: Subscription) -> Batch | None:
        """Has the engine take `batch`; returns what it has taken.

        None if nothing of it was, as it is read again, or in smaller ones.
        """
        try:
            return self._engine.take(batch, self._clock.now_ms(), self._paused.is_set, subscription.pinned_ends)
        except StoppedError:
            if not self._paused.is_set():
                raise
            subscription.give_up()
        except PortionTooLargeError as error:
            if not subscription.halve():
                raise
            _log.warning("a portion is read again in smaller ones", reason=error.message)
        return None

    def _read_apart(self, offer: Offer, subscription: Subscription, stop: threading.Event) -> Batch | None:
        """Has an offer read on a thread of its own, as publishing by the clock goes on meanwhile.

        A pause gives up what is read by then, as a stop does: it may be one that waits for hours.
        """
        hit("source.plan")
        batches: list[Batch] = []
        job = CancellableJob(
            self._spark,
            f"reading-apart-{self._options.connector}",
            lambda job_stop: batches.append(read_apart(self._spark, offer, job_stop.is_set)),
        )
        job.start()
        try:
            while not job.join(APART_POLL_S):
                if stop.is_set():
                    return None
                if self._paused.is_set():
                    subscription.give_up()
                    return None
                self._tick()
        finally:
            job.cancel()
        if job.failure is not None:
            raise job.failure
        return batches[0] if batches else None

    def _tick(self) -> None:
        """Publishes and looks for topics when they are due by the clock."""
        if self._ticks.ready("publish"):
            self._engine.tick(self._clock.now_ms())
        self._look_for_topics()

    def _look_for_topics(self) -> None:
        """Looks for topics when it is due, as soon as no other turn of the engine is under way.

        In that turn nothing is published, so producers that were not used for long are dropped as well.
        """
        now_ms = self._clock.monotonic_ms()
        if not self._topics_due and now_ms >= self._topics_at_ms:
            self._topics_due, self._topics_at_ms = True, now_ms + TOPICS_CHECK_MS
        if self._topics_due:
            self._topics_due = not self._engine.commit(self._look, self._clock.now_ms())

    def _look(self, state: CatalogState) -> Sequence[AnyAction]:
        self._broker.drop_unused()
        began_ms = self._clock.monotonic_ms()
        actions = self._broker.discover(state)
        now_ms = self._clock.monotonic_ms()
        self._topics_at_ms = max(self._topics_at_ms, now_ms + ask_again_ms(0, now_ms - began_ms))
        return actions
