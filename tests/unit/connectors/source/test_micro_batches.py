"""Which portions a micro-batch holds, which tasks read them, and to whom they are delivered."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from compactor.ingest.appends import Batch
from compactor.model.record import TopicPartition
from connectors.source.assignment import ReadTask
from connectors.source.micro_batches import SMALLEST, MicroBatches
from connectors.source.portion import Offer
from connectors.source.read_route import DRIVER_READ_MAX
from connectors.source.subscription import Subscription
from tests.support.memory.cluster import MemoryCluster
from tests.support.subscribed import Subscribed, batch_of

TIMEOUT_S = 30.0
TASKS = 3


class Query:
    """Subscriptions over brokers in memory, whose micro-batches are planned as Spark would ask for them."""

    def __init__(self, *, shared: bool = True, wait_s: float = 0.0) -> None:
        self.cluster = MemoryCluster()
        self.batches = MicroBatches(TASKS, shared=shared, wait_s=wait_s)
        self.shared = shared
        self.at = 0

    def add(self, topic: str, *logs: tuple[int, int], **named: Any) -> Subscription:
        """A connector that reads `topic`, with an offer of everything."""
        self.cluster.put(topic, *logs)
        one = Subscribed(self.cluster, topic, shared=self.shared, **named)
        self.batches.add(one.subscription, one.options.clients)
        one.subscription.plan()
        return one.subscription

    def next(self) -> list[ReadTask]:
        """The tasks of the next micro-batch; none where none is planned."""
        before, self.at = self.at, self.batches.latest(self.at)
        return self.batches.tasks(before, self.at)


@pytest.fixture
def query() -> Query:
    return Query()


def connectors(tasks: list[ReadTask]) -> Counter[str]:
    """How many tasks read anything of each connector."""
    return Counter(portion.options.connector for task in tasks for portion in task.portions)


def portion_of(tasks: list[ReadTask], connector: str) -> int:
    """The number of a connector's portion."""
    (found,) = {each.portion for task in tasks for each in task.portions if each.options.connector == connector}
    return found


def partitions(tasks: list[ReadTask]) -> list[TopicPartition]:
    """Every range's partition, by task."""
    return [one.topic_partition for task in tasks for each in task.portions for one in each.ranges]


def test_numbers_rise_by_one_and_stay_where_nothing_is_new(query: Query) -> None:
    """A query that is started again begins behind the last number, with no empty micro-batch."""
    assert (query.at, query.batches.begin(), query.next()) == (0, 0, [])
    query.add("a", (0, 9))
    query.next()
    assert (query.at, query.batches.begin()) == (1, 1)
    query.batches.abandon()
    assert (query.batches.latest(query.batches.begin()), query.next()) == (1, [])


@pytest.mark.parametrize("processes", [0, 3])
def test_the_first_micro_batch_may_hold_nothing(query: Query, processes: int) -> None:
    """Spark gets ready with it, beside the take-overs; what is offered already is in the next one."""
    query.add("a", (0, 9))
    query.batches.warm_up(processes)
    assert query.next() == [ReadTask((), bounded=True)] * processes
    assert query.batches.driver_tasks() == (None if processes else [])  # without processes Spark runs no job for it
    query.batches.deliver({})
    assert connectors(query.next()) == {"c-a": 1}


def test_small_portions_are_read_apart_until_a_micro_batch_has_run() -> None:
    """Also while Spark has planned its first one: until that is handed out, it has shown nothing."""
    query = Query(shared=False)
    query.batches.warm_up(0)
    first = query.add("a", (0, 9), query_starts=lambda: query.batches.starts)
    assert isinstance(first.next(0), Offer)
    query.next()
    assert query.batches.starts
    query.batches.deliver({})
    second = query.add("b", (0, 9), query_starts=lambda: query.batches.starts)
    assert second.next(0) is None
    assert connectors(query.next()) == {"c-b": 1}


def test_what_is_asked_twice_is_answered_twice(query: Query) -> None:
    """Spark may ask again for a micro-batch: it is the same, and no other offer becomes part of it."""
    query.add("a", (0, 9))
    first = query.next()
    query.add("b", (0, 9))
    assert query.batches.latest(0) == 1
    assert query.batches.tasks(0, 1) == first
    assert query.batches.tasks(1, 1) == []


def test_each_connector_gets_its_own_portion(query: Query) -> None:
    """A portion is known by its number, in any order; a connector reads a missing one apart."""
    found = {name: query.add(name, (0, end)) for name, end in (("a", 3), ("b", 5), ("c", 7))}
    tasks = query.next()
    read = {each.portion: batch_of(each.ranges) for task in tasks for each in task.portions}
    lost = read.pop(portion_of(tasks, "c-b"))
    query.batches.deliver(read)
    for name in ("a", "c"):
        assert found[name].next(0) is read[portion_of(tasks, f"c-{name}")]
    (range_read,) = lost.ranges
    assert isinstance(found["b"].next(0), Offer)
    assert (range_read.hi, found["b"].portion.trouble.suspect) == (5, False)


def test_a_delivery_after_abandoning_reaches_nobody(query: Query) -> None:
    """The query has failed and its portions are read apart by then, so the files of the late one are nobody's."""
    one = query.add("a", (0, 9))
    tasks = query.next()
    assert query.batches.abandon() == 1
    alone = one.next(0)
    query.batches.deliver({portion_of(tasks, "c-a"): batch_of(tasks[0].portions[0].ranges)})
    assert one.next(0) is alone
    assert one.portion.trouble.suspect
    assert query.batches.abandon() == 0


def test_a_late_delivery_is_not_that_of_the_next_micro_batch(query: Query) -> None:
    """Portions are told apart by number, over all micro-batches and queries."""
    one, other = query.add("a", (0, 9)), query.add("b", (0, 9))
    late = {each.portion: batch_of(each.ranges) for task in query.next() for each in task.portions}
    query.batches.abandon()
    for each in (one, other):
        apart = each.next(0)
        assert isinstance(apart, Offer)
        each.taken(batch_of(apart.ranges))
    query.cluster.put("a", (0, 12))
    one.plan()
    tasks = query.next()
    assert portion_of(tasks, "c-a") not in late


def test_a_question_of_a_query_that_has_failed_claims_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its planner process has ended: what it claimed would be read by nobody, and never be offered again."""
    query = Query(wait_s=TIMEOUT_S)
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(query.batches.latest(0)))
    waiting = threading.Event()
    wait_for = query.batches._changed.wait_for

    def waits(condition: Any, seconds: float) -> bool:
        waiting.set()
        return wait_for(condition, seconds)

    monkeypatch.setattr(query.batches._changed, "wait_for", waits)
    asking.start()
    assert waiting.wait(TIMEOUT_S)
    query.batches.abandon()
    one = query.add("a", (0, 9))
    query.batches.wake()
    asking.join(TIMEOUT_S)
    assert (answers, one.portion.claimable) == ([0], True)


@pytest.mark.parametrize("more", [0, 1])
def test_the_driver_reads_a_micro_batch_that_is_small_as_a_whole(query: Query, more: int) -> None:
    """Few offsets start no Spark job; it is the sum of all portions that counts."""
    query.add("a", (0, DRIVER_READ_MAX - 9))
    query.add("b", (0, 9 + more))
    tasks = query.next()
    assert query.batches.driver_tasks() == (None if more else tasks)


def test_what_is_offered_while_the_driver_reads_is_of_the_same_micro_batch(query: Query) -> None:
    """A further one would cost Spark more than the driver's read; it has a portion of its own."""
    first = query.add("a", (0, 9))
    tasks = query.next()
    second = query.add("b", (0, 7))
    more = query.batches.more(query.at, TIMEOUT_S)
    assert (connectors(more), query.next(), query.batches.more(query.at, 0)) == (Counter({"c-b": 1}), [], [])
    query.batches.deliver_portion(portion_of(more, "c-b"), batch_of(more[0].portions[0].ranges))
    assert isinstance(second.next(0), Batch)
    query.batches.deliver_portion(portion_of(tasks, "c-a"), batch_of(tasks[0].portions[0].ranges))
    assert isinstance(first.next(0), Batch)


def test_more_than_the_driver_reads_is_left_to_the_next_micro_batch(query: Query) -> None:
    """Spark's tasks read it, with all that is offered by then."""
    query.add("a", (0, 9))
    query.next()
    query.add("b", (0, 7))
    query.add("c", (0, DRIVER_READ_MAX))
    assert query.batches.more(query.at, TIMEOUT_S) == []
    assert connectors(query.next()) == Counter({"c-b": 1, "c-c": 1})
    assert query.batches.driver_tasks() is None


@pytest.mark.parametrize("how", ["close", "abandon"])
def test_nothing_is_added_once_the_query_has_failed_or_ends(query: Query, how: str) -> None:
    """What would be claimed then would be read by nobody."""
    query.add("a", (0, 9))
    query.next()
    offered, tasks = list[Subscription](), list[list[ReadTask]]()
    asking = threading.Thread(target=lambda: tasks.append(query.batches.more(query.at, 100 * TIMEOUT_S)))
    asking.start()
    getattr(query.batches, how)()
    offered.append(query.add("b", (0, 9)))
    query.batches.wake()
    asking.join(TIMEOUT_S)
    assert (tasks, offered[0].portion.claimable) == ([[]], True)
    assert query.batches.more(query.at, 0) == []


def test_nothing_is_added_to_an_earlier_micro_batch(query: Query) -> None:
    """The thread that reads one of a query that has failed may end late, when Spark's tasks read for the next one."""
    query.add("a", (0, 9))
    query.next()
    earlier = query.at
    query.add("b", (0, 9))
    query.next()
    query.add("c", (0, 9))
    assert query.batches.more(earlier, 0) == []
    assert connectors(query.batches.more(query.at, 0)) == Counter({"c-c": 1})


def test_portions_of_several_are_dealt_without_cutting_a_partition(query: Query) -> None:
    """Every task is about as much work; a partition is one task's, and what is small is one task's together."""
    every = 4 * SMALLEST
    query.add("a", (0, every), (0, every), (0, every))
    query.add("b", (0, every), (0, every), (0, every))
    tasks = query.next()
    assert len(tasks) == TASKS
    assert all(task.bounded for task in tasks)
    assert len(partitions(tasks)) == len(set(partitions(tasks))) == 6
    assert {sum(one.size for each in task.portions for one in each.ranges) for task in tasks} == {2 * every}
    assert all(len({each.portion for each in task.portions}) == len(task.portions) for task in tasks)
    assert sum(connectors(tasks).values()) == 4  # one of the tasks reads of both


def test_small_portions_share_a_task(query: Query) -> None:
    """No task is planned for less than SMALLEST offsets of several connectors."""
    for name in "abcde":
        query.add(name, (0, SMALLEST // 5 - 1))
    tasks = query.next()
    assert [len(task.portions) for task in tasks] == [5]


def test_portions_are_read_with_the_settings_they_were_added_with(query: Query) -> None:
    """A consumer is shared by what all have in common, not by the client.id of each."""
    query.cluster.put("a", (0, 9))
    one, common = Subscribed(query.cluster), Subscribed(query.cluster, connector="common").options.clients
    query.batches.add(one.subscription, common)
    one.subscription.plan()
    (portion,) = query.next()[0].portions
    assert (portion.clients, portion.options.connector) == (common, "c-a")


def test_one_of_several_is_bounded_too(query: Query) -> None:
    """Another connector may have an offer before it is read."""
    query.add("a", (0, 9))
    assert [task.bounded for task in query.next()] == [True]


def test_the_only_connector_is_cut_into_splits() -> None:
    """It waits for nobody: its tasks read to the end, each about as many offsets, as many as tasks.max says."""
    query = Query(shared=False)
    query.add("a", (0, 300_000), limits={"tasks_max": 4})
    tasks = query.next()
    assert [task.bounded for task in tasks] == [False] * 4
    assert len({each.portion for task in tasks for each in task.portions}) == 1
    assert sum(one.size for task in tasks for one in task.portions[0].ranges) == 300_000


def test_one_that_was_removed_is_neither_offered_nor_delivered(query: Query) -> None:
    """Removed while its portion is read, it gets nothing; the others of the micro-batch get theirs."""
    gone, stays = query.add("a", (0, 9)), query.add("b", (0, 9))
    tasks = query.next()
    read = {each.portion: batch_of(each.ranges) for task in tasks for each in task.portions}
    query.batches.remove(gone)
    query.batches.deliver(read)
    assert gone.next(TIMEOUT_S) is None
    assert stays.next(0) is read[portion_of(tasks, "c-b")]
    query.batches.fail(RuntimeError("no query"))
    assert gone.next(TIMEOUT_S) is None
    assert query.next() == []


def test_a_connector_that_ends_with_a_failed_micro_batch_stays_suspect(query: Query) -> None:
    """Restarted at that moment, it would be read with the others again; what was read apart takes that from it."""
    one = query.add("a", (0, 9))
    query.next()
    query.batches.remove(one)
    query.batches.abandon()
    assert query.batches.is_suspect("c-a")
    again = query.add("a", (0, 9))
    again.claim()
    again.abandon()
    query.batches.remove(again)
    assert query.batches.is_suspect("c-a")  # nothing of it was read
    healed = query.add("a", (0, 9))
    query.batches.remove(healed)
    assert not query.batches.is_suspect("c-a")


@pytest.mark.parametrize("how", ["close", "wake"])
def test_a_waiting_question_is_woken(how: str) -> None:
    """The end of the worker and an offer both end the wait at once."""
    query = Query(wait_s=60.0)
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(query.batches.latest(0)))
    asking.start()
    if how == "wake":
        query.add("a", (0, 9))
    getattr(query.batches, how)()
    asking.join(TIMEOUT_S)
    assert answers == [0 if how == "close" else 1]


def test_nothing_is_planned_after_the_end(query: Query) -> None:
    """What has an offer by then is not claimed: nobody would read it."""
    one = query.add("a", (0, 9))
    query.batches.close()
    assert (query.next(), one.portion.claimable) == ([], True)


def test_an_error_of_the_query_reaches_every_connector(query: Query) -> None:
    """It reaches those with an offer and those without: none may wait for ever."""
    found = [query.add("a", (0, 9)), query.add("b", (0, 0))]
    query.batches.fail(RuntimeError("no query"))
    for one in found:
        with pytest.raises(RuntimeError, match="no query"):
            one.next(TIMEOUT_S)


LARGE = 300_000


class OnlyOne(Query):
    """The query of a worker's only connector, which reads a large backlog of one partition in two tasks."""

    def __init__(self, folder: Path) -> None:
        super().__init__(shared=False)
        self.batches.marks = str(folder / "mark")
        self.one = self.add("a", (0, LARGE))
        self.tasks = self.next()
        self.portion = portion_of(self.tasks, "c-a")

    def read(self, *ends: int) -> Batch:
        """What its tasks have read, each of its range up to the offset."""
        ranges = [one for task in self.tasks for each in task.portions for one in each.ranges]
        batches = [batch_of([one], up_to=end) for one, end in zip(ranges, ends, strict=True)]
        return Batch(ranges=tuple(read for batch in batches for read in batch.ranges), parts=())

    def due(self) -> bool:
        return all(task.early_end.is_due(0.0) for task in self.tasks)


@pytest.fixture
def alone(tmp_path: Path) -> OnlyOne:
    return OnlyOne(tmp_path)


def test_a_micro_batch_without_bounds_ends_early_once_there_are_others(alone: OnlyOne) -> None:
    """What it has read is taken, and what is left is read apart, within the bounds of those that share."""
    assert (alone.due(), alone.batches.ending) == (False, None)
    alone.batches.share(shared=True)
    assert (alone.due(), alone.batches.ending) == (True, 1)
    half = LARGE // 2
    alone.batches.deliver({alone.portion: alone.read(half, half + 1_000)})
    assert alone.batches.ending is None
    found = alone.one.next(0)
    assert isinstance(found, Batch)
    assert [(read.lo, read.hi) for read in found.ranges] == [(0, half), (half, half + 1_000)]
    alone.one.taken(found)
    assert alone.one.plan()
    left = alone.one.next(0)
    assert isinstance(left, Offer)
    assert [(one.lo, one.hi) for one in left.ranges] == [(half + 1_000, LARGE)]


def test_tasks_that_end_early_leave_no_gap_in_a_partition(alone: OnlyOne) -> None:
    """The second task's piece does not continue the first's: taken as it is, step 4 would refuse it as a gap."""
    alone.batches.share(shared=True)
    alone.batches.deliver({alone.portion: alone.read(1_000, LARGE)})
    found = alone.one.next(0)
    assert isinstance(found, Batch)
    assert [(read.lo, read.hi) for read in found.ranges] == [(0, 1_000)]
    alone.one.taken(found)
    assert alone.one.plan()
    left = alone.one.next(0)
    assert isinstance(left, Offer)
    assert [(one.lo, one.hi) for one in left.ranges] == [(1_000, LARGE)]


def test_a_hole_that_no_early_end_explains_is_left_to_the_catalog(alone: OnlyOne) -> None:
    """It is a defect, which step 4 refuses."""
    alone.batches.deliver({alone.portion: alone.read(1_000, LARGE)})
    found = alone.one.next(0)
    assert isinstance(found, Batch)
    assert len(found.ranges) == 2


def test_a_micro_batch_is_not_ended_by_what_ended_another(alone: OnlyOne) -> None:
    """Each has a file of its own; one that is over, or has bounds, or was planned before it was read, has none."""
    alone.batches.deliver({alone.portion: alone.read(LARGE, LARGE)})
    alone.batches.share(shared=True)
    assert (alone.due(), alone.batches.ending) == (False, None)
    first, ends = alone.tasks[0].early_end, (LARGE, 2 * LARGE)
    found = alone.one.next(0)
    assert isinstance(found, Batch)
    alone.one.taken(found)
    first.ask()
    alone.batches.share(shared=False)
    alone.cluster.put("a", (0, ends[1]))
    assert alone.one.plan()
    alone.tasks = alone.next()
    assert not alone.due()
    assert not first.is_due(0.0), "the file of an earlier one is removed"
