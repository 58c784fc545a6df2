"""Who follows the brokers for whom, and since when."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from typing import Any, cast

import pytest

from compactor.model.record import TopicPartition
from connectors.clock import Clock, SystemClock
from connectors.kafka.client_settings import ClientSettings, Setting
from connectors.source.offer_turns import FEWEST, LONG_MS, most
from connectors.source.options import SourceOptions
from connectors.source.planner import Planner
from connectors.source.poller import REPLAN_MS, Pace, Pollers, SourcePoller
from connectors.source.subscription import Subscription
from connectors.source.topics import SharedAnswers
from tests.support.clocks import ManualClock
from tests.support.kafka import wait_until
from tests.support.memory.admin import MemoryAdmin
from tests.support.source_options import NOBODY, source_options
from tests.support.subscribed import batch_of
from tests.support.thread_limit import no_thread_named

A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)
TIMEOUT_S = 30.0


class NotingClock(SystemClock):
    """The machine's clock, with how long (ms) the last wait may take."""

    waits = 0

    def wait_ms(self, ms: int, event: threading.Event) -> bool:
        self.waits = ms
        return super().wait_ms(ms, event)


class Worker:
    """Pollers of a worker over brokers in memory, and the connectors that borrow them."""

    def __init__(self, pace: Pace) -> None:
        self.brokers = MemoryAdmin({A0: 5, B0: 7})
        self.woken = threading.Semaphore(0)
        self.clock = NotingClock()
        self.refuses = False
        self.kind: type[SharedAnswers] = SharedAnswers
        self.pollers = Pollers(self.woken.release, self.clock, self.answers, pace)
        self.borrowed: list[SourcePoller] = []

    def answers(self, _: ClientSettings, clock: Clock) -> SharedAnswers:
        if self.refuses:
            raise ValueError("no such file")
        brokers = cast("Any", self.brokers)
        return self.kind(brokers, brokers, clock)

    def poller(self, clock: Clock | None = None) -> SourcePoller:
        """One without a thread, so that the test says when it asks."""
        clients, by = options("c", "a").clients, clock or self.clock
        return SourcePoller(clients, self.answers(clients, by), self.woken.release, by, Pace(cores=1))

    def borrow(self, connector: str = "c", **more: Setting) -> SourcePoller:
        found = self.pollers.borrow(options(connector, "a", **more).clients)
        self.borrowed.append(found)
        return found

    def give_back(self, poller: SourcePoller) -> None:
        self.borrowed.remove(poller)
        self.pollers.give_back(poller)

    def subscribed(self, poller: SourcePoller, *topics: str) -> Subscription:
        """A connector that reads `topics`, as the poller is to follow it."""
        named = options(f"c-{topics[0]}", *topics)
        planner = Planner(named, poller.topics(named.connector))
        found = Subscription(named, planner, SystemClock(), poller.poll_now, shared=lambda: True)
        found.begin()
        poller.add(found)
        return found


def options(connector: str, *topics: str, **more: Setting) -> SourceOptions:
    return source_options({**NOBODY, **more}, topics, connector=connector)


@pytest.fixture
def pace() -> Pace:
    return Pace(poll_ms=10, pause_ms=5)


@pytest.fixture
def worker(pace: Pace) -> Iterator[Worker]:
    found = Worker(pace)
    yield found
    for one in list(found.borrowed):
        found.give_back(one)


def test_connectors_with_equal_settings_share_a_poller(worker: Worker) -> None:
    """Names differ by connector, and change nothing of what is read."""
    first = worker.borrow(connector="one")
    assert worker.borrow(connector="two") is first
    assert first.clients.consumer()["client.id"] == "connector-consumer-one"


@pytest.mark.parametrize(
    "other", [{"bootstrap.servers": "127.0.0.1:2"}, {"sasl.username": "other"}, {"fetch.min.bytes": 7}], ids=str
)
def test_connectors_with_other_settings_do_not(worker: Worker, other: dict[str, Setting]) -> None:
    """Other brokers, another principal, another way to fetch: a consumer of one is none of the other."""
    assert worker.borrow() is not worker.borrow("c", **other)


def test_consumers_that_differ_are_not_shared(worker: Worker) -> None:
    """Settings of consumers alone count too: one consumer reads for all of them."""
    named = options("c", "a").clients
    other = ClientSettings(named.admin(), {**named.consumer(), "fetch.min.bytes": 7}, {})
    found = worker.pollers.borrow(other)
    worker.borrowed.append(found)
    assert worker.borrow() is not found


def test_a_poller_ends_with_its_last_user(worker: Worker) -> None:
    """The next connector with its settings gets a new one."""
    first = worker.borrow(connector="one")
    worker.borrow(connector="two")
    worker.give_back(first)
    assert first.is_alive()
    worker.give_back(first)
    wait_until(lambda: not first.is_alive(), "its thread ends", TIMEOUT_S)
    again = worker.borrow()
    assert again is not first
    assert again.is_alive()


def test_a_poller_lives_while_a_connector_is_about_to_be_added(worker: Worker) -> None:
    """A connector asks the brokers where it begins before it is planned for, and the last other one may end then."""
    poller = worker.borrow(connector="ends")
    subscription = worker.subscribed(poller, "a")
    assert worker.borrow(connector="begins") is poller
    poller.remove(subscription)
    worker.give_back(poller)
    begun = worker.subscribed(poller, "b")
    wait_until(lambda: begun.portion.claimable, "the one that began is offered", TIMEOUT_S)


def test_one_question_is_for_all_of_them(worker: Worker) -> None:
    """The ends of all connectors are asked for at once, and whoever plans the query is woken by an offer."""
    poller = worker.poller()
    found = [worker.subscribed(poller, "a"), worker.subscribed(poller, "b")]
    worker.brokers.asked.clear()
    poller.poll()
    assert worker.brokers.asked == [{A0, B0}]
    assert [one.portion.claimable for one in found] == [True, True]
    assert worker.woken.acquire(blocking=False)
    poller.poll()  # nobody has anything to plan: nobody is asked, nobody woken
    assert (worker.brokers.asked, worker.woken.acquire(blocking=False)) == ([{A0, B0}], False)


class _Begun:
    """A connector that waits for its first offer."""

    is_idle = True
    planned_ms: int | None = None


class Offered(_Begun):
    """A connector that has something new each time, and notes in `turns` when it was offered that."""

    def __init__(self, name: str, clock: ManualClock, turns: list[str]) -> None:
        self.name, self.clock, self.turns = name, clock, turns

    def partitions(self) -> list[TopicPartition]:
        return [A0] if self.is_idle else []

    def plan(self) -> bool:
        if not self.is_idle:
            return False
        self.is_idle, self.planned_ms = False, self.clock.monotonic_ms()
        self.turns.append(self.name)
        return True


class Planned(_Begun):
    """A connector that reads partition a-0 and never finds anything; counts its plans."""

    plannable = True

    def __init__(self) -> None:
        self.listed = [A0]
        self.plans = 0

    def partitions(self) -> list[TopicPartition]:
        return self.listed

    def plan(self) -> bool:
        self.plans += 1
        return False


@pytest.fixture
def turns() -> list[str]:
    """The names of connectors in the order of their offers."""
    return []


def offered_few(worker: Worker, clock: ManualClock, turns: list[str]) -> tuple[SourcePoller, list[Offered]]:
    """Returns a poller that has polled once for three connectors more than have an offer at a time, and these."""
    poller = worker.poller(clock)
    many = [Offered(f"c{number}", clock, turns) for number in range(FEWEST + 3)]
    for connector in many:
        poller.add(cast("Any", connector))
    poller.poll()
    return poller, many


def test_few_connectors_have_an_offer_at_a_time(worker: Worker, turns: list[str]) -> None:
    """Whoever has taken its portion makes room for the one that was offered something longest ago."""
    clock = ManualClock()
    poller, many = offered_few(worker, clock, turns)
    assert turns == [connector.name for connector in many[:FEWEST]]
    clock.advance(1)
    worker.brokers.asked.clear()
    poller.poll()
    assert (len(turns), worker.brokers.asked) == (FEWEST, [])  # nor are brokers asked for what nobody may have
    many[0].is_idle = many[1].is_idle = True
    poller.poll()
    assert turns[FEWEST:] == [connector.name for connector in many[FEWEST : FEWEST + 2]]
    many[2].is_idle = many[3].is_idle = True
    poller.poll()
    assert turns[FEWEST + 2 :] == [many[-1].name, many[0].name]


@pytest.mark.parametrize(
    ("connectors", "cores", "limit"), [(1, 1, FEWEST), (16, 2, FEWEST), (20, 2, 10), (100, 2, 50), (20, 16, 64)]
)
def test_cores_and_connectors_say_how_many_have_an_offer(connectors: int, cores: int, limit: int) -> None:
    """Where they wait for stores and not for cores, a limit that does not rise with them would slow many down."""
    assert most(connectors, cores) == limit


def test_an_offer_that_takes_long_keeps_nobody_waiting(worker: Worker, turns: list[str]) -> None:
    """A store or a broker that is slow takes no processor: the others are offered what they have meanwhile."""
    clock = ManualClock()
    poller, many = offered_few(worker, clock, turns)
    clock.advance(LONG_MS - 1)
    poller.poll()
    assert len(turns) == FEWEST
    clock.advance(1)
    poller.poll()
    assert turns == [connector.name for connector in many]


class Slow(_Begun):
    """A connector whose leader takes 5 s for each answer, by `clock`; it is asked for one after the other."""

    def __init__(self, clock: ManualClock) -> None:
        self.options = options("slow", "a")
        self.clock = clock
        self.plannable = True
        self.slow = True
        self.plans = 0

    def partitions(self) -> list[TopicPartition]:
        return [A0] if self.plannable else []

    def plan(self) -> bool:
        self.plans += 1
        self.clock.advance(5_000 if self.plannable and self.slow else 0)
        return False


def test_nobody_plans_where_nothing_has_moved(worker: Worker) -> None:
    """Only now and then, as topics change; at once where an end or the position has moved."""
    clock, one = ManualClock(), Planned()
    poller = worker.poller(clock)
    poller.add(cast("Any", one))

    def plans() -> int:
        before = one.plans
        poller.poll()
        return one.plans - before

    assert [plans(), plans(), plans()] == [1, 0, 0]
    worker.brokers.ends[A0] = 6
    assert [plans(), plans()] == [1, 0]
    one.listed = list(one.listed)
    assert [plans(), plans()] == [1, 0]
    clock.advance(REPLAN_MS)
    assert [plans(), plans()] == [1, 0]
    worker.brokers.away = True
    assert [plans(), plans()] == [1, 1]  # how long it is not answered is counted by its plans
    worker.brokers.away = False
    assert [plans(), plans()] == [1, 0]


def test_a_slow_connector_is_asked_alone_until_its_own_answer_is_quick(worker: Worker) -> None:
    """Also while nothing is to be asked for it: that it was quick then says nothing of its leader."""
    clock = ManualClock()
    poller = worker.poller(clock)
    slow, other = Slow(clock), Planned()
    for one in (slow, other):
        poller.add(cast("Any", one))

    def together() -> int:
        """Polls once; returns how many connectors were asked for together."""
        poller.poll()
        found = len(poller._lists)
        wait_until(lambda: not poller._asking, "those that are asked alone are answered", TIMEOUT_S)
        return found

    assert together() == 2
    wait_until(lambda: together() == 1, "the other is quick by itself", TIMEOUT_S)
    slow.plannable = False
    assert [together() for _ in range(3)] == [1, 1, 1]
    slow.plannable, slow.slow = True, False
    wait_until(lambda: together() == 2, "both are asked together again", TIMEOUT_S)


def test_a_slow_connector_without_a_thread_has_another_turn(worker: Worker) -> None:
    """Those that are asked for together go on, and it does not fail."""
    clock = ManualClock()
    poller = worker.poller(clock)
    slow, other = Slow(clock), Planned()
    poller.add(cast("Any", slow))
    poller.poll()
    poller.add(cast("Any", other))
    with no_thread_named("source-poller-slow"):
        poller.poll()
    assert (slow.plans, other.plans) == (1, 1)
    poller.poll()
    wait_until(lambda: slow.plans > 1, "it is asked for", TIMEOUT_S)


def test_few_slow_connectors_are_asked_at_a_time_and_each_gets_its_turn(worker: Worker) -> None:
    """One waits for one of four threads, and goes behind the others, as long as its leader is slow."""
    clock = ManualClock()
    poller = worker.poller(clock)
    held = threading.Semaphore(0)
    many = [_Held(held) for _ in range(6)]
    for one in many:
        poller.add(cast("Any", one))
    poller._slow = dict.fromkeys(cast("Any", many))

    def round_of_four() -> None:
        before = sum(one.plans for one in many)
        for _ in range(3):
            poller.poll()
        wait_until(lambda: sum(one.plans for one in many) == before + 4, "four are asked", TIMEOUT_S)
        clock.advance(5_000)
        held.release(4)
        wait_until(lambda: not poller._asking, "they are answered", TIMEOUT_S)

    for rounds in (1, 2):
        round_of_four()
        round_of_four()
        assert min(one.plans for one in many) >= rounds


class _Held(_Begun):
    """A slow connector, which is answered once `held` lets it."""

    plannable = True

    def __init__(self, held: threading.Semaphore) -> None:
        self._held = held
        self.plans = 0

    def partitions(self) -> list[TopicPartition]:
        return []

    def plan(self) -> bool:
        self.plans += 1
        assert self._held.acquire(timeout=TIMEOUT_S)
        return False


def test_a_poller_that_cannot_be_made_is_borrowed_by_nobody(worker: Worker) -> None:
    """A certificate that is away for a moment: the next one is given back, and ends, as if there had been no first."""
    worker.refuses = True
    for _ in range(2):
        with pytest.raises(ValueError, match="no such file"):
            worker.borrow()
    worker.refuses = False
    poller = worker.borrow()
    worker.give_back(poller)
    wait_until(lambda: not poller.is_alive(), "its thread ends", TIMEOUT_S)


def test_a_topic_that_is_gone_is_asked_for_no_more(worker: Worker) -> None:
    """Its partitions stay in the position; where they were asked for, the answer for all others would be an error."""
    poller = worker.poller()
    worker.brokers.ends[TopicPartition("c", 0)] = 1
    found = worker.subscribed(poller, "a", "c")
    del worker.brokers.ends[TopicPartition("c", 0)]
    found._planner._topics = None  # as after the answer that it is gone
    poller.poll()
    claimed = found.claim()
    assert claimed is not None
    found.deliver(None)
    found.taken(batch_of(claimed.ranges))
    assert found.partitions() == [A0]


def test_what_is_kept_of_plans_goes_with_their_connectors(worker: Worker) -> None:
    """Connectors come and go for as long as the worker runs."""
    poller, stays = worker.poller(), Planned()
    poller.add(cast("Any", stays))
    for _ in range(5):
        passing: Any = Planned()
        poller.add(passing)
        poller.poll()
        poller.remove(passing)
        del passing
    poller.poll()
    assert list(poller._empty_plans) == [cast("Any", stays)]


@pytest.mark.parametrize("pace", [Pace(poll_ms=60_000, pause_ms=5)])
def test_an_offer_follows_what_was_taken(worker: Worker) -> None:
    """A connector that has taken its portion is planned for at once, not with the next round."""
    poller = worker.borrow()
    subscription = worker.subscribed(poller, "a")
    wait_until(lambda: subscription.portion.claimable, "it is offered", TIMEOUT_S)
    wait_until(lambda: worker.clock.waits > TIMEOUT_S, "it waits for the next round", TIMEOUT_S)
    claimed = subscription.claim()
    assert claimed is not None
    worker.brokers.ends[A0] = 9
    subscription.deliver(None)
    subscription.taken(batch_of(claimed.ranges))
    wait_until(lambda: subscription.portion.claimable, "it is offered again", TIMEOUT_S)


def test_one_that_was_removed_is_planned_for_no_more(worker: Worker) -> None:
    """The partitions of a connector that was removed are not asked for their ends."""
    poller = worker.borrow()
    gone, stays = worker.subscribed(poller, "a"), worker.subscribed(poller, "b")
    wait_until(lambda: gone.portion.claimable and stays.portion.claimable, "both are offered", TIMEOUT_S)
    poller.stop()
    wait_until(lambda: not poller.is_alive(), "its thread ends", TIMEOUT_S)
    poller.remove(gone)
    for one in (gone, stays):
        claimed = one.claim()
        assert claimed is not None
        one.deliver(None)
        one.taken(batch_of(claimed.ranges))
    worker.brokers.ends |= {A0: 50, B0: 70}
    worker.brokers.asked.clear()
    poller.poll()
    assert worker.brokers.asked == [{B0}]
    assert (gone.portion.claimable, stays.portion.claimable) == (False, True)


def test_no_connector_is_lost_where_several_come_and_go(worker: Worker) -> None:
    """Connectors begin and end on threads of their own, all at once."""
    poller, stays = worker.borrow(), list[Any]()
    start = threading.Barrier(8)

    def come_and_go() -> None:
        start.wait(TIMEOUT_S)
        for _ in range(200):
            mine, passing = _Idle(), _Idle()
            poller.add(mine)  # type: ignore[arg-type]
            poller.add(passing)  # type: ignore[arg-type]
            stays.append(mine)
            poller.remove(passing)  # type: ignore[arg-type]

    threads = [threading.Thread(target=come_and_go) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(TIMEOUT_S)
    assert len(poller._subscriptions) == len(stays) == 1_600
    assert set(poller._subscriptions) == set(stays)


class _Idle(_Begun):
    """A subscription with nothing to plan."""

    def partitions(self) -> list[TopicPartition]:
        return []

    def plan(self) -> bool:
        return False


class _NoneTogether(SharedAnswers):
    """Answers no question for all."""

    def refresh(self, partitions: Collection[TopicPartition]) -> Any:
        raise TimeoutError(partitions)


def test_a_question_for_all_that_fails_is_asked_for_each(worker: Worker) -> None:
    """Whatever went wrong with it (a future that did not come, say): no connector fails for what others asked."""
    worker.kind = _NoneTogether
    poller = worker.borrow()
    found = [worker.subscribed(poller, "a"), worker.subscribed(poller, "b")]
    for one in found:
        wait_until(lambda one=one: one.portion.claimable, "it is offered", TIMEOUT_S)  # type: ignore[misc]
        assert one.next(0) is None, "it has not failed"
