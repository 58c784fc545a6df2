"""Which truncates of a batch are to be applied: by the order of the connector, or in topics with one partition."""

from __future__ import annotations

from msgspec.structs import replace

from compactor.ingest.appends import Batch
from compactor.ingest.truncates import pending, without_applied
from compactor.model.actions import Append, SetFence
from compactor.model.fence import Fence
from compactor.model.record import RangeRead, TopicPartition
from compactor.model.state import CatalogState, apply
from tests.support.engine import new_state

TP = TopicPartition("t", 0)


def read(lo: int, hi: int, last: int | None, partition: int = 0, order: bytes | None = None) -> RangeRead:
    """Returns the report of a range with a truncate at the offset `last`, the latest one by the order too."""
    tp, records = TopicPartition("t", partition), hi - lo
    reported = RangeRead(tp=tp, topic_id="i", lo=lo, hi=hi, start=lo, records=records, truncates=1, last_truncate=last)
    return reported if order is None else replace(reported, truncate_order=order, truncate_at=last)


def at(end: int) -> CatalogState:
    """Returns the state of a log that ends at `end`."""
    return apply(new_state({0: 0}), [Append(topic="t", partition=0, start=0, end=end)])


def fenced(fence: Fence | None) -> CatalogState:
    """Returns the state of a topic with two partitions, by an order."""
    state = replace(new_state({0: 0, 1: 0}), order="field:source.lsn")
    return apply(state, [SetFence(topic="t", fence=fence)])


def test_the_last_truncate_that_is_not_ingested_counts() -> None:
    """What an overlap brings again was applied before; a truncate at the log's end is the next one."""
    ranges = (read(0, 5, 3), read(5, 9, 7), read(9, 12, None))
    assert pending(at(0), Batch(ranges=ranges, parts=())).offsets == {TP: 7}
    assert pending(at(7), Batch(ranges=ranges, parts=())).offsets == {TP: 7}
    assert pending(at(8), Batch(ranges=ranges, parts=())).error("c") is None


def test_a_topic_of_several_partitions_has_nothing_before_a_truncate() -> None:
    """Offsets of two partitions have no order: the error says what to do instead, and names the topic."""
    assert pending(new_state({0: 0}), Batch(ranges=(read(0, 9, 3),), parts=())).refused == {}
    truncates = pending(new_state({0: 0, 1: 0}), Batch(ranges=(read(0, 9, 3), read(0, 9, 3, 1)), parts=()))
    assert (list(truncates.refused), truncates.offsets) == (["t"], {})
    error = truncates.refused["t"]
    assert (error.topic, error.is_of_record) == ("t", True)
    assert "2 partitions" in error.message
    assert "--since" in error.action


def test_by_an_order_the_latest_truncate_of_a_topic_counts_whatever_its_partition() -> None:
    """All of one batch are applied at once, and none that the catalog's fence reaches."""
    batch = Batch(ranges=(read(0, 9, 3, 0, b"20"), read(0, 9, 5, 1, b"25"), read(9, 12, 10, 0, b"21")), parts=())
    truncates = pending(fenced(None), batch)
    assert (truncates.fences, truncates.offsets, truncates.refused) == ({"t": Fence(b"25", {1: 5})}, {}, {})
    error = truncates.error("c")
    assert error is not None
    assert error.fences == truncates.fences
    assert pending(fenced(Fence(b"24", {0: 1})), batch).fences == truncates.fences
    assert pending(fenced(Fence(b"25", {1: 5})), batch).error("c") is None


def test_equal_truncates_of_two_partitions_are_both_applied_once() -> None:
    """Each has offsets of its own: the second one raises the fence of the first, and neither is applied again."""
    ranges = (read(0, 9, 3, 0, b"20"), read(0, 9, 5, 1, b"20"))
    (fence,) = pending(fenced(Fence(b"20", {0: 3})), Batch(ranges=ranges, parts=())).fences.values()
    assert fence == Fence(b"20", {0: 3, 1: 5})
    assert pending(fenced(fence), Batch(ranges=ranges, parts=())).fences == {}


def test_a_truncate_that_was_applied_counts_as_none_that_is_dropped() -> None:
    """It is passed as its rows have gone; one that is not applied yet stays."""
    batch = Batch(ranges=(read(0, 9, 3, 0, b"20"), read(0, 9, 5, 1, b"26")), parts=())
    passed = without_applied(fenced(Fence(b"25", {1: 5})), batch).ranges
    assert [(each.truncates, each.last_truncate, each.truncate_order) for each in passed] == [
        (0, None, None),
        (1, 5, b"26"),
    ]
