"""What a publisher is given and returns: one plan a bucket, and one result a partition."""

from __future__ import annotations

from msgspec import Struct

from compactor.model.fence import Fence
from compactor.model.log import Generation
from compactor.model.position import WinnerRules
from compactor.model.record import OfPartition


class PublishTarget(OfPartition, Struct, frozen=True, kw_only=True):
    """A fold of one partition to be sent: the survivors of [start, end), and its rejected records.

    `committed` is the position that the group must still hold when the publish begins (None: none); `output_offset` is
    what the metadata of that position says. start == end only commits the position again; with `fold_end` it is one
    inside the fold that ends there. `generation` is the log's, None in the first one.

    `outputs` (compaction.scope=topic): over so many output partitions the topic's keys are spread; None: a record stays
    in its partition. The plan then has a target for each log of the topic, and `output_offset` of the one of partition
    n is about output partition n, whatever log its records come from.

    `fence`: what truncates have left of the topic, and `late_last` whether the record before `end` was late
    (`PartitionLog.late_last`); its position says so, too. Whether one before another offset was is not known.
    """

    topic: str
    partition: int
    bucket: int
    output: str | None
    start: int
    end: int
    committed: int | None = None
    output_offset: int | None = None
    generation: Generation | None = None
    fold_end: int | None = None
    outputs: int | None = None
    fence: Fence | None = None
    late_last: str | None = None

    @property
    def has_place(self) -> bool:
        """Whether the output has a partition of this number; a source may have got more partitions since."""
        return self.output is not None and (self.outputs is None or self.partition < self.outputs)


class PublishPlan(Struct, frozen=True, kw_only=True):
    """The targets that one transactional id sends next, in one epoch of one catalog.

    `identity`: by what the catalog compares keys; None: by their bytes. `winners`: its other rules. `buckets`: how many
    transactional ids it has. None: that is not known.
    """

    bucket: int
    epoch: int
    catalog_id: str
    targets: tuple[PublishTarget, ...]
    identity: str | None = None
    winners: WinnerRules | None = None
    buckets: int | None = None


class PublishResult(OfPartition, Struct, frozen=True, kw_only=True):
    """A target that was sent completely; `bytes` by `record.measure`.

    `refused` counts what the broker refused, `rejected` what cannot be folded, `unchanged` what the output
    has already (publish.unchanged=skip), `late` what loses to another partition's record (compaction.scope=topic): none
    of it is sent to the output.

    A transaction is counted once, in the first of its partitions: the sum over results is the number of transactions
    that were committed. `aborted` counts those that had to be sent again, in the first result of a plan.
    """

    topic: str
    partition: int
    end: int
    output_offset: int | None = None
    records: int = 0
    bytes: int = 0
    dead_letters: int = 0
    refused: int = 0
    rejected: int = 0
    unchanged: int = 0
    late: int = 0
    transactions: int = 0
    aborted: int = 0
