"""What the engine asks of the world around it; connectors/runtime/broker.py answers with Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from compactor.model.actions import AnyAction
from compactor.model.log import PartitionLog
from compactor.model.position import Position, Tail
from compactor.model.publish_plan import PublishPlan, PublishResult
from compactor.model.record import RangeRead, TopicPartition
from compactor.model.state import State


class Broker(Protocol):
    """Topics, positions and the changelog of one connector."""

    def admit(self, state: State, reads: Sequence[RangeRead]) -> tuple[AnyAction, ...]:
        """Actions that add the topics and partitions of `reads` which the catalog does not know.

        Their output partitions exist when this returns. Raises OutputError, UnreachableError.
        """
        ...

    def fence(self, buckets: Iterable[int]) -> None:
        """Shuts out every producer of `buckets`, as step T2 does: what one has left open is aborted."""
        ...

    def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Position | None]:
        """What the connector's group has committed, pending transactions waited for; None where nothing."""
        ...

    def tail(self, state: State, log: PartitionLog) -> Tail:
        """The last source offset of `log` that a read_committed reader finds in the output."""
        ...

    def publisher(self, state: State) -> Publisher:
        """What sends a bucket's records; it is pickled into Spark's tasks."""
        ...

    def local_publisher(self, state: State, broken_off: Callable[[], bool]) -> Publisher:
        """The same for this process, which may keep its connections until the next time.

        It gives up soon, with an error, once `broken_off` says so.
        """
        ...

    def output_starts(self, state: State, topic: str) -> Mapping[int, int]:
        """The low watermark of each output partition of the source topic `topic`."""
        ...

    def resume_safe_ms(self, state: State, topic: str) -> int | None:
        """How long a snapshot of `topic` can be resumed from in the output, in ms.

        None is for ever; 0 where no time can be promised.
        """
        ...


class Publisher(Protocol):
    """Sends a bucket's records; it can be pickled, and runs in a Spark task or, for a few records, without."""

    def publish(self, plan: PublishPlan, records: Iterator[pa.RecordBatch]) -> Sequence[PublishResult]:
        """Sends `records` (record.RUN, by partition and offset, rejected ones too) and commits the positions.

        Gives one PublishResult for each target, also for those without a record.
        """
        ...
