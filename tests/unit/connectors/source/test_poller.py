"""What the brokers are asked for connectors that share a poller, and who plans after that."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any, cast

import pytest

from compactor.model.record import TopicPartition
from connectors.source.poller import REPLAN_MS, Pace
from connectors.source.topics import SharedAnswers
from tests.support.clocks import ManualClock
from tests.support.kafka import wait_until
from tests.support.polled import A0, B0, TIMEOUT_S, Begun, Planned, PollingWorker
from tests.support.subscribed import batch_of


def test_one_question_is_for_all_of_them(worker: PollingWorker) -> None:
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


def test_nobody_plans_where_nothing_has_moved(worker: PollingWorker) -> None:
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


def test_a_topic_that_is_gone_is_asked_for_no_more(worker: PollingWorker) -> None:
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


def test_what_is_kept_of_plans_goes_with_their_connectors(worker: PollingWorker) -> None:
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
def test_an_offer_follows_what_was_taken(worker: PollingWorker) -> None:
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


def test_one_that_was_removed_is_planned_for_no_more(worker: PollingWorker) -> None:
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


def test_no_connector_is_lost_where_several_come_and_go(worker: PollingWorker) -> None:
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


class _Idle(Begun):
    """A subscription with nothing to plan."""

    def partitions(self) -> list[TopicPartition]:
        return []

    def plan(self) -> bool:
        return False


class _NoneTogether(SharedAnswers):
    """Answers no question for all."""

    def refresh(self, partitions: Collection[TopicPartition]) -> Any:
        raise TimeoutError(partitions)


def test_a_question_for_all_that_fails_is_asked_for_each(worker: PollingWorker) -> None:
    """Whatever went wrong with it (a future that did not come, say): no connector fails for what others asked."""
    worker.kind = _NoneTogether
    poller = worker.borrow()
    found = [worker.subscribed(poller, "a"), worker.subscribed(poller, "b")]
    for one in found:
        wait_until(lambda one=one: one.portion.claimable, "it is offered", TIMEOUT_S)  # type: ignore[misc]
        assert one.next(0) is None, "it has not failed"
