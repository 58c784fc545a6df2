"""The state of a connector after a catalog commit, and the only code by which actions change it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Final

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from compactor.errors import DEFECT, CatalogError
from compactor.model import log_transitions
from compactor.model.actions import (
    AddPartition,
    AddSnapshot,
    AddTopic,
    AnyAction,
    Append,
    BeginGeneration,
    Change,
    Clean,
    CloseTopic,
    Create,
    DropSnapshot,
    Merge,
    PlanFold,
    Publish,
    Quarantine,
    Refill,
    Reidentify,
    Release,
    RenewTopic,
    ReopenTopic,
    Reorder,
    Rescope,
    Restate,
    RestoreLog,
    Retain,
    Rewriting,
    SetBuckets,
    SetFence,
    Skip,
    TakeOver,
)
from compactor.model.fence import Fence
from compactor.model.log import PartitionLog, empty
from compactor.model.order import TIMESTAMP
from compactor.model.position import WinnerRules
from compactor.model.record import TopicPartition, by_topic

BYTES: Final = "key"
"""The identity of a catalog that compares keys byte by byte."""

BY_BYTES: Final = "bytes"
"""The word of the settings for such a catalog (compaction.key.identity)."""


OF_TOPIC: Final = "topic"
"""The scope of a catalog that has one winner per key over all partitions of a topic (compaction.scope)."""

NO_FILL: Final = "none"
"""The word of the settings for a catalog that names no fill (compaction.fill)."""

BY_OFFSET: Final = "offset"
"""The order of Kafka's cleaner, and of a catalog that names no other: the record with the highest offset wins."""


MANY_A_BUCKET: Final = 1_000
"""From so many partitions a bucket on, each topic is dealt to one bucket as a whole."""


def deal(
    partitions: Sequence[TopicPartition], logs: Sequence[PartitionLog], buckets: int, *, whole_topics: bool = False
) -> list[int]:
    """Returns the bucket, of `buckets`, for each of `partitions`, which are to be added to `logs`.

    Few are dealt in turn, so that a large topic is published by all buckets. If there are many, a topic goes as a whole
    to the bucket with the fewest: before each request a producer looks through all partitions of every topic that it
    writes to. With `whole_topics` it always does, and partitions that it gets later follow those that it has: all
    positions of a topic are sent by one producer then (compaction.scope=topic).
    """
    held = Counter(log.bucket for log in logs)
    if not whole_topics and held.total() + len(partitions) < MANY_A_BUCKET * buckets:
        return [(held.total() + number) % buckets for number in range(len(partitions))]
    bucket_of: dict[str, int] = {log.topic: log.bucket for log in logs} if whole_topics else {}
    for topic, size in Counter(tp.topic for tp in partitions).items():
        bucket = bucket_of.setdefault(topic, min(range(buckets), key=held.__getitem__))
        held[bucket] += size
    return [bucket_of[tp.topic] for tp in partitions]


REJECTED: Final = "record rejected"
"""How the reason begins for which a topic is closed that has a bad record (errors.scope=topic)."""
_REASON_MAX: Final = 500
"""Characters of such a reason; it may quote a part of a record."""


class Topic(Struct, frozen=True, kw_only=True):
    """A source topic and its output topic; `closed` is the reason why it is no longer read, None while it is.

    `outputs` (compaction.scope=topic): the number of output partitions, over which keys are spread by Kafka's default
    partitioner. It stays as it was when the topic was added, or the scope changed. Unset, and then not written: a
    record stays in its partition. `fence`: what the truncates that were applied by the order have left of it; unset,
    and then not written: everything.
    """

    topic: str
    topic_id: str
    output: str | None
    output_id: str | None
    closed: str | None = None
    outputs: int | UnsetType = UNSET
    fence: Fence | UnsetType = UNSET

    @property
    def is_rejected(self) -> bool:
        """Whether it is closed for a bad record alone: its positions are kept, and the next start reads it again."""
        return self.closed is not None and self.closed.startswith(REJECTED)


def rejection_of(why: str) -> str:
    """Returns the reason for which a topic is closed that has a bad record: one line, without control characters."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in why).split())
    return f"{REJECTED}: {line}"[:_REASON_MAX]


class CatalogState(Struct, frozen=True, kw_only=True, dict=True):
    """The whole state of a connector after a commit. Names of fields are the checkpoints' format on disk.

    Lookups that are derived from it are kept in its `__dict__`, and are no part of the format.
    """

    catalog_id: str = ""
    connector: str = ""
    order: str = BY_OFFSET
    identity: str = BYTES
    scope: str = "partition"
    fill: str | UnsetType = UNSET
    epoch: int = 0
    owner: str = ""
    buckets: int = 0
    topics: dict[str, Topic] = {}
    logs: tuple[PartitionLog, ...] = ()
    snapshots: tuple[AddSnapshot, ...] = ()

    @property
    def key_identity(self) -> str | None:
        """By what keys are compared; None: by their bytes."""
        return None if self.identity == BYTES else self.identity

    @property
    def winners(self) -> WinnerRules:
        """What decides which record of a key wins, and what of it is filled."""
        return WinnerRules(self.order, self.scope, NO_FILL if self.fill is UNSET else self.fill)

    @property
    def is_of_topics(self) -> bool:
        """Whether a key has one winner over all partitions of a topic (compaction.scope=topic)."""
        return self.scope == OF_TOPIC

    @property
    def record_order(self) -> str:
        """By what the records of a key are ordered: over the partitions of a topic by time, as offsets say nothing."""
        return TIMESTAMP if self.is_of_topics and self.order == BY_OFFSET else self.order

    def log(self, tp: TopicPartition) -> PartitionLog:
        """Returns the log of `tp`. Raises KeyError if there is none."""
        return self._by_partition[tp]

    def by_partition(self) -> MappingProxyType[TopicPartition, PartitionLog]:
        """Returns all logs by their partition, in their order."""
        return self._by_partition

    def logs_of(self, topic: str) -> tuple[PartitionLog, ...]:
        """Returns the logs of `topic` by partition, without a look at those of others; empty if it has none."""
        return tuple(self._by_partition[tp] for tp in self._partitions.get(topic, ()))

    def snapshots_of(self, topic: str) -> tuple[AddSnapshot, ...]:
        """Returns the snapshots of `topic` in the order of their commits, without a look at those of others."""
        return self._snapshots.get(topic, ())

    @cached_property
    def _by_partition(self) -> MappingProxyType[TopicPartition, PartitionLog]:
        return MappingProxyType({log.tp: log for log in self.logs})

    @cached_property
    def _partitions(self) -> MappingProxyType[str, tuple[TopicPartition, ...]]:
        return MappingProxyType(by_topic(sorted(self._by_partition)))

    @cached_property
    def _snapshots(self) -> MappingProxyType[str, tuple[AddSnapshot, ...]]:
        return MappingProxyType(by_topic(self.snapshots))

    @property
    def paths(self) -> frozenset[str]:
        """Paths of all run files that are still needed."""
        return frozenset().union(*(log.paths for log in self.logs))


def apply(state: CatalogState, actions: Iterable[AnyAction]) -> CatalogState:
    """Returns the state after `actions`, in their order. Raises CatalogError if one does not fit."""
    draft = _Draft(state)
    for action in actions:
        draft.take(action)
    return draft.done()


class _Draft:
    """A state while actions are applied to it; logs by partition, so that an action costs only what it changes."""

    def __init__(self, state: CatalogState) -> None:
        self.state = state
        self.topics = dict(state.topics)
        self.logs = state.by_partition().copy()  # dict() would look up each through the proxy
        self.snapshots = list(state.snapshots)
        # Snapshots by topic, and partitions by topic (None once a partition was added): the derived lookups of `state`.
        self.taken = state._snapshots.copy()
        self.partitions: Mapping[str, tuple[TopicPartition, ...]] | None = state.__dict__.get("_partitions")

    def done(self) -> CatalogState:
        logs = tuple(self.logs.values())
        after = replace(self.state, topics=self.topics, logs=logs, snapshots=tuple(self.snapshots))
        # known here: the properties would build it again
        after.__dict__["_by_partition"] = MappingProxyType(self.logs)
        after.__dict__["_snapshots"] = MappingProxyType(self.taken)
        if self.partitions is not None:
            after.__dict__["_partitions"] = self.partitions
        return after

    def take(self, action: AnyAction) -> None:
        match action:
            case Create() | TakeOver() | Reorder() | Reidentify() | Refill():
                self.state = _apply_owner(self.state, action)
            case Rescope() | SetBuckets():
                self._deal(action)
            case AddTopic() | CloseTopic() | ReopenTopic() | RenewTopic() | SetFence():
                self.topics[action.topic] = _apply_topic(self.topics.get(action.topic), action)
            case AddSnapshot():
                self.snapshots.append(action)
                self.taken[action.topic] = (*self.taken.get(action.topic, ()), action)
            case DropSnapshot():
                self._drop(action)
            case AddPartition():
                self._add(action)
            case RestoreLog():
                self._put(action.log.tp, log_transitions.check_invariants(action.log))
            case _:
                tp = action.tp
                self.logs[tp] = _apply_log(self._log(tp), action)

    def _log(self, tp: TopicPartition) -> PartitionLog:
        if tp not in self.logs:
            raise CatalogError(f"{tp} is not in the catalog.", DEFECT)
        return self.logs[tp]

    def _deal(self, action: Rescope | SetBuckets) -> None:
        if isinstance(action, SetBuckets):
            self.state = replace(self.state, buckets=action.count)
        else:
            self.state = replace(self.state, scope=action.scope)
            spread = {name: action.outputs.get(name, UNSET) for name in self.topics}
            self.topics |= {name: replace(self.topics[name], outputs=outputs) for name, outputs in spread.items()}
        known = sorted(self.logs)
        dealt = deal(known, (), self.state.buckets, whole_topics=self.state.is_of_topics)
        for tp, bucket in zip(known, dealt, strict=True):
            self.logs[tp] = replace(self.logs[tp], bucket=bucket)

    def _add(self, action: AddPartition) -> None:
        tp = action.tp
        if tp in self.logs:
            raise CatalogError(f"{tp} is in the catalog already.")
        self._put(tp, empty(tp, action.bucket, action.start, action.backlog_end))

    def _put(self, tp: TopicPartition, log: PartitionLog) -> None:
        self.partitions = None
        self.logs[tp] = log

    def _drop(self, action: DropSnapshot) -> None:
        own = self.taken.get(action.topic, ())
        for dropped in own:
            if dropped.id == action.id:
                self.snapshots.remove(dropped)
        self.taken[action.topic] = tuple(kept for kept in own if kept.id != action.id)


def _apply_owner(state: CatalogState, action: Create | TakeOver | Reorder | Reidentify | Refill) -> CatalogState:
    match action:
        case Create():
            named = {name: getattr(action, name) for name in ("order", "identity", "scope", "fill")}
            return replace(state, catalog_id=action.catalog_id, connector=action.connector, **named)
        case TakeOver():
            return replace(state, epoch=action.epoch, owner=action.owner)
        case Reorder():
            return replace(state, order=action.order)
        case Reidentify():
            return replace(state, identity=action.identity)
        case Refill():
            return replace(state, fill=action.fill)


def _apply_topic(topic: Topic | None, action: AddTopic | CloseTopic | ReopenTopic | RenewTopic | SetFence) -> Topic:
    if isinstance(action, AddTopic):
        named = {name: getattr(action, name) for name in ("topic", "topic_id", "output", "output_id", "outputs")}
        return Topic(**named)
    if topic is None:
        raise CatalogError(f"Topic {action.topic} is not in the catalog.")
    if isinstance(action, SetFence):
        return replace(topic, fence=action.fence or UNSET)
    if isinstance(action, RenewTopic):
        return replace(topic, topic_id=action.topic_id, output_id=action.output_id, closed=None)
    return replace(topic, closed=action.reason if isinstance(action, CloseTopic) else None)


def _apply_log(
    log: PartitionLog, action: Append | PlanFold | Publish | Change | Rewriting | Quarantine | Release
) -> PartitionLog:
    match action:
        case Append():
            return log_transitions.append(log, action.start, action.end, action.run, action.gap, action.late_last)
        case PlanFold():
            return log_transitions.plan_fold(log, action.end, action.at_ms)
        case Publish():
            return log_transitions.publish(log, action.end, action.output, action.sent_from)
        case Quarantine() | Release():
            return replace(log, quarantine=action.quarantined if isinstance(action, Quarantine) else None)
        case Skip() | BeginGeneration():
            return _change(log, action)
        case _:
            return _rewrite(log, action)


def _change(log: PartitionLog, action: Change) -> PartitionLog:
    match action:
        case Skip():
            return log_transitions.skip(log, action.end)
        case BeginGeneration():
            return log_transitions.begin_generation(
                log, action.generation, action.lead, action.gap, action.carried or None
            )


def _rewrite(log: PartitionLog, action: Rewriting) -> PartitionLog:
    match action:
        case Clean():
            return log_transitions.clean(log, action.end, action.base, action.at_ms, action.output, action.behind_ms)
        case Merge():
            return log_transitions.merge(log, action.run)
        case Restate():
            return log_transitions.restate(log, action.runs)
        case Retain():
            return log_transitions.retain(log, action.start)
