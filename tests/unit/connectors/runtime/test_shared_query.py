"""How the worker's streaming query is started again, and what connectors hear of it; without Spark and brokers."""

from __future__ import annotations

import errno
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast
from unittest.mock import Mock

import pytest

from compactor.errors import KeyfoldError
from compactor.ingest.appends import Batch
from compactor.model.record import TopicPartition
from compactor.turns import READERS
from connectors.clock import SystemClock
from connectors.errors import SourceChangedError, SparkGoneError
from connectors.runtime.shared_query import POOL, QueryParts, QueryTimings, SharedQuery
from connectors.source.options import SourceOptions
from connectors.source.plan import TopicOffsets
from connectors.source.portion import Offer
from connectors.source.read_route import DRIVER_READ_MAX
from connectors.source.read_task import read_in_driver
from connectors.source.subscription import Subscription
from connectors.source.topics import SharedAnswers
from tests.support.clocks import ManualClock
from tests.support.kafka import wait_until
from tests.support.memory.admin import MemoryAdmin
from tests.support.source_options import source_options
from tests.support.spark_standins import StandInSession
from tests.support.subscribed import batch_of

TIMEOUT_S = 30.0


class Streams:
    """Stands for Spark's streaming: each query that is started runs `lives`, on a thread, until it fails or ends."""

    def __init__(self, *lives: Callable[[Streams], None]) -> None:
        self.lives = list(lives)
        self.started: list[Mock] = []
        self.take: Callable[[Any], None] = lambda _: None
        self.plans: Any = None
        self.found: dict[int, Any] = {}
        self.refuses: Exception | None = None
        self.breaks: Exception | None = None
        self.empty: Any = None
        self.at = 0
        """The number of the micro-batch that was planned last."""

    def start(self, _spark: Any, _address: Any, _checkpoint: str, take: Callable[[Any], None]) -> Mock:
        if self.refuses is not None:
            raise self.refuses
        query = Mock(isActive=True)
        query.exception.return_value = None
        self.take = take
        self.at = self.plans.begin()
        if not self.started:
            self.empty = self.micro_batch()
        self.started.append(query)
        life = self.lives.pop(0) if self.lives else lambda _: None
        try:
            life(self)
        except Exception as error:  # noqa: BLE001  # what the query failed with
            query.isActive = False
            query.exception.return_value = error
        return query

    def micro_batch(self) -> dict[int, Batch]:
        """Plans the next one, from behind the last, and returns what is read of each of its portions."""
        before, self.at = self.at, self.plans.latest(self.at)
        tasks = self.plans.tasks(before, self.at)
        return {one.portion: batch_of(one.ranges) for task in tasks for one in task.portions}

    def gather(self, _: Any) -> dict[int, Any]:
        """Returns what the tasks have written, or raises what breaks it."""
        if self.breaks is not None:
            raise self.breaks
        return self.found


@pytest.fixture
def brokers() -> MemoryAdmin:
    """Two topics with more offsets than the driver reads: Spark reads everything."""
    return MemoryAdmin({TopicPartition("a", 0): DRIVER_READ_MAX + 5, TopicPartition("b", 0): DRIVER_READ_MAX + 7})


@pytest.fixture
def streams() -> Streams:
    return Streams()


TIMINGS = QueryTimings(look_ms=10, again_ms=0)


class Worker:
    """A shared query on stand-ins, with the connectors that read through it."""

    def __init__(
        self,
        streams: Streams,
        brokers: MemoryAdmin,
        connectors: int = 2,
        timings: QueryTimings = TIMINGS,
        read: Callable[..., None] = read_in_driver,
    ) -> None:
        admin: Any = brokers
        self.spark = StandInSession(cores=2)
        parts = QueryParts(
            start=streams.start,
            gather=streams.gather,
            answers=lambda _, clock: SharedAnswers(admin, admin, clock),
            timings=timings,
            read=read,
        )
        self.query = SharedQuery(cast("Any", self.spark), SystemClock(), connectors=connectors, parts=parts)
        self.query.batches.deliver({})  # as after the first micro-batch: what is small waits for the next
        streams.plans = self.query.batches
        self.stopped = threading.Event()
        self._blocks: list[Any] = []

    def subscribed(self, topic: str, **named: Any) -> Subscription:
        block = self.query.subscribed(options(topic, **named), self.stopped)
        found = block.__enter__()
        self._blocks.append(block)
        return found

    def unsubscribe(self) -> None:
        """Ends all connectors."""
        while self._blocks:
            self._blocks.pop().__exit__(None, None, None)

    def close(self) -> None:
        self.unsubscribe()
        assert self.query.stop(TIMEOUT_S)


def options(topic: str, **named: Any) -> SourceOptions:
    return source_options(topics=(topic,), connector=f"c-{topic}", **named)


@pytest.mark.parametrize(("cores", "connectors", "each"), [(2, 1, 2), (16, 4, 4), (2, 20, 1), (2, 0, 2)])
def test_the_cores_are_shared_among_the_connectors(cores: int, connectors: int, each: int) -> None:
    """Each has its part of Spark's tasks, and so of transactions in a publish; never none."""
    query = SharedQuery(cast("Any", StandInSession(cores=cores)), SystemClock(), connectors=connectors)
    assert query.stop(TIMEOUT_S)
    assert query.tasks_max == each


@pytest.fixture
def worker(streams: Streams, brokers: MemoryAdmin) -> Iterator[Worker]:
    found = Worker(streams, brokers)
    yield found
    found.close()


def pollers() -> list[str]:
    """The threads that ask for the ends of partitions."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("source-poller")]


def offered(*found: Subscription) -> None:
    for one in found:
        wait_until(lambda one=one: one.portion.claimable, "it is offered", TIMEOUT_S)  # type: ignore[misc]


def fails(_: Streams) -> None:
    raise RuntimeError("a process of Spark's has ended")


def test_each_connector_gets_its_portion(worker: Worker, streams: Streams) -> None:
    """Through one query, in a pool of its own, whatever the number of connectors."""
    found = [worker.subscribed("a"), worker.subscribed("b")]
    offered(*found)

    def life(streams: Streams) -> None:
        streams.found = cast("Any", streams.micro_batch())
        streams.take(Mock())

    streams.lives = [life]
    worker.query.start(prepares=False)
    batches = [one.next(TIMEOUT_S) for one in found]
    assert [[str(read.tp) for read in one.ranges] for one in batches if isinstance(one, Batch)] == [["a-0"], ["b-0"]]
    worker.spark.sparkContext.setLocalProperty.assert_called_once_with("spark.scheduler.pool", POOL)
    assert len(streams.started) == 1


def test_offers_that_follow_are_read_in_the_same_micro_batch(streams: Streams) -> None:
    """The driver reads on for as long as few offsets are offered; Spark is asked for nothing meanwhile."""

    def read(tasks: Any, _: Any, deliver: Callable[[int, Any], None]) -> None:
        for portion in (portion for task in tasks for portion in task.portions):
            deliver(portion.portion, batch_of(portion.ranges))

    few = MemoryAdmin({TopicPartition("a", 0): 5, TopicPartition("b", 0): 7})
    worker = Worker(streams, few, timings=QueryTimings(look_ms=10, again_ms=0, more_ms=30_000), read=read)
    first = worker.subscribed("a")
    offered(first)

    def life(streams: Streams) -> None:
        streams.micro_batch()
        streams.take(Mock())

    streams.lives = [life]
    worker.query.start(prepares=False)
    assert isinstance(first.next(TIMEOUT_S), Batch)
    assert isinstance(worker.subscribed("b").next(TIMEOUT_S), Batch)
    assert streams.at == 2
    worker.close()


def test_a_failed_query_is_started_again_and_its_portions_are_read_alone(worker: Worker, streams: Streams) -> None:
    """A connector without a portion in it is offered to the next query as before; no connector fails."""
    found, later = worker.subscribed("a"), list[Subscription]()
    offered(found)

    def claims_and_fails(streams: Streams) -> None:
        assert streams.micro_batch()
        later.append(worker.subscribed("b"))
        raise RuntimeError("a process of Spark's has ended")

    streams.lives = [claims_and_fails]
    worker.query.start(prepares=False)
    alone = found.next(TIMEOUT_S)
    assert isinstance(alone, Offer)
    assert found.portion.trouble.suspect
    wait_until(lambda: len(streams.started) == 2, "it is started again", TIMEOUT_S)
    assert streams.started[0].stop.called
    offered(*later)
    assert later[0].next(0) is None


@pytest.mark.parametrize(("code", "error"), [(None, RuntimeError), (-9, SparkGoneError)], ids=["query", "Spark"])
def test_a_query_that_fails_in_vain_fails_every_connector(
    worker: Worker, streams: Streams, code: int | None, error: type[Exception]
) -> None:
    """Twice without a micro-batch between: it does not come back; where Spark has ended, that is the reason."""
    worker.spark.code = code
    found = [worker.subscribed("a"), worker.subscribed("b")]
    streams.lives = [fails, fails]
    worker.query.start(prepares=False)
    for one in found:
        with pytest.raises(error):
            one.next(TIMEOUT_S)
    wait_until(lambda: len(streams.started) == 3, "it is tried on", TIMEOUT_S)


def test_failures_between_micro_batches_are_none_in_vain(worker: Worker, streams: Streams) -> None:
    """A query that delivers now and then goes on, however often it fails."""
    found = worker.subscribed("a")

    def delivers_and_fails(streams: Streams) -> None:
        streams.take(Mock())
        raise RuntimeError("a process of Spark's has ended")

    streams.lives = [fails, delivers_and_fails] * 3
    worker.query.start(prepares=False)
    wait_until(lambda: len(streams.started) == 7, "it is started again", TIMEOUT_S)
    found.next(0)  # raises what it has failed with


def test_a_query_that_ends_without_an_error_is_started_again(worker: Worker, streams: Streams) -> None:
    """However often: nothing is wrong with its connectors, which go on."""
    found = worker.subscribed("a")

    def ends(these: Streams) -> None:
        these.started[-1].isActive = False

    streams.lives = [ends] * 3
    worker.query.start(prepares=False)
    wait_until(lambda: len(streams.started) == 4, "it is started again", TIMEOUT_S)
    found.next(0)  # raises what it has failed with


def test_a_query_that_cannot_be_started_is_one_that_failed(worker: Worker, streams: Streams) -> None:
    """Its connectors hear it after the second time, too."""
    found = worker.subscribed("a")
    streams.refuses = RuntimeError("no JVM")
    worker.query.start(prepares=False)
    with pytest.raises(RuntimeError, match="no JVM"):
        found.next(TIMEOUT_S)


def test_a_full_disk_is_no_end_of_the_query(worker: Worker, streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its folder cannot be made it is started again until it can; its thread never ends by itself."""
    found = worker.subscribed("a")
    made, full = tempfile.mkdtemp, OSError(errno.ENOSPC, "no space left on device")
    monkeypatch.setattr(tempfile, "mkdtemp", Mock(side_effect=full))
    worker.query.start(prepares=False)
    with pytest.raises(OSError, match="no space left"):
        found.next(TIMEOUT_S)
    assert (streams.started, worker.query.failure) == ([], None)
    monkeypatch.setattr(tempfile, "mkdtemp", made)
    wait_until(lambda: len(streams.started) == 1, "it is started", TIMEOUT_S)


def test_what_ends_the_query_for_good_is_told() -> None:
    """A worker whose query nobody starts again would look healthy, and do nothing."""

    class Broken(ManualClock):
        def wait_ms(self, ms: int, event: threading.Event) -> bool:
            raise RuntimeError("a defect")

    parts = QueryParts(start=Mock(side_effect=RuntimeError("no JVM")))
    query = SharedQuery(cast("Any", StandInSession()), Broken(), connectors=1, parts=parts)
    query.start(prepares=False)
    wait_until(lambda: query.failure is not None, "its thread ends", TIMEOUT_S)
    assert str(query.failure) == "a defect"
    assert query.stop(TIMEOUT_S)


def test_a_stop_starts_no_other_query(streams: Streams, brokers: MemoryAdmin) -> None:
    """A connector that ends with the worker takes what is read for it away, and the query is not needed any more."""
    worker = Worker(streams, brokers, connectors=1)
    offered(worker.subscribed("a"))
    worker.query.start(prepares=False)
    wait_until(lambda: len(streams.started) == 1, "it is started", TIMEOUT_S)
    assert streams.micro_batch()
    worker.query.begin_stop()
    worker.unsubscribe()  # another query would be started otherwise: a task without bounds reads for it alone
    assert worker.query.stop(TIMEOUT_S)
    assert len(streams.started) == 1


def test_a_connector_that_leaves_is_closed(worker: Worker) -> None:
    """However it leaves, before the client that asks for it is closed: what that interrupts is no outage."""
    with worker.query.subscribed(options("a"), worker.stopped) as subscription:
        assert subscription.plannable or subscription.portion.claimable
    assert (subscription.plannable, subscription.portion.claimable) == (False, False)


def test_a_connector_that_cannot_begin_leaves_nothing(worker: Worker, brokers: MemoryAdmin) -> None:
    """Its poller ends, nobody plans for it, and the others do not notice."""
    starts = {"a": TopicOffsets("another", {0: 1})}
    with pytest.raises(SourceChangedError):
        worker.subscribed("a", starts=starts)
    wait_until(lambda: not pollers(), "its poller ends", TIMEOUT_S)
    brokers.away = True
    worker.stopped.set()
    with pytest.raises(KeyfoldError, match="c-b"):  # stopped while it waits for the brokers
        worker.subscribed("b")
    brokers.away = False


def test_the_end_interrupts_what_it_reads(worker: Worker, streams: Streams) -> None:
    """A stop waits for no micro-batch: the query is stopped, and connectors get nothing any more."""
    found = worker.subscribed("a")
    worker.query.start(prepares=False)
    wait_until(lambda: len(streams.started) == 1, "it is started", TIMEOUT_S)
    offered(found)
    read = streams.micro_batch()
    assert len(read) == 1
    offered(worker.subscribed("b"))
    assert worker.query.stop(TIMEOUT_S)
    assert streams.started[0].stop.called
    assert streams.plans.latest(streams.at) == streams.at  # though "b" has an offer
    found.close()  # as its connector does
    streams.plans.deliver(read)
    assert found.next(0) is None


def test_what_the_end_interrupts_is_no_error(worker: Worker, streams: Streams) -> None:
    """Spark would search its text for an interruption, with an expression that overflows the stack of its thread."""
    worker.query.start(prepares=True)
    wait_until(lambda: len(streams.started) == 1, "it is started", TIMEOUT_S)
    streams.breaks = RuntimeError("its job was cancelled")
    worker.query.begin_stop()
    streams.take(Mock())


def test_spark_gets_a_short_error_and_the_whole_is_kept(worker: Worker, streams: Streams) -> None:
    """A traceback of Python's would overflow the stack; what Spark makes of the short one is not the reason."""
    found, short = worker.subscribed("a"), list[BaseException]()
    streams.breaks = whole = RuntimeError("a process of Spark's has ended")

    def life(streams: Streams) -> None:
        with pytest.raises(Exception, match=r"\ARuntimeError\Z") as error:
            streams.take(Mock())
        short.append(error.value)
        raise RuntimeError("StackOverflowError")

    streams.lives = [life, life]
    worker.query.start(prepares=True)
    with pytest.raises(RuntimeError) as heard:
        found.next(TIMEOUT_S)
    assert heard.value is whole
    assert [(error.__cause__, error.__suppress_context__) for error in short] == [(None, True)] * 2


def test_the_process_knows_whether_a_connector_reads(streams: Streams, brokers: MemoryAdmin) -> None:
    """Work that may take long leaves it a task of Spark's, from its subscription to its end, even if it is alone."""
    worker = Worker(streams, brokers, connectors=1)
    assert not READERS
    worker.subscribed("a")
    assert READERS
    worker.unsubscribe()
    assert not READERS
    worker.close()


def test_a_micro_batch_that_does_not_end_for_others_is_read_again(streams: Streams, brokers: MemoryAdmin) -> None:
    """Its tasks may be on machines that do not see that it should; after a while the query goes on without it."""
    timings = QueryTimings(look_ms=10, again_ms=0, early_end_ms=0)
    worker = Worker(streams, brokers, connectors=1, timings=timings)
    found = worker.subscribed("a")
    offered(found)

    def claims(streams: Streams) -> None:
        assert streams.micro_batch()

    streams.lives = [claims]
    worker.query.start(prepares=False)
    wait_until(lambda: len(streams.started) == 1, "it is started", TIMEOUT_S)
    assert worker.query.batches.ending is None
    worker.query.share_among(2)
    alone = found.next(TIMEOUT_S)
    assert isinstance(alone, Offer)
    wait_until(lambda: len(streams.started) == 2, "it is started again", TIMEOUT_S)
    assert worker.query.batches.ending is None
    worker.close()
