"""What a catalog commit says, and the one place where it changes the state.

A decision is a tuple of actions; `apply` gives the state after them. Commits are stored as their actions,
so each is small, and reading them back is applying them again.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from compactor import log as logs
from compactor import rewrite
from compactor.errors import CatalogError
from compactor.log import Gap, OutputPoint, PartitionLog, Quarantined, Run
from compactor.record import TopicPartition


class Action(Struct, frozen=True, kw_only=True, tag_field="do"):
    """Base of all actions."""


class Create(Action, frozen=True, tag="create"):
    """The first commit. Order, identity and scope can never change afterwards."""

    catalog_id: str
    connector: str
    order: str = "offset"
    identity: str = "key"
    scope: str = "partition"


class TakeOver(Action, frozen=True, tag="take-over"):
    """`owner` owns the connector from here on; every lower epoch is fenced."""

    epoch: int
    owner: str


class SetBuckets(Action, frozen=True, tag="set-buckets"):
    """Publishing uses the transactional ids 0 … count-1, and the partitions are dealt among them anew.

    Only a take-over may say this, and only once every older id is fenced: a partition that moves between
    two live ids would be published twice.
    """

    count: int


class AddTopic(Action, frozen=True, tag="add-topic"):
    """A source topic by its id, and the output topic by its id (None: nothing is published)."""

    topic: str
    topic_id: str
    output: str | None
    output_id: str | None


class CloseTopic(Action, frozen=True, tag="close-topic"):
    """The source topic is gone or no longer named; its logs are kept."""

    topic: str
    reason: str


class ReopenTopic(Action, frozen=True, tag="reopen-topic"):
    """The same source topic (same id) is named again."""

    topic: str


class AddPartition(Action, frozen=True, tag="add-partition"):
    """A source partition seen for the first time; fields as in `PartitionLog`."""

    topic: str
    partition: int
    bucket: int
    start: int
    backlog_end: int | None = None


class Append(Action, frozen=True, tag="append"):
    """Source offsets [start, end) are ingested; `run` holds their records, `gap` what was lost of them."""

    topic: str
    partition: int
    start: int
    end: int
    run: Run | None = None
    gap: Gap | None = None


class PlanFold(Action, frozen=True, tag="plan-fold"):
    """A fold that ends at `end` may have been sent in part, from `at_ms` on."""

    topic: str
    partition: int
    end: int
    at_ms: int | None = None


class Publish(Action, frozen=True, tag="publish"):
    """The fold that ends at `end` is sent completely."""

    topic: str
    partition: int
    end: int
    output: OutputPoint | None = None


class Clean(Action, frozen=True, tag="clean"):
    """`base` replaces everything below `end`; `at_ms` is the time that the full fold was given.

    `output` is the commit of the changelog that stood at `end` when the fold was planned; nothing above `end` was sent
    before `behind_ms`.
    """

    topic: str
    partition: int
    end: int
    base: Run
    at_ms: int | None = None
    output: OutputPoint | None = None
    behind_ms: int | None = None


class Merge(Action, frozen=True, tag="merge"):
    """`run` replaces the neighbouring runs that cover the same offsets; it is of a higher level than they."""

    topic: str
    partition: int
    run: Run


class Restate(Action, frozen=True, tag="restate"):
    """`runs` replace the level-0 run of the same offsets: its own files, counted within the bounds of each."""

    topic: str
    partition: int
    runs: tuple[Run, ...]


class Retain(Action, frozen=True, tag="retain"):
    """Retention: the log begins at `start`; what is below is no longer kept."""

    topic: str
    partition: int
    start: int


class Quarantine(Action, frozen=True, tag="quarantine"):
    """The log is set aside, or stays so: its files are damaged, or its fold keeps failing."""

    topic: str
    partition: int
    found: Quarantined


class Release(Action, frozen=True, tag="release"):
    """The log is taken up again."""

    topic: str
    partition: int


class AddSnapshot(Action, frozen=True, tag="add-snapshot"):
    """A snapshot's manifest is complete at `path`, relative to the snapshot location."""

    topic: str
    id: str
    path: str
    created_ms: int
    source_offsets: dict[str, int]
    records: int
    bytes: int


class DropSnapshot(Action, frozen=True, tag="drop-snapshot"):
    """A snapshot is past its count; its files may go."""

    topic: str
    id: str


AnyAction = (
    Create
    | TakeOver
    | SetBuckets
    | AddTopic
    | CloseTopic
    | ReopenTopic
    | AddPartition
    | Append
    | PlanFold
    | Publish
    | Clean
    | Merge
    | Restate
    | Retain
    | Quarantine
    | Release
    | AddSnapshot
    | DropSnapshot
)


Rewriting = Clean | Merge | Restate | Retain
"""What changes the runs of one log."""


class Topic(Struct, frozen=True, kw_only=True):
    """A source topic and where it is published; `closed` says why it is no longer read."""

    topic: str
    topic_id: str
    output: str | None
    output_id: str | None
    closed: str | None = None


class State(Struct, frozen=True, kw_only=True):
    """Everything that a catalog says: what is true of a connector after a commit."""

    catalog_id: str = ""
    connector: str = ""
    order: str = "offset"
    identity: str = "key"
    scope: str = "partition"
    epoch: int = 0
    owner: str = ""
    buckets: int = 0
    topics: dict[str, Topic] = {}
    logs: tuple[PartitionLog, ...] = ()
    snapshots: tuple[AddSnapshot, ...] = ()

    def log(self, tp: TopicPartition) -> PartitionLog:
        """The log of `tp`; KeyError where there is none."""
        return next(log for log in self.logs if log.tp == tp)

    def by_partition(self) -> dict[TopicPartition, PartitionLog]:
        """All logs by their partition."""
        return {log.tp: log for log in self.logs}

    @property
    def paths(self) -> frozenset[str]:
        """Every run file that is still needed."""
        return frozenset().union(*(log.paths for log in self.logs))


def apply(state: State, actions: Iterable[AnyAction]) -> State:
    """The state after `actions`, in their order; CatalogError where one does not fit."""
    draft = _Draft(state)
    for action in actions:
        draft.take(action)
    return draft.done()


class _Draft:
    """A state while actions are applied to it: logs by partition, so that an action costs what it changes."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.topics = dict(state.topics)
        self.logs = state.by_partition()
        self.snapshots = list(state.snapshots)

    def done(self) -> State:
        return replace(self.state, topics=self.topics, logs=tuple(self.logs.values()), snapshots=tuple(self.snapshots))

    def take(self, action: AnyAction) -> None:
        match action:
            case Create() | TakeOver():
                self.state = _apply_owner(self.state, action)
            case SetBuckets():
                self._deal(action.count)
            case AddTopic() | CloseTopic() | ReopenTopic():
                self.topics[action.topic] = _apply_topic(self.topics.get(action.topic), action)
            case AddSnapshot():
                self.snapshots.append(action)
            case DropSnapshot():
                self.snapshots = [kept for kept in self.snapshots if (kept.topic, kept.id) != (action.topic, action.id)]
            case AddPartition():
                self._add(action)
            case _:
                tp = TopicPartition(action.topic, action.partition)
                self.logs[tp] = _apply_log(self._log(tp), action)

    def _log(self, tp: TopicPartition) -> PartitionLog:
        if tp not in self.logs:
            raise CatalogError(f"{tp} is not in the catalog.", "This is a defect of keyfold; nothing was committed.")
        return self.logs[tp]

    def _deal(self, count: int) -> None:
        self.state = replace(self.state, buckets=count)
        for position, tp in enumerate(sorted(self.logs)):
            self.logs[tp] = replace(self.logs[tp], bucket=position % count)

    def _add(self, action: AddPartition) -> None:
        tp = TopicPartition(action.topic, action.partition)
        if tp in self.logs:
            raise CatalogError(f"{tp} is in the catalog already.")
        self.logs[tp] = logs.empty(tp, action.bucket, action.start, action.backlog_end)


def _apply_owner(state: State, action: Create | TakeOver) -> State:
    match action:
        case Create():
            named = {name: getattr(action, name) for name in ("order", "identity", "scope")}
            return replace(state, catalog_id=action.catalog_id, connector=action.connector, **named)
        case TakeOver():
            return replace(state, epoch=action.epoch, owner=action.owner)


def _apply_topic(topic: Topic | None, action: AddTopic | CloseTopic | ReopenTopic) -> Topic:
    if isinstance(action, AddTopic):
        return Topic(topic=action.topic, topic_id=action.topic_id, output=action.output, output_id=action.output_id)
    if topic is None:
        raise CatalogError(f"Topic {action.topic} is not in the catalog.")
    return replace(topic, closed=action.reason if isinstance(action, CloseTopic) else None)


def _apply_log(
    log: PartitionLog, action: Append | PlanFold | Publish | Rewriting | Quarantine | Release
) -> PartitionLog:
    match action:
        case Append():
            return logs.append(log, action.start, action.end, action.run, action.gap)
        case PlanFold():
            return logs.plan(log, action.end, action.at_ms)
        case Publish():
            return logs.publish(log, action.end, action.output)
        case Quarantine():
            return replace(log, quarantine=action.found)
        case Release():
            return replace(log, quarantine=None)
        case _:
            return _rewrite(log, action)


def _rewrite(log: PartitionLog, action: Rewriting) -> PartitionLog:
    match action:
        case Clean():
            return logs.clean(log, action.end, action.base, action.at_ms, action.output, action.behind_ms)
        case Merge():
            return rewrite.merge(log, action.run)
        case Restate():
            return rewrite.restate(log, action.runs)
        case Retain():
            return rewrite.retain(log, action.start)
