"""Says what to do about records that cannot be folded, if errors.tolerance lets none go. Pure."""

from __future__ import annotations

from collections.abc import Container
from typing import Final, NamedTuple

from msgspec.structs import replace

from compactor.errors import RejectedRecordError
from compactor.ingest.appends import Batch
from compactor.model.record import NULL_KEY, TopicPartition

GIVE_IT_A_KEY: Final = (
    "Have the source give its records a key (Debezium: message.key.columns, with REPLICA IDENTITY FULL), or make one "
    "with a transform (ValueToKey); a table that is only appended to has no latest records: "
    "keep all of them by cleanup.policy=delete, and snapshot.mode=append."
)
"""What helps if a topic's records have no key: it is so with all of them, as a rule, so letting them go keeps none."""
LET_GO: Final = "Set errors.tolerance=all to let such records go, with errors.deadletterqueue.topic.name to keep them."


def action_for(reason: str) -> str:
    """Returns the next action for a record that is rejected for `reason`."""
    return f"{GIVE_IT_A_KEY} {LET_GO}" if reason.startswith(NULL_KEY) else LET_GO


class Rejected(NamedTuple):
    """A record that cannot be folded; `reason` has no full stop."""

    tp: TopicPartition
    offset: int
    reason: str

    def error(self, connector: str) -> RejectedRecordError:
        """Returns the error that says so, of its topic."""
        return RejectedRecordError(
            f"Connector {connector}: the record at topic {self.tp.topic}, partition {self.tp.partition}, offset "
            f"{self.offset} cannot be folded: {self.reason}.",
            f"{action_for(self.reason)} Nothing of this batch was taken.",
            topic=self.tp.topic,
        )


def rejected_topics(batch: Batch) -> dict[str, Rejected]:
    """Returns the first record of each topic of `batch` that cannot be folded, by topic, in the batch's order."""
    first: dict[str, Rejected] = {}
    for part in batch.parts:
        if part.first_rejected_offset is not None and part.topic not in first:
            reason = (part.first_rejected_reason or "").removesuffix(".")
            first[part.topic] = Rejected(part.tp, part.first_rejected_offset, reason)
    return first


def without_topics(batch: Batch, topics: Container[str]) -> Batch:
    """Returns `batch` without what was read of `topics`."""
    return replace(
        batch,
        ranges=tuple(read for read in batch.ranges if read.tp.topic not in topics),
        parts=tuple(part for part in batch.parts if part.topic not in topics),
    )
