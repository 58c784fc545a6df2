"""Plans what is published: targets, plans by bucket, actions of steps 5 and 12, and the check of the answers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from compactor.errors import FoldError
from compactor.model.actions import AnyAction, PlanFold, Publish
from compactor.model.log import OutputPoint, PartitionLog
from compactor.model.position import ResumePoint
from compactor.model.publish_plan import PublishPlan, PublishResult, PublishTarget
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from compactor.runs.scan import OffsetRange, between

READ_BACK: Final = "This is a defect of keyfold; what is in doubt is read back before anything else is sent."

SENT: Final = pa.schema(
    [pa.field(name, pa.string() if name == "topic" else pa.int64()) for name in PublishResult.__struct_fields__]
)
"""Rows of a task's answer: one for each `PublishResult`, with its fields."""


def open_logs(state: CatalogState) -> tuple[PartitionLog, ...]:
    """Returns the logs that have a position: brokers have none for topics that are gone, and closed ones are left.

    Those closed for a bad record keep theirs, as the next start takes them up again.
    """
    return tuple(log for log in state.logs if has_position(state, log))


def has_position(state: CatalogState, log: PartitionLog) -> bool:
    """Returns whether the group's position of `log` counts, and is committed again before it expires."""
    topic = state.topics[log.topic]
    return topic.closed is None or topic.is_rejected


def published_logs(state: CatalogState) -> tuple[PartitionLog, ...]:
    """Returns the logs that are published: their topics are not closed, and what is to be sent is not damaged."""
    return tuple(log for log in state.logs if is_published(state, log))


def is_published(state: CatalogState, log: PartitionLog) -> bool:
    """Returns whether `log` is published on."""
    return state.topics[log.topic].closed is None and not (log.quarantine and log.quarantine.publishing)


def target_of(state: CatalogState, log: PartitionLog, resume: ResumePoint, end: int) -> PublishTarget:
    """Returns the target of a fold of `log` from its resume point to `end`, or of its position alone."""
    topic, last = state.topics[log.topic], max(end, resume.start)
    return PublishTarget(
        topic=log.topic,
        partition=log.partition,
        bucket=log.bucket,
        output=topic.output,
        start=resume.start,
        end=last,
        committed=resume.committed,
        output_offset=resume.output_offset,
        generation=log.generation,
        outputs=None if topic.outputs is UNSET else topic.outputs,
        fence=topic.fence or None,
        late_last=log.late_last or None if last == log.end else None,
    )


def renewal_of(state: CatalogState, log: PartitionLog, resume: ResumePoint) -> PublishTarget:
    """Returns the target that commits the position of `log` again as it is, inside a fold too."""
    return replace(target_of(state, log, resume, resume.start), fold_end=resume.fold_end)


def fold_plans(state: CatalogState, targets: Iterable[PublishTarget], now_ms: int) -> Sequence[AnyAction]:
    """Returns the actions of step 5: the ends of folds that are beyond folded_end."""
    logs = state.by_partition()
    return [
        PlanFold(topic=target.topic, partition=target.partition, end=target.end, at_ms=now_ms)
        for target in targets
        if target.end > logs[target.tp].folded_end
    ]


def bucket_plans(state: CatalogState, targets: Iterable[PublishTarget]) -> tuple[PublishPlan, ...]:
    """Returns one plan for each bucket of `targets`, by bucket."""
    buckets: dict[int, list[PublishTarget]] = {}
    for target in targets:
        buckets.setdefault(target.bucket, []).append(target)
    return tuple(
        PublishPlan(
            bucket=bucket,
            epoch=state.epoch,
            catalog_id=state.catalog_id,
            targets=tuple(bucket_targets),
            identity=state.key_identity,
            winners=state.winners,
            buckets=state.buckets or None,
        )
        for bucket, bucket_targets in sorted(buckets.items())
    )


def publishes(sent: Iterable[PublishResult], known: Mapping[TopicPartition, int | UnsetType]) -> Sequence[AnyAction]:
    """Returns the actions of step 12: the new published offsets, with `sent_from` of those `known`."""
    return [
        Publish(
            topic=result.topic,
            partition=result.partition,
            end=result.end,
            output=OutputPoint(result.end, result.output_offset) if result.output_offset is not None else None,
            sent_from=known.get(result.tp, UNSET),
        )
        for result in sent
    ]


def sent_rows(sent: Sequence[PublishResult]) -> list[dict[str, Any]]:
    """Returns `sent` as rows of SENT."""
    return [asdict(result) for result in sent]


def results_of(rows: Iterable[dict[str, Any]]) -> list[PublishResult]:
    """Returns the results that rows of SENT stand for."""
    return [PublishResult(**row) for row in rows]


class Due(NamedTuple):
    """An offset range of which the records are sent, and the bucket that sends them."""

    range: OffsetRange
    bucket: int


def due_of(state: CatalogState, plans: Sequence[PublishPlan]) -> list[Due]:
    """Returns the ranges that `plans` send, in the order of their targets."""
    logs = state.by_partition()
    due = [target for plan in plans for target in plan.targets if target.start < target.end]
    return [
        Due(between(logs[target.tp], target.start, target.end), target.bucket)
        for target in due
        if _is_sent(target, logs[target.tp])
    ]


def complete(plans: Sequence[PublishPlan], sent: Sequence[PublishResult]) -> tuple[PublishResult, ...]:
    """Returns `sent` once it is checked: it answers every target once and to its end. Raises FoldError otherwise."""
    asked = sorted((*target.tp, target.end) for plan in plans for target in plan.targets)
    answered = sorted((result.topic, result.partition, result.end) for result in sent)
    if asked != answered:
        wrong = sorted(set(asked) ^ set(answered))
        raise FoldError(f"The publishing tasks did not answer for what they were asked: {wrong[:3]}.", READ_BACK)
    return tuple(sent)


def _is_sent(target: PublishTarget, log: PartitionLog) -> bool:
    """Returns whether any record of `target` is sent: without an output topic only rejected ones are."""
    return target.output is not None or any(run.rejected for run in between(log, target.start, target.end).runs)
