"""Which truncates of a batch are applied: those of topics with one partition that are not ingested yet."""

from __future__ import annotations

from msgspec.structs import replace

from compactor.ingest.appends import Batch
from compactor.ingest.truncates import last_truncates, of_several_partitions
from compactor.model.actions import Append
from compactor.model.record import RangeRead, TopicPartition
from compactor.model.state import CatalogState, apply
from tests.support.engine import new_state

TP = TopicPartition("t", 0)


def read(lo: int, hi: int, last: int | None, partition: int = 0) -> RangeRead:
    """Returns the report of a range in which the last truncate was at the offset `last`."""
    tp = TopicPartition("t", partition)
    return RangeRead(tp=tp, topic_id="i", lo=lo, hi=hi, start=lo, records=hi - lo, truncates=1, last_truncate=last)


def at(end: int) -> CatalogState:
    """Returns the state of a log that ends at `end`."""
    return apply(new_state({0: 0}), [Append(topic="t", partition=0, start=0, end=end)])


def test_the_last_truncate_that_is_not_ingested_counts() -> None:
    """What an overlap brings again was applied before; a truncate at the log's end is the next one."""
    ranges = (read(0, 5, 3), read(5, 9, 7), read(9, 12, None))
    assert last_truncates(at(0), Batch(ranges=ranges, parts=())) == {TP: 7}
    assert last_truncates(at(7), Batch(ranges=ranges, parts=())) == {TP: 7}
    assert last_truncates(at(8), Batch(ranges=ranges, parts=())) == {}


def test_a_topic_of_several_partitions_has_nothing_before_a_truncate() -> None:
    """Offsets of two partitions have no order: the error says what to do instead, and names the topic."""
    assert of_several_partitions(new_state({0: 0}), [TP]) == {}
    errors = of_several_partitions(new_state({0: 0, 1: 0}), [TP, TopicPartition("t", 1)])
    assert list(errors) == ["t"]
    assert (errors["t"].topic, errors["t"].is_of_record) == ("t", True)
    assert "2 partitions" in errors["t"].message
    assert "--since" in errors["t"].action


def test_no_order_makes_several_partitions_one() -> None:
    """By an order the records of the others are before it or after it, but mixed: no offset tells them apart."""
    state = replace(new_state({0: 0, 1: 0}), order="field:source.lsn")
    message = of_several_partitions(state, [TP])["t"].message
    assert "by field:source.lsn records from before it and after it may be mixed in the others" in message
