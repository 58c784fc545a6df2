"""The one streaming query of a worker, through which all of its connectors read.

It belongs to no connector: they subscribe when they have taken over, and go without the query noticing. If it fails
(a process of Spark's has ended, say) it is started again, and what its last micro-batch was to hold is read apart
for each connector, so that the one that is to blame fails alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog
from msgspec import Struct

from compactor.errors import KeyfoldError
from compactor.ingest.appends import Batch
from compactor.ingest.ingest import gather
from compactor.spark.errors import briefly
from compactor.turns import READERS
from connectors.clock import Clock, Deadline, LoopClock
from connectors.kafka.client_settings import ClientSettings
from connectors.source.datasource import Address
from connectors.source.driver_link import DriverLink
from connectors.source.micro_batches import MicroBatches
from connectors.source.options import SourceOptions
from connectors.source.planner import Planner
from connectors.source.poller import Pollers
from connectors.source.read_task import read_in_driver
from connectors.source.subscription import Subscription
from connectors.source.topics import SharedAnswers, shared_answers
from connectors.spark import session, stream
from connectors.spark.stream import query_folder
from connectors.threads import CancellableThread, let_go

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POOL: Final = "query"
"""Its Spark pool: a micro-batch gets the next free task, however many tasks publishes and folds have."""
_WRITERS: Final = 4
"""Threads that write small portions: most of their time is spent waiting for the disk."""
_log = structlog.get_logger()


class QueryTimings(Struct, frozen=True):
    """How long the query waits, and how often it looks."""

    look_ms: int = 500
    """Between two looks whether Spark's query still runs."""
    again_ms: int = 1_000
    """Before it is started again, if it failed without a portion that may be the reason."""
    more_ms: int = 250
    """How long a micro-batch that the driver reads waits for further offers: the time after which ends are asked for
    again. Another micro-batch takes 12 ms of Spark's JVM at least, and 17 ms with twenty busy connectors."""
    longest_ms: int = 10_000
    """How long it goes on so: Spark counts and logs a micro-batch once it has ended."""
    early_end_ms: int = 5_000
    """How long a micro-batch may take to end early: its tasks write into files what they have read by then."""


class QueryParts(Struct, frozen=True):
    """What the query is made of, with its timings; a test gives others."""

    start: Callable[[SparkSession, Address, str, Callable[[DataFrame], None]], StreamingQuery] = stream.start
    gather: Callable[[DataFrame], Mapping[int, Batch | KeyfoldError]] = gather
    answers: Callable[[ClientSettings, Clock], SharedAnswers] = shared_answers
    read: Callable[..., None] = read_in_driver
    timings: QueryTimings = QueryTimings()


class _HandOutError(Exception):
    """Ends the query as a micro-batch could not be handed out; `SharedQuery._failed` says why."""


class SharedQuery:
    """Runs the query from `start` to `stop`, for so many `connectors`, which `share_among` changes.

    `tasks_max` is how many of Spark's tasks each of them has at a time, unless its file says it. `batches` plans its
    micro-batches, as Spark asks for them through a `DriverLink`.
    """

    def __init__(self, spark: SparkSession, clock: Clock, *, connectors: int, parts: QueryParts | None = None) -> None:
        self._parts = parts = parts or QueryParts()
        self._timings = parts.timings
        self._cores = session.cores(spark)
        self._spark = spark
        self._clock = clock
        self.batches = MicroBatches(self._cores, shared=connectors > 1)
        self.share_among(connectors)
        self._pollers = Pollers(self.batches.wake, clock, parts.answers)
        self._link = DriverLink(self.batches)
        self.batches.marks = self._link.address.path  # a folder that only this account can enter
        self._writers = ThreadPoolExecutor(_WRITERS, "level-0-writer")
        self._restart = threading.Event()
        self._ending = threading.Event()
        self._failed: BaseException | None = None
        self._overdue: tuple[int | None, int] = None, 0
        """The micro-batch that is to end early, None if there is none, and when (ms of `_running`) it is late."""
        # The time in which its thread has looked at the query: what the worker stood still makes no micro-batch late.
        self._running = LoopClock(2 * self._timings.look_ms, clock=clock)
        self._delivered = False
        self._thread = CancellableThread("query", self._run)

    def share_among(self, connectors: int) -> None:
        """Shares what there is among so many connectors from now on; those that run keep the tasks that they have."""
        self.tasks_max = max(1, self._cores // max(1, connectors))
        self.batches.share(shared=connectors > 1)

    def start(self, *, prepares: bool) -> None:
        """Starts the query on a thread, while the connectors take over.

        `prepares`: Spark's processes are started at once, for a backlog; little is read without them.
        """
        self.batches.warm_up(self._cores if prepares else 0)
        self._link.open()
        self._thread.start()

    @property
    def failure(self) -> BaseException | None:
        """What has ended the thread that starts the query again wherever it fails; None while that works."""
        return self._thread.failure

    def begin_stop(self) -> None:
        """Ends the query, whatever it reads, and waits for nothing: what connectors end with needs it no more."""
        self._ending.set()
        self.batches.close()
        self._thread.stop()

    def stop(self, seconds: float) -> bool:
        """Ends the query, whatever it reads; returns whether it has ended within `seconds`."""
        self.begin_stop()
        self._link.close()
        self._writers.shutdown(wait=False)
        return self._thread.join(seconds)

    @contextmanager
    def subscribed(self, options: SourceOptions, stop: threading.Event) -> Iterator[Subscription]:
        """Lets a connector read, from the block's begin to its end.

        Once `stop` is set, nothing is waited for any more.
        """
        poller = self._pollers.borrow(options.clients)
        planner = Planner(options, poller.topics(options.connector), self._clock, stop)
        suspect = self.batches.is_suspect(options.connector)
        subscription = Subscription(
            options,
            planner,
            self._clock,
            poller.poll_now,
            shared=lambda: self.batches.shared,
            starts=lambda: self.batches.starts,
            suspect=suspect,
        )
        try:
            subscription.begin()
            self.batches.add(subscription, poller.clients)
            poller.add(subscription)
            with READERS.reading():
                yield subscription
        finally:
            if self.batches.remove(subscription):
                self._restart.set()
            poller.remove(subscription)
            self._pollers.give_back(poller)

    def _run(self, stop: threading.Event) -> None:
        failures = 0
        while not stop.is_set():
            error = self._run_once(stop)
            if stop.is_set():
                return
            given_up = self.batches.abandon()
            if self._restart.is_set():
                continue
            failures = 0 if given_up or self._delivered else failures + 1  # a connector's portion may be why it failed
            self._delivered = False
            _log.warning(
                "query failed, started again; what it read is read apart",
                portions=given_up,
                error=briefly(error) if error else "it ended",
            )
            if failures > 1 and error is not None:
                self.batches.fail(session.gone(self._spark) or error)
            if failures:  # what made it fail is read apart from now on: the others need not wait
                self._clock.wait_ms(self._timings.again_ms, stop)

    def _run_once(self, stop: threading.Event) -> BaseException | None:
        """Runs the query until it ends or `stop` is set; returns what it failed with."""
        self._restart.clear()
        self._failed = None
        try:
            with query_folder() as checkpoint:
                return self._run_in(checkpoint, stop)
        except Exception as error:  # noqa: BLE001  # it is started again, or its connectors fail with it
            let_go(error)
            return error

    def _run_in(self, checkpoint: Path, stop: threading.Event) -> BaseException | None:
        """See `_run_once`; Spark makes its checkpoint in `checkpoint`."""
        query: StreamingQuery | None = None
        try:
            self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
            query = self._parts.start(self._spark, self._link.address, f"file://{checkpoint}", self._on_micro_batch)
            while query.isActive and not (self._clock.wait_ms(self._timings.look_ms, stop) or self._restart.is_set()):
                self._end_if_overdue()
            # Of a micro-batch that could not be handed out Spark knows only that.
            return None if stop.is_set() or self._restart.is_set() else self._failed or query.exception()
        finally:
            if query is not None:
                with suppress(Exception):  # a JVM that has ended has no query either
                    query.stop()

    def _end_if_overdue(self) -> None:
        """Ends the query if its micro-batch was asked to end early, and has not for a while: others wait for it.

        So it is on machines on which no task can see that (`EarlyEnd`), and if a task hangs. Its portion is read apart.
        """
        self._running.look()
        number, now_ms = self.batches.ending, self._running.monotonic_ms()
        if number != self._overdue[0]:
            self._overdue = number, now_ms + self._timings.early_end_ms
        elif number is not None and now_ms >= self._overdue[1]:
            seconds = self._timings.early_end_ms / 1000
            _log.warning("a micro-batch is read again, as it did not end for other connectors", seconds=seconds)
            self._restart.set()

    def _on_micro_batch(self, frame: DataFrame) -> None:
        """Hands out a micro-batch, and keeps what fails for `_run_once`.

        Spark gets a short error: it searches the text of one that Python raises with a regular expression that recurses
        for each character (`StreamExecution.isInterruptionException`), and a traceback overflows the thread's stack.
        While the query is being ended, what that breaks is no error: Spark stops the query after the micro-batch.
        """
        try:
            self._hand_out(frame)
        except Exception as error:  # noqa: BLE001  # whatever it was, Spark hears of it, and the query is started again
            if self._ending.is_set() or self._restart.is_set():
                _log.debug("a micro-batch was interrupted", exc_info=error)
                return
            let_go(error)
            self._failed = error
            raise _HandOutError(type(error).__name__) from None

    def _hand_out(self, frame: DataFrame) -> None:
        """Hands each connector its portion of a micro-batch; waits for none of them.

        Few offsets are read here, and Spark runs no job: it does not demand that a micro-batch's frame is used. Offers
        that follow become part of the micro-batch, as long as they are few.
        """
        number, tasks = self.batches.number, self.batches.driver_tasks()
        if tasks is None:
            self._deliver(self._parts.gather(frame))
            return
        deadline = Deadline(self._timings.longest_ms / 1000, self._clock)
        while True:
            self._parts.read(tasks, self._writers, self.batches.deliver_portion)
            self._deliver({})
            if deadline.has_passed or self._restart.is_set():
                return
            tasks = self.batches.more(number, self._timings.more_ms / 1000)
            if not tasks:
                return

    def _deliver(self, portions: Mapping[int, Batch | KeyfoldError]) -> None:
        self._delivered = True
        self.batches.deliver(portions)
