from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from compactor.catalog.catalog import Catalog
from compactor.errors import FencedError, OutcomeUnknownError, PositionMovedError, PublishInterruptedError
from compactor.model.actions import AddPartition, AddTopic
from compactor.model.log import empty
from compactor.model.position import Position, Unknown
from compactor.model.publish_plan import PublishPlan, PublishResult, PublishTarget
from compactor.model.record import RUN, RangeRead, TopicPartition
from compactor.model.state import CatalogState, apply
from tests.support.engine import Row, new_state, row
from tests.support.memory.broker import MemoryBroker
from tests.support.memory.journal import Journal
from tests.support.memory.publisher import PublishFault, PublishStep
from tests.support.memory.storage import MemoryStorage

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
STATE = new_state({0: 0, 1: 0})


@pytest.fixture
def outside() -> MemoryBroker:
    return MemoryBroker(MemoryStorage())


def target(
    partition: int, start: int, end: int, committed: int | None = None, output_offset: int | None = None
) -> PublishTarget:
    return PublishTarget(
        topic="t",
        partition=partition,
        bucket=0,
        output="o",
        start=start,
        end=end,
        committed=committed,
        output_offset=output_offset,
    )


def send(
    outside: MemoryBroker, targets: Sequence[PublishTarget], rows: Sequence[Row], catalog_id: str = "cat"
) -> Sequence[PublishResult]:
    """Publishes `rows` by a plan of `targets`."""
    plan = PublishPlan(bucket=0, epoch=1, catalog_id=catalog_id, targets=tuple(targets))
    filled = [{"delete_horizon": None, "rejected": None, **one} for one in rows]
    return outside.publisher(STATE).publish(plan, iter([pa.RecordBatch.from_pylist(filled, schema=RUN)]))


def seen(outside: MemoryBroker, tp: TopicPartition = P0) -> list[tuple[int, int]]:
    """Offsets in the output, and in the source."""
    return [(one.offset, one.source_offset) for one in outside.output.records.get(tp, [])]


def position(offset: int, output_offset: int | None, fold_end: int | None = None) -> Position:
    return Position(offset=offset, catalog_id="cat", output_offset=output_offset, fold_end=fold_end)


def test_a_transaction_carries_records_and_positions_and_leaves_a_marker(outside: MemoryBroker) -> None:
    """Records get the next offsets, the position says the high watermark before the marker, which takes an offset."""
    sent = send(outside, [target(0, 0, 5), target(1, 0, 3)], [row(0, 1, b"a", b"1"), row(0, 4, b"b", None)])
    assert [(one.end, one.output_offset, one.records, one.transactions) for one in sent] == [
        (5, 2, 2, 1),
        (3, None, 0, 0),
    ]
    send(outside, [target(0, 5, 9, committed=5, output_offset=2)], [row(0, 7, b"a", b"2")])
    assert seen(outside) == [(0, 1), (1, 4), (3, 7)]
    assert outside.output.ends == {P0: 5}
    assert outside.positions([P0, P1]) == {P0: position(9, 4), P1: position(3, None)}


def test_a_large_fold_is_sent_in_parts(outside: MemoryBroker) -> None:
    """Each transaction ends behind its last record and says where the fold ends; a partition's last one is there."""
    outside.most_records = 2
    outside.fault = PublishFault(step=PublishStep.COMMITTED, transaction=2)
    rows = [row(0, offset, b"k%d" % offset, b"v") for offset in (0, 2, 4)] + [row(1, 6, b"k", b"v")]
    with pytest.raises(OutcomeUnknownError):
        send(outside, [target(0, 0, 8), target(1, 0, 9)], [*rows, row(1, 7, b"k", b"v")])
    assert outside.positions([P0, P1]) == {P0: position(8, 4), P1: position(7, 1, fold_end=9)}
    assert seen(outside) == [(0, 0), (1, 2), (3, 4)]
    outside.fault = PublishFault(step=PublishStep.FENCE)
    with pytest.raises(PublishInterruptedError):
        send(outside, [target(1, 7, 9, committed=7)], [row(1, 7, b"k", b"v")])
    assert seen(outside, P1) == [(0, 6)]


def test_what_is_aborted_is_not_seen_and_takes_its_offsets(outside: MemoryBroker) -> None:
    """A publisher that fails once its records are sent leaves a hole in the output and the positions as they were."""
    outside.fault = PublishFault(step=PublishStep.SENT)
    with pytest.raises(PublishInterruptedError):
        send(outside, [target(0, 0, 2)], [row(0, 0, b"a", b"1"), row(0, 1, b"b", b"1")])
    assert (seen(outside), outside.positions([P0]), outside.output.ends) == ([], {P0: None}, {P0: 3})
    send(outside, [target(0, 0, 1)], [row(0, 0, b"a", b"1")])
    assert seen(outside) == [(3, 0)]


def test_rejected_records_are_dead_letters(outside: MemoryBroker) -> None:
    """They leave with the transaction that moves the position past them, and are no records of the output."""
    sent = send(outside, [target(0, 0, 2)], [row(0, 0, None, b"1", rejected="null key"), row(0, 1, b"b", b"1")])
    assert ([one.source_offset for one in outside.output.letters], seen(outside)) == ([0], [(0, 1)])
    assert (sent[0].records, sent[0].dead_letters) == (1, 1)


def test_who_was_planned_from_another_position_sends_nothing(outside: MemoryBroker) -> None:
    """The committed position must be the one that the plan was made from, whoever wrote it."""
    send(outside, [target(0, 0, 2)], [row(0, 0, b"a", b"1")])
    outside.overwrite(P0, Position(offset=1))
    with pytest.raises(PositionMovedError):
        send(outside, [target(0, 2, 3, committed=2)], [row(0, 2, b"a", b"2")])
    outside.overwrite(P0, None)
    with pytest.raises(PositionMovedError):
        send(outside, [target(0, 2, 3, committed=2)], [row(0, 2, b"a", b"2")])
    assert seen(outside) == [(0, 0)]


def test_a_newer_owner_shuts_the_publisher_out() -> None:
    """The newest epoch of the catalog has to be the plan's."""
    connector = MemoryStorage()
    outside = MemoryBroker(MemoryStorage(), connector)
    catalog = Catalog.open(connector, "c")
    catalog.take_over("one", 0)
    catalog_id = catalog.state.catalog_id
    send(outside, [target(0, 0, 2)], [row(0, 0, b"a", b"1")], catalog_id)
    Catalog.open(connector, "c").take_over("two", 0)
    with pytest.raises(FencedError):
        send(outside, [target(0, 2, 3, committed=2)], [row(0, 2, b"a", b"2")], catalog_id)


def test_a_producer_shuts_out_older_ones_of_its_bucket_alone() -> None:
    """Whoever opens a bucket last is the only one who can add to it; journals of the same store see the same."""
    storage = MemoryStorage()
    one, other = Journal(storage), Journal(storage)
    first, beside, second = one.open(0), other.open(1), other.open(0)
    assert (first, beside, second) == (0, 1, 2)
    one.read()
    one.check(1, beside)
    one.check(0, second)
    with pytest.raises(PublishInterruptedError):
        one.check(0, first)
    outside = MemoryBroker(storage)
    outside.fence(range(2))
    assert [entry.bucket for entry in outside.entries] == [0, 1, 0, 0, 1]


def test_topics_are_admitted_with_all_their_partitions(outside: MemoryBroker) -> None:
    """A partition begins where it was read first, or at 0; its backlog ends where the topic ended."""
    outside.add_topic("u", 2).ends[:] = [7, 9]
    reads = [RangeRead(tp=TopicPartition(name, 0), topic_id="x", lo=3, hi=5, start=3, records=0) for name in "uv"]
    assert outside.admit(STATE, reads) == (
        AddTopic(topic="u", topic_id="id-u", output="u.compacted", output_id="id-u.compacted"),
        AddPartition(topic="u", partition=0, bucket=0, start=3, backlog_end=7),
        AddPartition(topic="u", partition=1, bucket=0, start=0, backlog_end=9),
    )
    grown = apply(STATE, outside.admit(STATE, reads))
    outside.topics["u"].ends.append(0)
    assert outside.admit(grown, reads) == ()
    reads = [RangeRead(tp=TopicPartition("u", 2), topic_id="id-u", lo=0, hi=1, start=0, records=0)]
    assert outside.admit(grown, reads) == (AddPartition(topic="u", partition=2, bucket=0, start=0, backlog_end=0),)


@pytest.mark.parametrize(("source_headers", "expected"), [(True, 4), (False, Unknown.UNKNOWN)])
def test_the_tail_is_the_last_record_that_can_be_seen(
    outside: MemoryBroker, source_headers: bool, expected: object
) -> None:
    """None before there is one; without source headers nobody knows which it is."""
    outside.source_headers = source_headers
    log = empty(P0, 0, 0, None)
    assert outside.tail(STATE, log) is None
    send(outside, [target(0, 0, 9)], [row(0, 1, b"a", b"1"), row(0, 4, b"b", b"1")])
    assert outside.tail(STATE, log) == expected


def test_a_connector_that_publishes_nothing_still_moves_its_positions(outside: MemoryBroker) -> None:
    """Without an output only dead letters and positions are sent, and there is nothing to resume from."""
    topic = outside.add_topic("n", 1, published=False)
    assert (topic.output, topic.output_id) == (None, None)
    state = apply(CatalogState(), [AddTopic(topic="n", topic_id="id-n", output=None, output_id=None)])
    plan = PublishPlan(
        bucket=0,
        epoch=1,
        catalog_id="cat",
        targets=(PublishTarget(topic="n", partition=0, bucket=0, output=None, start=0, end=2),),
    )
    rows = [{**row(0, 0, b"a", b"1", topic="n"), "delete_horizon": None, "rejected": None}]
    outside.publisher(state).publish(plan, iter([pa.RecordBatch.from_pylist(rows, schema=RUN)]))
    assert (outside.output.records, outside.positions([TopicPartition("n", 0)])) == (
        {},
        {TopicPartition("n", 0): position(2, None)},
    )
    assert outside.resume_safe_ms(state, "n") is None


def test_a_fault_is_used_up(outside: MemoryBroker) -> None:
    """Only the next publisher fails; what the test sets is given on as it is."""
    outside.fault = PublishFault(step=PublishStep.FENCE)
    with pytest.raises(PublishInterruptedError):
        send(outside, [target(0, 0, 1)], [])
    assert send(outside, [target(0, 0, 1)], [])[0].end == 1
    outside.starts[P1], outside.safe_ms = 6, 50
    assert (outside.output_starts(STATE, "t"), outside.resume_safe_ms(STATE, "t")) == ({0: 0, 1: 6}, 50)
