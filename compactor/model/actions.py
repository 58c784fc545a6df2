"""What a catalog commit says.

A decision is a tuple of actions; `state.apply` gives the state after them. Commits are stored as their actions,
so each is small, and reading them back is applying them again.
"""

from __future__ import annotations

from msgspec import Struct

from compactor.model.log import Gap, OutputPoint, Quarantined, Run
from compactor.model.record import OfPartition


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


class AddPartition(Action, OfPartition, frozen=True, tag="add-partition"):
    """A source partition seen for the first time; fields as in `PartitionLog`."""

    topic: str
    partition: int
    bucket: int
    start: int
    backlog_end: int | None = None


class Append(Action, OfPartition, frozen=True, tag="append"):
    """Source offsets [start, end) are ingested; `run` holds their records, `gap` what was lost of them."""

    topic: str
    partition: int
    start: int
    end: int
    run: Run | None = None
    gap: Gap | None = None


class PlanFold(Action, OfPartition, frozen=True, tag="plan-fold"):
    """A fold that ends at `end` may have been sent in part, from `at_ms` on."""

    topic: str
    partition: int
    end: int
    at_ms: int | None = None


class Publish(Action, OfPartition, frozen=True, tag="publish"):
    """The fold that ends at `end` is sent completely."""

    topic: str
    partition: int
    end: int
    output: OutputPoint | None = None


class Clean(Action, OfPartition, frozen=True, tag="clean"):
    """`base` replaces everything below `end`; `at_ms` is the time that the clean was given.

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


class Merge(Action, OfPartition, frozen=True, tag="merge"):
    """`run` replaces the neighbouring runs that cover the same offsets; it is of a higher level than they."""

    topic: str
    partition: int
    run: Run


class Restate(Action, OfPartition, frozen=True, tag="restate"):
    """`runs` replace the level-0 run of the same offsets: its own files, counted within the bounds of each."""

    topic: str
    partition: int
    runs: tuple[Run, ...]


class Retain(Action, OfPartition, frozen=True, tag="retain"):
    """Retention: the log begins at `start`; what is below is no longer kept."""

    topic: str
    partition: int
    start: int


class Quarantine(Action, OfPartition, frozen=True, tag="quarantine"):
    """The log is set aside, or stays so: its files are damaged, or its fold keeps failing."""

    topic: str
    partition: int
    found: Quarantined


class Release(Action, OfPartition, frozen=True, tag="release"):
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
