"""The steps of a history as plain values: a history is a list of them, whose repr can be run again."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from compactor.model.record import TopicPartition
from compactor.settings import FOREVER, CompactionPolicy, FoldPolicy
from tests.support.memory.publisher import PublishFault

BASE_MS: Final = 2_000_000_000_000
"""Time at which every history begins, later than the machine's clock, so that a vacuum takes all files for old."""

PARTITIONS: Final = tuple(
    TopicPartition(topic, number) for topic, count in (("t", 3), ("u", 2)) for number in range(count)
)
"""The source partitions; topic u is seen first when it has a record."""

CRASH: Final = "crash"
"""The process ends and loses what it had in memory."""


TRUNCATE: Final = b"TRUNCATE"
"""The value of a record without a key that empties its topic (debezium.truncate=apply), if the order is a field."""


class SourceRecord(NamedTuple):
    """A record in the source partition PARTITIONS[place], `hole` offsets behind the one before.

    `time` is its timestamp, relative to the clock where `fixed` is False.
    """

    place: int
    key: bytes | None
    value: bytes | None
    time: int = 0
    fixed: bool = False
    hole: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()


class FoldMethod(Enum):
    """How tasks fold: their limits are so small that this is the first method which is possible."""

    MEMORY = "all records in memory"
    PASSES = "two passes, all keys in memory"
    SPILLED = "two passes, keys spilled by hash partition"
    SPARK = "Spark's fold"


class Settings(NamedTuple):
    """Settings of the connector from a Restart on, and the limits of its tasks."""

    lag: int = 0
    max_lag: int = FOREVER
    ratio: float = 0.5
    delete_retention: int = 300
    retention_ms: int | None = None
    retention_bytes: int = -1
    segment_bytes: int = 1 << 27
    level0: int = 32
    tiers: int = 10
    interval: int = -1
    buckets: int = 1
    most: int = 100
    local: int = 1_000
    fold_method: FoldMethod = FoldMethod.MEMORY
    state_index: str = "auto"
    unchanged: str = "send"
    keeps_all: bool = False

    @property
    def policy(self) -> CompactionPolicy:
        """The engine's policy; `retention_ms` None is cleanup.policy=compact, or all of it with `keeps_all`."""
        policy = ("compact",) if self.retention_ms is None else ("compact", "delete")
        return CompactionPolicy(
            cleanup_policy=("delete",) if self.keeps_all else policy,
            min_cleanable_dirty_ratio=self.ratio,
            min_compaction_lag_ms=self.lag,
            max_compaction_lag_ms=self.max_lag,
            delete_retention_ms=self.delete_retention,
            retention_ms=-1 if self.retention_ms is None else self.retention_ms,
            retention_bytes=self.retention_bytes,
            segment_bytes=self.segment_bytes,
        )

    @property
    def fold(self) -> FoldPolicy:
        """The engine's fold policy."""
        return FoldPolicy(
            level0_files=self.level0,
            tier_runs=self.tiers,
            full_interval_ms=self.interval,
            has_index=self.state_index == "always" or self.unchanged == "skip",
        )


class Ingest(NamedTuple):
    """Records are produced, and a micro-batch ingests what is there, at most `most` offsets of a partition.

    It begins `again` offsets below the log's end. `tasks` read it; on Spark, or in this process for its speed. Behind
    the last record of each partition that has one the source goes on for `tail` offsets without any.
    """

    records: tuple[SourceRecord, ...]
    most: int = 1000
    again: int = 0
    tasks: int = 1
    on_spark: bool = False
    tail: int = 0


class Tick(NamedTuple):
    """The engine's tick: what has left the lag is published."""


class Round(NamedTuple):
    """A round of the cleaner."""


class Fold(NamedTuple):
    """A full fold on command."""


class Snapshot(NamedTuple):
    """A snapshot of every topic on command."""


class Vacuum(NamedTuple):
    """A vacuum without grace."""


class Advance(NamedTuple):
    """The clock moves by `ms`, which may be negative."""

    ms: int


class Restart(NamedTuple):
    """The connector is taken over, with its settings or with others; the previous owner does not notice."""

    settings: Settings | None = None


class Tamper(NamedTuple):
    """The group loses a position (None), or an operator sets it to `offset`."""

    place: int
    offset: int | None = None


class ChangeOffset(NamedTuple):
    """The connector is taken over, and an operator has a partition that it knows go on at `offset` of its source.

    Beyond the source's end that is meant; None: the start, anew. `anew`: a generation begins there, as by
    `resync --since`, also if the offset lies forward.
    """

    place: int
    offset: int | None = None
    anew: bool = False


class AnyCase(NamedTuple):
    """Keys are compared by an identity (`identity`) from the beginning on; the first step of a history, or none."""


class OrderedBy(NamedTuple):
    """Records are ordered by `order` (compaction.order) from the beginning on; among the first steps, or none."""

    order: str


class ChangeOrder(NamedTuple):
    """The connector is taken over, and all that it knows is read again by `order`."""

    order: str


class ChangeIdentity(NamedTuple):
    """The connector is taken over, and all that it knows is read again, with keys compared by an identity or not."""

    any_case: bool


class ChangeFill(NamedTuple):
    """The connector is taken over, and all that it knows is read again, and filled or not."""

    fills: bool


class ChangeScope(NamedTuple):
    """The connector is taken over, and all that it knows is read again, with one winner of a key in another scope."""

    of_topics: bool


class Rebuild(NamedTuple):
    """The storage is lost, and `keyfold rebuild` makes it again; nothing happens if it would be refused."""


class Fills(NamedTuple):
    """Values are filled (`filling`) from the beginning on; among the first steps, or none."""


class OfTopics(NamedTuple):
    """A key has one winner over all partitions of a topic from the beginning on; among the first steps, or none."""


class KeepsAll(NamedTuple):
    """All records are kept, and none is published, from the beginning on; among the first steps, or none.

    That is `cleanup.policy=delete`, `output.topic=none` and `snapshot.mode=append`.
    """


PlainStep: TypeAlias = (
    AnyCase
    | OrderedBy
    | Fills
    | OfTopics
    | KeepsAll
    | Ingest
    | Tick
    | Round
    | Fold
    | Snapshot
    | Vacuum
    | Advance
    | Restart
    | Tamper
    | ChangeOffset
    | ChangeOrder
    | ChangeIdentity
    | ChangeFill
    | ChangeScope
    | Rebuild
)


class AtFailpoint(NamedTuple):
    """While `step` runs, at the `nth` time that it reaches the failpoint `point`: other steps, or CRASH."""

    step: PlainStep
    point: str
    then: tuple[PlainStep, ...] | str
    nth: int = 1


class FailingPublisher(NamedTuple):
    """The publisher of `step` fails."""

    step: Ingest | Tick
    fault: PublishFault


AnyStep: TypeAlias = PlainStep | AtFailpoint | FailingPublisher
