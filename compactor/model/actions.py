"""The actions of a catalog commit. Names of fields and tags are the catalog's format on disk.

A decision is a tuple of actions; `state.apply` returns the state after them. A commit is stored as its actions, so it
is small, and reading it back is applying them again.
"""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType, field

from compactor.model.fence import Fence
from compactor.model.log import Gap, Generation, OutputPoint, PartitionLog, Quarantined, Run
from compactor.model.record import OfPartition


class Action(Struct, frozen=True, kw_only=True, tag_field="do"):
    """Base of all actions; `do` names the action on disk."""


class Create(Action, frozen=True, tag="create"):
    """Begins a catalog. Its rules change by `Reorder`, `Reidentify`, `Rescope` and `Refill` alone.

    `fill` unset, and then not written: none.
    """

    catalog_id: str
    connector: str
    order: str = "offset"
    identity: str = "key"
    scope: str = "partition"
    fill: str | UnsetType = UNSET


class TakeOver(Action, frozen=True, tag="take-over"):
    """Makes `owner` the owner of the connector; every lower epoch is fenced."""

    epoch: int
    owner: str


class Reorder(Action, frozen=True, tag="reorder"):
    """Gives the catalog another order; every log begins again with the same commit, as an operator asked."""

    order: str


class Reidentify(Action, frozen=True, tag="reidentify"):
    """Compares keys by another identity; every log begins again with the same commit, as by `Reorder`."""

    identity: str


class Refill(Action, frozen=True, tag="refill"):
    """Gives the catalog another fill, unset for none; every log begins again with the same commit, as by `Reorder`."""

    fill: str | UnsetType = UNSET


class Rescope(Action, frozen=True, tag="rescope"):
    """Gives the catalog another scope; every log begins again with the same commit, as by `Reorder`.

    `outputs`: over how many output partitions the keys of each topic are spread from now on; a topic that is not named
    keeps a record in its partition. Partitions are dealt to the transactional ids again, which are all fenced by then.
    """

    scope: str
    outputs: dict[str, int] = {}


class SetBuckets(Action, frozen=True, tag="set-buckets"):
    """Distributes the partitions over the transactional ids 0 … count-1.

    Only a take-over commits it, and only once every older id is fenced: a partition that moves between two live ids
    would be published twice.
    """

    count: int


class AddTopic(Action, frozen=True, tag="add-topic"):
    """Adds a source topic and its output topic, both with their ids; `output` None: nothing is published.

    `outputs` as in `Topic`; unset, and then not written: a record stays in its partition.
    """

    topic: str
    topic_id: str
    output: str | None
    output_id: str | None
    outputs: int | UnsetType = UNSET


class CloseTopic(Action, frozen=True, tag="close-topic"):
    """Closes a source topic that is gone, cannot be read on, or is no longer named; its logs are kept."""

    topic: str
    reason: str


class ReopenTopic(Action, frozen=True, tag="reopen-topic"):
    """Opens a closed source topic that is named again and has the same id."""

    topic: str


class RenewTopic(Action, frozen=True, tag="renew-topic"):
    """Opens a source topic, closed or not, under the ids that it and its output have now, as an operator asked."""

    topic: str
    topic_id: str
    output_id: str | None


class SetFence(Action, frozen=True, tag="set-fence"):
    """Sets what the truncates of a source topic have left of it, as in `Topic`; None: nothing is superseded."""

    topic: str
    fence: Fence | None


class AddPartition(Action, OfPartition, frozen=True, tag="add-partition"):
    """Adds a source partition that is seen for the first time; fields as in `PartitionLog`."""

    topic: str
    partition: int
    bucket: int
    start: int
    backlog_end: int | None = None


class Append(Action, OfPartition, frozen=True, tag="append"):
    """Ingests source offsets [start, end); `run` holds their records, `gap` the offsets that were lost.

    `late` counts their records that lost by the connector's order, and are in no run; unset, and not written: none.
    `late_last` as in `RangeRead`; unset, and not written: it stays as it is.
    """

    topic: str
    partition: int
    start: int
    end: int
    run: Run | None = None
    gap: Gap | None = None
    late: int | UnsetType = UNSET
    late_last: str | UnsetType = UNSET


class PlanFold(Action, OfPartition, frozen=True, tag="plan-fold"):
    """Plans a fold that ends at `end`; from `at_ms` on it may have been sent in part."""

    topic: str
    partition: int
    end: int
    at_ms: int | None = None


class Publish(Action, OfPartition, frozen=True, tag="publish"):
    """Moves published to `end`: the fold that ends there is sent completely; `sent_from` as in `PartitionLog`."""

    topic: str
    partition: int
    end: int
    output: OutputPoint | None = None
    sent_from: int | UnsetType = UNSET


class Clean(Action, OfPartition, frozen=True, tag="clean"):
    """Replaces everything below `end` by `base`, cleaned at `at_ms`.

    `output` is the commit of the output at `end` when the clean was planned; nothing above `end` was sent before
    `behind_ms`.
    """

    topic: str
    partition: int
    end: int
    base: Run
    at_ms: int | None = None
    output: OutputPoint | None = None
    behind_ms: int | None = None


class Merge(Action, OfPartition, frozen=True, tag="merge"):
    """Replaces the neighbouring runs that cover the offsets of `run` by it; its level is above theirs."""

    topic: str
    partition: int
    run: Run


class Restate(Action, OfPartition, frozen=True, tag="restate"):
    """Replaces a level-0 run by `runs` of the same offsets and files, each counted within its own bounds."""

    topic: str
    partition: int
    runs: tuple[Run, ...]


class Retain(Action, OfPartition, frozen=True, tag="retain"):
    """Moves the start of the log to `start` by retention; what lies below is no longer kept."""

    topic: str
    partition: int
    start: int


class Skip(Action, OfPartition, frozen=True, tag="skip"):
    """Gives up the offsets from published to `end`, as an operator asked; what was ingested of them is dropped."""

    topic: str
    partition: int
    end: int


class BeginGeneration(Action, OfPartition, frozen=True, tag="begin-generation"):
    """Begins the log again as `generation`; `lead` holds tombstones for the keys that the output has.

    `gap`: source offsets below the generation that were not published and are given up; None without any.
    `carried`: what the log keeps from its start on, at its own offsets; unset, and then not written: it is read again.
    """

    topic: str
    partition: int
    generation: Generation
    lead: Run | None = None
    gap: Gap | None = None
    carried: Run | UnsetType = UNSET


class RestoreLog(Action, frozen=True, tag="restore-log"):
    """Gives a partition the log that a lost catalog had of it, as far as its output tells."""

    log: PartitionLog


class Quarantine(Action, OfPartition, frozen=True, tag="quarantine"):
    """Puts the log into quarantine, or keeps it there: its files are damaged, or its fold keeps failing."""

    topic: str
    partition: int
    quarantined: Quarantined = field(name="found")


class Release(Action, OfPartition, frozen=True, tag="release"):
    """Ends the quarantine of the log."""

    topic: str
    partition: int


class AddSnapshot(Action, frozen=True, tag="add-snapshot"):
    """Adds a snapshot; its manifest is complete at `path`, relative to the snapshot location."""

    topic: str
    id: str
    path: str
    created_ms: int
    source_offsets: dict[str, int]
    records: int
    bytes: int


class DropSnapshot(Action, frozen=True, tag="drop-snapshot"):
    """Drops a snapshot beyond snapshot.retention.count; its files may be removed."""

    topic: str
    id: str


AnyAction = (
    Create
    | TakeOver
    | Reorder
    | Reidentify
    | Refill
    | Rescope
    | SetBuckets
    | AddTopic
    | CloseTopic
    | ReopenTopic
    | RenewTopic
    | SetFence
    | AddPartition
    | Append
    | PlanFold
    | Publish
    | Clean
    | Merge
    | Restate
    | Retain
    | Skip
    | BeginGeneration
    | RestoreLog
    | Quarantine
    | Release
    | AddSnapshot
    | DropSnapshot
)


Change = Skip | BeginGeneration
"""The actions by which an operator changes the offset from which one log goes on."""


Rewriting = Clean | Merge | Restate | Retain
"""The actions that replace or remove runs of one log."""
