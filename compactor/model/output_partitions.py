"""Which partitions of an output hold the records of a log: its own, or those of its topic (compaction.scope=topic)."""

from __future__ import annotations

from msgspec import UNSET

from compactor.model.log import PartitionLog
from compactor.model.state import CatalogState


def with_output_partition(state: CatalogState, topic: str) -> tuple[PartitionLog, ...]:
    """Returns the logs of `topic` that have an output partition of their number, by partition.

    With compaction.scope=topic the output keeps its partitions when the source gets more.
    """
    logs, outputs = state.logs_of(topic), state.topics[topic].outputs
    return logs if outputs is UNSET else tuple(log for log in logs if log.partition < outputs)


def that_may_hold(state: CatalogState, log: PartitionLog) -> tuple[PartitionLog, ...]:
    """Returns the logs of the numbers of the output partitions that may hold records of `log`."""
    return (log,) if state.topics[log.topic].outputs is UNSET else with_output_partition(state, log.topic)
