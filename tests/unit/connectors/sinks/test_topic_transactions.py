"""Which transactions a publish of a topic takes, and which positions each has (compaction.scope=topic)."""

from __future__ import annotations

from typing import Final

import pytest

from compactor.model.publish_plan import PublishPlan, PublishTarget
from compactor.model.record import TopicPartition
from connectors.sinks.batching import partition_batches, transactions
from connectors.sinks.publish_progress import PublishProgress, TransactionCounts
from connectors.sinks.settings import TransactionLimits
from tests.support.publishing import RunRecord, batch

PARTITIONS: Final = [TopicPartition("t", number) for number in range(3)]
ENDS: Final = dict(zip(PARTITIONS, (8, 5, 9), strict=True))
"""Partition 1 has no record that is sent: all of its own are late."""
RECORDS: Final = tuple(RunRecord(at, value=b"v", partition=number) for number in (0, 2) for at in range(0, 8, 2))


@pytest.mark.parametrize(("most_bytes", "count"), [(64 << 20, 1), (16, 1), (6, 4), (2, 8)])
def test_what_a_publish_sends_of_a_topic_has_all_positions_in_one_transaction_up_to_its_bounds(
    most_bytes: int, count: int
) -> None:
    """Beyond, each has the positions of what it holds: they rise, and the last ones stand at the ends of the plan."""
    targets = tuple(
        PublishTarget(topic=tp.topic, partition=tp.partition, bucket=0, output="out", start=0, end=ENDS[tp], outputs=3)
        for tp in PARTITIONS
    )
    progress = PublishProgress(PublishPlan(bucket=0, epoch=1, catalog_id="c", targets=targets), {"out": "id"})
    limits = TransactionLimits(transaction_bytes=most_bytes)
    groups = list(transactions(partition_batches([batch("t", RECORDS)], PARTITIONS, limits), most_bytes))
    assert len(groups) == count
    reached: dict[TopicPartition, int] = {}
    for group in groups:
        positions = progress.positions(group, {})
        assert positions.keys() == {each.tp for each in group}
        for tp, position in positions.items():
            assert reached.get(tp, 0) <= position.offset
            assert position.fold_end == (None if position.offset == ENDS[tp] else ENDS[tp])
            reached[tp] = position.offset
        progress.commit(positions, {tp: TransactionCounts() for tp in positions})
    assert reached == ENDS
    assert progress.expected == ENDS
