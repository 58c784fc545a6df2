"""Says which tables were emptied in a batch, and which of them can be emptied here (debezium.truncate=apply). Pure.

A truncate has no key: it supersedes every record before it. Offsets say what is before it within one partition only.
An order (compaction.order) says it of all partitions, but in none of the others does an offset separate what is before
it from what is after it, and a generation begins at an offset (docs/protocol.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from compactor.errors import RejectedRecordError
from compactor.ingest.appends import Batch
from compactor.model.record import TopicPartition
from compactor.model.state import BY_OFFSET, CatalogState

_NO_ORDER: Final = "nothing says which records of the others are before it"
_MIXED: Final = "records from before it and after it may be mixed in the others"


def last_truncates(state: CatalogState, batch: Batch) -> dict[TopicPartition, int]:
    """Returns the offset of the last truncate of each partition of `batch` that is not ingested yet."""
    logs, last = state.by_partition(), dict[TopicPartition, int]()
    for read in batch.ranges:
        if read.last_truncate is not None and read.last_truncate >= logs[read.tp].end:
            last[read.tp] = max(read.last_truncate, last.get(read.tp, 0))
    return last


def of_several_partitions(state: CatalogState, truncates: Iterable[TopicPartition]) -> dict[str, RejectedRecordError]:
    """Returns why truncates of topics with several partitions cannot be applied, by topic."""
    errors: dict[str, RejectedRecordError] = {}
    for tp in truncates:
        count = len(state.logs_of(tp.topic))
        if count > 1 and tp.topic not in errors:
            reason = _NO_ORDER if state.order == BY_OFFSET else f"by {state.order} {_MIXED}"
            error = RejectedRecordError(
                f"Connector {state.connector}: topic {tp.topic}, partition {tp.partition} has a truncate, which cannot "
                f"be applied: the topic has {count} partitions, and {reason}.",
                "Give the topic one partition (topic.creation.default.partitions=1); or set debezium.truncate=warn, "
                "and sweep with keyfold resync CONNECTOR.json --topic TOPIC --since TIME.",
            )
            error.topic = tp.topic
            errors[tp.topic] = error
    return errors
