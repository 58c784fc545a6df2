"""The way round of a connector's offsets: offered, claimed, delivered, taken, offered again."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from compactor.errors import IngestError, StorageError
from compactor.ingest.appends import Batch
from compactor.storage.local import LocalStorage
from connectors.errors import DataLossError, PortionLateError, SourceChangedError
from connectors.source.plan import TopicOffsets
from connectors.source.portion import LATE_MS, Offer
from connectors.source.read_route import APART_IN_DRIVER_MAX, APART_MAX, SHARED_MAX, Route
from tests.support.engine import intake
from tests.support.kafka import wait_until
from tests.support.memory.cluster import MemoryCluster
from tests.support.subscribed import Subscribed, batch_of

TIMEOUT_S = 30.0


@pytest.fixture
def cluster() -> MemoryCluster:
    found = MemoryCluster()
    found.put("a", (0, 9), (0, 5))
    return found


@pytest.fixture
def one(cluster: MemoryCluster) -> Subscribed:
    return Subscribed(cluster)


def test_offsets_go_round(one: Subscribed, cluster: MemoryCluster) -> None:
    """An offer is a portion once, and nothing else is offered until it is taken; the next one begins behind it."""
    assert one.subscription.plan()
    assert one.portion.claimable
    offer = one.subscription.claim()
    assert offer is not None
    assert [(each.partition, each.lo, each.hi) for each in offer.ranges] == [(0, 0, 9), (1, 0, 5)]
    cluster.put("a", (0, 12), (0, 5))
    assert (one.portion.claimable, one.subscription.claim(), one.subscription.plan()) == (
        False,
        None,
        False,
    )
    assert one.subscription.partitions() == []
    assert one.subscription.next(0) is None
    delivered = batch_of(offer.ranges)
    one.subscription.deliver(delivered)
    assert one.subscription.next(0) is delivered
    assert (one.subscription.claim(), one.subscription.plan()) == (None, False)
    assert one.asked_again == 0
    one.subscription.taken(delivered)
    assert one.asked_again == 1
    assert {key.partition for key in one.subscription.partitions()} == {0, 1}
    assert one.offered() == ((9, 12),)


def test_nothing_new_is_no_offer(one: Subscribed) -> None:
    """A connector that has everything has no portion, however often it is planned for."""
    one.offered()
    one.subscription.deliver(one.read())
    one.subscription.taken(one.read())
    assert (one.subscription.plan(), one.portion.claimable, one.subscription.next(0)) == (
        False,
        False,
        None,
    )


def test_nothing_new_wakes_nobody(one: Subscribed) -> None:
    """A plan that finds nothing leaves the portion the same object: an idle worker plans for each every few seconds."""
    one.offered()
    one.subscription.deliver(one.read())
    one.subscription.taken(one.read())
    before = one.portion
    one.subscription.plan()
    assert one.portion is before


def test_an_offer_wakes_whoever_waits(one: Subscribed) -> None:
    """The connector's own thread sees a delivery at once, not when its time is over."""
    one.offered()
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(one.subscription.next(TIMEOUT_S * 2)))
    thread.start()
    delivered = one.read()
    one.subscription.deliver(delivered)
    thread.join(TIMEOUT_S)
    assert found == [delivered]


def test_its_source_is_silent_only_while_it_is_asked(one: Subscribed, cluster: MemoryCluster) -> None:
    """What was noted before a pause, or before an offer, says nothing of the brokers now."""
    cluster.away = True
    one.subscription.plan()
    one.clock.advance(3_000)
    assert one.subscription.silent_ms == 3_000
    one.subscription.pause()
    assert one.subscription.silent_ms == 0
    one.subscription.resume()
    assert one.subscription.silent_ms == 3_000
    cluster.away = False
    assert one.subscription.plan()
    cluster.away = True
    one.planner.latest({}, None)
    one.clock.advance(3_000)
    assert (one.planner.silent_ms, one.subscription.silent_ms) == (3_000, 0)


def test_a_question_that_is_under_way_at_the_end_is_no_failure(one: Subscribed, cluster: MemoryCluster) -> None:
    """The client that asks it may be closed meanwhile: a stop is no outage, in the log neither."""
    ask = cluster.log_ends

    def closed_meanwhile(partitions: Any) -> Any:
        one.subscription.close()
        cluster.away = True
        return ask(partitions)

    cluster.log_ends = closed_meanwhile  # type: ignore[method-assign]
    with capture_logs() as told:
        assert not one.subscription.plan()
    assert [line for line in told if line["event"] == "source is not answered"] == []


def test_what_comes_after_the_end_reaches_nobody(one: Subscribed) -> None:
    """A portion that is delivered or given up after its subscription was closed is nobody's, and nothing follows."""
    one.offered()
    delivered = one.read()
    one.subscription.close()
    with capture_logs() as logged:
        one.subscription.deliver(delivered)
        one.subscription.deliver(PortionLateError("Late."))
        one.subscription.abandon()
    assert logged == []
    assert one.subscription.next(TIMEOUT_S) is None
    assert (one.subscription.plan(), one.subscription.claim(), one.portion.claimable) == (
        False,
        None,
        False,
    )
    assert one.subscription.partitions() == []


def test_an_offer_of_a_closed_connector_is_claimed_no_more(one: Subscribed) -> None:
    """No offer is made either if it was being planned as the connector was closed."""
    one.subscription.plan()
    one.subscription.close()
    assert (one.portion.claimable, one.subscription.claim()) == (False, None)


def test_a_failed_micro_batch_is_read_alone(cluster: MemoryCluster, tmp_path: object) -> None:
    """The same ranges, under a number of their own: files of the failed portion are of a batch that never was."""
    one = Subscribed(cluster, intake=intake(LocalStorage(str(tmp_path))))
    one.subscription.plan()
    claimed = one.subscription.claim()
    assert claimed is not None
    one.subscription.abandon()
    alone = one.apart()
    assert (alone.route, one.portion.trouble.suspect) == (Route.JOB, True)
    assert (alone.ranges, alone.end) == (claimed.ranges, claimed.end)
    assert alone.options.intake != claimed.options.intake
    one.subscription.taken(batch_of(alone.ranges))
    cluster.put("a", (0, 10), (0, 5))
    assert one.offered() == ((9, 10),)  # through the query again


@pytest.mark.parametrize("found", [None, Batch(ranges=(), parts=())], ids=["missing", "empty"])
def test_a_portion_of_which_nothing_was_read_is_read_alone(one: Subscribed, found: Batch | None) -> None:
    """Missing from the answer, or without a stated range: its own job finds out why; nobody is suspected."""
    one.offered()
    one.subscription.deliver(found)
    assert (one.apart().route, one.portion.trouble.suspect) == (Route.DRIVER, False)


def test_the_rest_of_a_portion_is_read_alone_next(one: Subscribed, cluster: MemoryCluster) -> None:
    """What a micro-batch did not read to its end goes on exactly where it stopped, read apart, once."""
    one.subscription.plan()
    claimed = one.subscription.claim()
    assert claimed is not None
    read = batch_of(claimed.ranges, up_to=4)
    one.subscription.deliver(read)
    one.subscription.taken(read)
    assert one.subscription.plan()
    assert not one.portion.claimable
    rest = one.apart()
    assert [(each.partition, each.lo, each.hi) for each in rest.ranges] == [(0, 4, 9), (1, 4, 5)]
    assert rest.route is Route.DRIVER
    one.subscription.taken(batch_of(rest.ranges))
    cluster.put("a", (0, 10), (0, 5))
    assert one.offered() == ((9, 10),)


def test_a_partition_of_which_nothing_was_read_goes_on_at_its_begin(one: Subscribed) -> None:
    """A partition that the delivery does not name stays where it was."""
    one.subscription.plan()
    claimed = one.subscription.claim()
    assert claimed is not None
    read = batch_of(claimed.ranges[:1])
    one.subscription.deliver(read)
    one.subscription.taken(read)
    one.subscription.plan()
    assert [(each.partition, each.lo, each.hi) for each in one.apart().ranges] == [(1, 0, 5)]


def test_a_job_of_its_own_that_stops_early_is_an_error(one: Subscribed) -> None:
    """It reads to the end or raises: otherwise a connector would go round for ever."""
    one.offered()
    one.subscription.deliver(None)
    with pytest.raises(IngestError, match=r"c-a: a-0, offsets \[4, 9\) were not read"):
        one.subscription.taken(batch_of(one.apart().ranges, up_to=4))


def test_offers_keep_the_interval(cluster: MemoryCluster) -> None:
    """No two offers of a connector begin within trigger.interval.ms; the first one waits for nothing."""
    one = Subscribed(cluster, interval_ms=5_000)
    one.offered()
    one.subscription.deliver(one.read())
    one.subscription.taken(one.read())
    cluster.put("a", (0, 12), (0, 5))
    one.clock.advance(4_999)
    assert (one.subscription.partitions(), one.subscription.plan()) == ([], False)
    one.clock.advance(1)
    assert one.subscription.partitions()
    assert one.offered() == ((9, 12),)


def test_a_pinned_connector_finishes_at_the_ends_of_its_begin(cluster: MemoryCluster) -> None:
    """It reads in admitted portions what was stable when it began; records that come later are left."""
    one = Subscribed(cluster, pinned=True, limits={"max_offsets": 7}, starts={"a": TopicOffsets("id-a", {})})
    cluster.put("a", (0, 99), (0, 5))
    read = 0
    while not one.subscription.finished:
        assert one.subscription.partitions() == []  # it asks for no end any more
        ranges = one.offered()
        read += sum(hi - lo for lo, hi in ranges)
        if ranges:
            one.subscription.deliver(one.read())
            one.subscription.taken(one.read())
    assert read == 14
    assert (one.subscription.plan(), one.portion.claimable) == (False, False)


def test_who_waits_is_told_that_a_pinned_connector_has_finished(cluster: MemoryCluster) -> None:
    """It is told at once: its thread has nothing to wait for any more."""
    one = Subscribed(cluster, pinned=True, starts={"a": TopicOffsets("id-a", {0: 9, 1: 5})})
    waiting = threading.Thread(target=one.subscription.next, args=(TIMEOUT_S,), daemon=True)
    waiting.start()
    changed = cast("Any", one.subscription._changed)
    wait_until(lambda: bool(changed._waiters), "it waits", TIMEOUT_S)
    assert (one.subscription.plan(), one.subscription.finished) == (False, True)
    waiting.join(TIMEOUT_S / 2)
    assert not waiting.is_alive()


def test_an_error_of_planning_is_raised_in_the_connectors_own_thread(cluster: MemoryCluster) -> None:
    """Planning goes on for nobody then; the poller's thread lives on."""
    one = Subscribed(cluster)
    cluster.put("a", (0, 9), (0, 5), topic_id="another")
    assert not one.subscription.plan()
    with pytest.raises(SourceChangedError, match="recreated"):
        one.subscription.next(TIMEOUT_S)
    assert not one.subscription.plan()


@pytest.mark.parametrize("delivered", [DataLossError("Lost."), StorageError("Full.")])
def test_an_error_in_place_of_a_batch_is_raised(one: Subscribed, delivered: DataLossError | StorageError) -> None:
    """An error of the query itself is raised as well."""
    one.offered()
    one.subscription.deliver(delivered)
    with pytest.raises(type(delivered)):
        one.subscription.next(TIMEOUT_S)
    failed = Subscribed(MemoryCluster())
    failed.subscription.fail(RuntimeError("no query"))
    with pytest.raises(RuntimeError, match="no query"):
        failed.subscription.next(TIMEOUT_S)


@pytest.mark.parametrize(
    ("shared", "offsets", "alone"), [(True, 1, True), (True, 0, False), (False, 1, False)], ids=str
)
def test_large_offers_are_read_alone_where_others_wait(*, shared: bool, offsets: int, alone: bool) -> None:
    """More than SHARED_MAX would hold up the other connectors; without any there is nothing to hold up."""
    cluster = MemoryCluster()
    cluster.put("a", (0, SHARED_MAX + offsets))
    one = Subscribed(cluster, shared=shared)
    assert one.subscription.plan()
    assert isinstance(one.subscription.next(0), Offer) is alone
    assert one.portion.claimable is not alone


def test_a_pause_offers_nothing(one: Subscribed, cluster: MemoryCluster) -> None:
    """Nothing is planned or claimed until it is resumed; a wait ends at once, and resuming asks for a plan."""
    one.subscription.pause()
    assert (one.subscription.plan(), one.subscription.partitions(), one.subscription.next(TIMEOUT_S)) == (
        False,
        [],
        None,
    )
    one.subscription.resume()
    assert one.asked_again == 1
    assert one.subscription.plan()
    one.subscription.pause()
    assert (one.portion.claimable, one.subscription.claim()) == (False, None)
    one.subscription.resume()
    assert one.subscription.claim() is not None
    one.subscription.resume()
    assert one.asked_again == 2


def test_what_was_read_when_it_was_paused_is_kept(one: Subscribed) -> None:
    """It was claimed before: the micro-batch that reads it goes on for the others, and delivers."""
    one.offered()
    one.subscription.pause()
    delivered = one.read()
    one.subscription.deliver(delivered)
    one.subscription.resume()
    assert one.subscription.next(0) is delivered


def test_a_connector_that_was_late_is_read_alone_for_a_while(one: Subscribed, cluster: MemoryCluster) -> None:
    """It is no failure; after LATE_MS one portion shows whether it still is, and until then nobody waits for any."""
    one.offered()
    one.subscription.deliver(PortionLateError("Late."))
    for end in (10, 11):
        alone = one.apart()
        assert alone.route is Route.DRIVER
        one.subscription.taken(batch_of(alone.ranges))
        cluster.put("a", (0, end), (0, 5))
        assert one.subscription.plan()
    one.subscription.taken(batch_of(one.apart().ranges))
    one.clock.advance(LATE_MS)
    cluster.put("a", (0, 12), (0, 5))
    assert one.offered() == ((11, 12),)


SMALL, LARGE = APART_IN_DRIVER_MAX, 5 * APART_IN_DRIVER_MAX


def test_a_large_read_that_stalls_is_read_on_in_small(cluster: MemoryCluster) -> None:
    """The small one is read to its end or raises why it cannot be; once it has succeeded, the next is large again."""
    cluster.put("a", (0, LARGE), (0, 0))
    one = Subscribed(cluster)
    one.offered()
    one.subscription.deliver(None)
    large = one.apart()
    assert large.route is Route.LARGE_JOB
    one.subscription.taken(batch_of(large.ranges, up_to=30))
    assert one.subscription.plan()
    small = one.apart()
    assert [(each.lo, each.hi) for each in small.ranges] == [(30, 30 + SMALL)]
    assert small.route is Route.DRIVER
    one.subscription.taken(batch_of(small.ranges))
    assert one.offered() == ((30 + SMALL, LARGE),)


def test_a_large_read_of_which_nothing_came_moves_nothing(cluster: MemoryCluster) -> None:
    """The small read that follows is an error if it is not read to its end: nothing goes round for ever."""
    cluster.put("a", (0, LARGE), (0, 0))
    one = Subscribed(cluster)
    one.offered()
    one.subscription.deliver(None)
    assert one.apart().route is Route.LARGE_JOB
    one.subscription.taken(Batch(ranges=(), parts=()))
    assert one.subscription.plan()
    small = one.apart()
    assert [(each.lo, each.hi) for each in small.ranges] == [(0, SMALL)]
    with pytest.raises(IngestError, match=rf"offsets \[4, {SMALL}\) were not read"):
        one.subscription.taken(batch_of(small.ranges, up_to=4))


def test_what_a_stalled_read_left_stays_suspect(cluster: MemoryCluster) -> None:
    """What made a micro-batch fail may be in what is left: the worker's own process does not read it."""
    cluster.put("a", (0, LARGE), (0, 0))
    one = Subscribed(cluster)
    one.offered()
    one.subscription.abandon()
    one.subscription.taken(batch_of(one.apart().ranges, up_to=30))
    assert one.subscription.plan()
    small = one.apart()
    assert (small.route, one.portion.trouble.suspect) == (Route.JOB, True)
    one.subscription.taken(batch_of(small.ranges))
    assert not one.portion.trouble.suspect


def test_a_portion_that_is_too_large_to_be_read_apart_is_planned_smaller(cluster: MemoryCluster) -> None:
    """Read as it is, others would wait for minutes; the smaller one is asked for at once."""
    cluster.put("a", (0, 2 * APART_MAX), (0, 0))
    one = Subscribed(cluster, shared=False)
    assert one.offered() == ((0, 2 * APART_MAX),)
    one.subscription.abandon()
    assert (one.subscription.next(0), one.asked_again) == (None, 1)
    assert one.subscription.plan()
    offer = one.apart()
    assert [(each.lo, each.hi) for each in offer.ranges] == [(0, APART_MAX)]
    assert (offer.route, one.portion.trouble.suspect) == (Route.LARGE_JOB, True)


def test_what_is_taken_after_the_end_shows_whether_it_is_suspect(one: Subscribed) -> None:
    """The next start of the connector reads it with the others again once it was read apart."""
    one.offered()
    one.subscription.abandon()
    offer = one.apart()
    one.subscription.close()
    assert one.portion.trouble.suspect
    one.subscription.taken(batch_of(offer.ranges))
    assert not one.portion.trouble.suspect
