"""What one scrape measures of a connector: from its counters, and from its catalog as this process knows it."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from compactor.model.log import PartitionLog, Quarantined
from compactor.model.record import TopicPartition
from compactor.model.state import Topic
from connectors.metrics.measured import MeasuredLog, measure, measured
from connectors.runtime.status import ConnectorState, Status
from tests.support.logs import base, file, log, run
from tests.support.measured import NOW_MS, connector, snapshot, state, stopped

CLOSED = {"read": None, "gone": "deleted", "other": "recreated"}
NOTHING = MeasuredLog(
    topic="t",
    partition=0,
    unpublished_offsets=0,
    waiting_since_ms=None,
    clean_bytes=0,
    cleanable_bytes=0,
    unpublished_bytes=0,
    unpublished_records=0,
    tombstones=0,
    dirty_ratio=0.0,
    oldest_ms=None,
    is_quarantined=False,
    is_held=False,
)
QUARANTINED = Quarantined(since_ms=1, retry_ms=2, failures=3, error="damaged")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (log(), NOTHING),
        (log(tp=TopicPartition("u", 7)), replace(NOTHING, topic="u", partition=7)),
        (log(clean=base(10, 100)), replace(NOTHING, clean_bytes=100)),
        (
            log(run(10, 20, 60, arrived=500, oldest=400), run(20, 30, 40, arrived=900), clean=base(10, 100)),
            replace(NOTHING, clean_bytes=100, cleanable_bytes=100, dirty_ratio=0.5, oldest_ms=400),
        ),
        (
            log(run(0, 10, 30, arrived=500), run(10, 25, 50, arrived=700), run(25, 30, 7, arrived=800), published=10),
            replace(
                NOTHING,
                unpublished_offsets=20,
                waiting_since_ms=700,
                cleanable_bytes=30,
                unpublished_bytes=57,
                unpublished_records=20,
                dirty_ratio=1.0,
                oldest_ms=500,
            ),
        ),
        (
            log(run(0, 10, [file(0, 9, 30)], arrived=500), published=5, clean=None),
            replace(NOTHING, unpublished_offsets=5, waiting_since_ms=500, cleanable_bytes=30, unpublished_records=5),
        ),
        (log(run(0, 10, 30, arrived=500), end=15, published=10), None),
        (replace(log(), quarantine=QUARANTINED), replace(NOTHING, is_quarantined=True)),
        (replace(log(run(90, 100, 30, arrived=500), published=90), start=90), None),
    ],
    ids=[
        "nothing",
        "its partition",
        "all folded",
        "all published",
        "some not published",
        "published inside a file",
        "no records above",
        "quarantined",
        "begins later",
    ],
)
def test_a_partition(found: PartitionLog, expected: MeasuredLog | None) -> None:
    """Bytes are those of LogToClean, what may be cleanable counted as such; lag is what was taken in and not sent."""
    (mine,) = measured(connector("a", state(found))).logs
    if expected is not None:
        assert mine == expected
    assert mine.unpublished_offsets == found.end - found.published


@pytest.mark.parametrize(
    ("first", "last", "records", "start", "end", "published", "waiting"),
    [
        pytest.param(0, 9, 10, 0, 10, 0, 10, id="none is published"),
        pytest.param(0, 9, 10, 0, 10, 10, 0, id="all are"),
        pytest.param(0, 9, 10, 0, 10, 7, 3, id="there are no more than offsets"),
        pytest.param(0, 9, 2, 0, 10, 5, 2, id="nor than records"),
        pytest.param(0, 9, 10, 6, 10, 4, 4, id="the run begins inside the file"),
        pytest.param(0, 9, 10, 0, 8, 5, 3, id="the run ends inside the file"),
    ],
)
def test_records_that_are_not_published(
    first: int, last: int, records: int, start: int, end: int, published: int, waiting: int
) -> None:
    """As many as files say; of a file that a publish or a run cuts, at most as many as it has offsets there."""
    cut = run(start, end, [replace(file(first, last, 30), records=records)])
    (found,) = measured(connector("a", state(log(cut, published=published)))).logs
    assert found.unpublished_records == waiting


def test_no_records_wait_where_none_are_left() -> None:
    """Offsets without records are behind, and are not older for it."""
    (found,) = measured(connector("a", state(log(run(0, 10, 30, arrived=500), end=15, published=10)))).logs
    assert (found.unpublished_offsets, found.waiting_since_ms) == (5, None)


@pytest.mark.parametrize(
    ("arrived", "min_lag_ms", "now_ms", "lag_ms"),
    [
        ((), 0, 1_000, 0),
        ((400,), 0, 1_000, 600),
        ((400,), 0, 300, 0),
        ((400, 900), 0, 1_000, 600),
        ((900, 400), 0, 1_000, 600),
        ((400,), 250, 1_000, 350),
        ((400,), 600, 1_000, 0),
        ((400,), 601, 1_000, 0),
    ],
)
def test_lag(arrived: tuple[int, ...], min_lag_ms: int, now_ms: int, lag_ms: int) -> None:
    """For how long the oldest records of all partitions wait, beyond what was asked for; never below nothing."""
    logs = [
        log(run(0, 5, 9, arrived=at), published=0, tp=TopicPartition("t", number)) for number, at in enumerate(arrived)
    ]
    found = measured(connector("a", state(*logs), **{"min.compaction.lag.ms": str(min_lag_ms)}))
    assert found.lag_ms(now_ms) == lag_ms


def test_what_is_published_does_not_lag() -> None:
    """However long ago it was taken in."""
    found = measured(connector("a", state(log(run(0, 5, 9, arrived=1)))))
    assert found.lag_ms(NOW_MS) == 0


def test_a_connector() -> None:
    """Its state, its tasks, its failures, its counts, and the newest and the bytes of all of its snapshots."""
    status = Status(ConnectorState.FAILED, "Away.", 4, NOW_MS)
    snapshots = [snapshot(20, 5), snapshot(90, 7, "u"), snapshot(40, 11)]
    found = measured(connector("a", state(log(), buckets=3, snapshots=snapshots), status, {"merges": 6}))
    assert (found.name, found.state, found.tasks, found.failures) == ("a", "failed", 3, 4)
    assert (found.counters, found.snapshot_ms, found.snapshot_bytes) == ({"merges": 6}, 90, 23)


def test_topics_that_are_not_read_are_counted() -> None:
    """A connector that is RUNNING looks as if it read them: one that was deleted, not one that is open."""
    topics = {
        name: Topic(topic=name, topic_id="1", output=None, output_id=None, closed=why) for name, why in CLOSED.items()
    }
    assert measured(connector("a", replace(state(log()), topics=topics))).closed_topics == 2


def test_totals() -> None:
    """They are over all partitions."""
    logs = [log(clean=base(5, 100)), log(clean=base(9, 11), tp=TopicPartition("t", 1))]
    found = measured(connector("a", state(*logs)))
    assert (found.total("clean_bytes"), found.total("is_quarantined")) == (111, 0)


@pytest.mark.parametrize("of", [stopped("a"), connector("a", None, Status())])
def test_a_connector_whose_catalog_is_not_open(of: object) -> None:
    """One that is STOPPED or has not been started is measured too, without partitions and snapshots."""
    found = next(measure(Mock(connectors=lambda: (of,)), lambda _: {}))
    assert (found.name, dict(found.counters), found.logs, found.failures) == ("a", {}, (), 0)
    assert (found.snapshot_ms, found.snapshot_bytes, found.closed_topics, found.lag_ms(NOW_MS)) == (None, 0, 0, 0)
    assert found.tasks == (0 if found.state == "stopped" else 1)


@pytest.mark.parametrize("held", ["topic", "damage"])
def test_what_is_not_published_on_purpose_does_not_wait(held: str) -> None:
    """A topic that is set aside, or a partition whose unpublished files are damaged, says so elsewhere."""
    waiting = log(run(0, 45, 40, arrived=NOW_MS - 8_000), published=0)
    damaged = Quarantined(since_ms=1, retry_ms=2, failures=3, error="damaged", publishing=held == "damage")
    found = state(replace(waiting, quarantine=damaged))
    closed = Topic(topic="t", topic_id="1", output="o", output_id="2", closed="deleted" if held == "topic" else None)
    one = measured(connector("a", replace(found, topics={"t": closed})))
    assert (one.lag_ms(NOW_MS), one.logs[0].unpublished_offsets) == (0, 45)
    assert one.total("is_held") == (held == "damage")  # one that was deleted asks nothing of an operator
    assert measured(connector("a", state(waiting))).lag_ms(NOW_MS) == 8_000


@pytest.mark.parametrize(("closed", "is_held"), [("recreated", 1), ("truncated", 1), ("no longer named", 0), (None, 0)])
def test_what_is_published_no_more_is_counted(closed: str | None, is_held: int) -> None:
    """A partition whose topic is set aside, until an operator decides; not one that nobody asks for."""
    topic = Topic(topic="t", topic_id="1", output="o", output_id="2", closed=closed)
    assert measured(connector("a", replace(state(log()), topics={"t": topic}))).total("is_held") == is_held


def test_uncleanable_bytes_are_those_of_partitions_in_quarantine() -> None:
    """As in Kafka: what would be folded there, and not what waits for its publishing."""
    dirty = log(run(0, 10, 30), run(10, 25, 50), published=10)
    assert measured(connector("a", state(dirty))).total("uncleanable_bytes") == 0
    found = measured(connector("a", state(replace(dirty, quarantine=QUARANTINED))))
    assert (found.total("uncleanable_bytes"), found.total("unpublished_bytes")) == (30, 50)
