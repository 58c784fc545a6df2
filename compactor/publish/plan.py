"""What is due to be sent for some plans, and whether the answers are complete: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from msgspec.structs import asdict

from compactor.errors import FoldError
from compactor.model.log import PartitionLog
from compactor.model.publish_plan import PublishPlan, PublishResult, PublishTarget
from compactor.model.state import State
from compactor.runs.scan import OffsetRange, between

READ_BACK: Final = "This is a defect of keyfold; what is in doubt is read back before anything else is sent."


SENT: Final = pa.schema(
    [pa.field(name, pa.string() if name == "topic" else pa.int64()) for name in PublishResult.__struct_fields__]
)
"""What was sent, as a task tells it: the fields of `PublishResult`."""


def sent_rows(sent: Sequence[PublishResult]) -> list[dict[str, Any]]:
    """Returns `sent` as rows of SENT."""
    return [asdict(one) for one in sent]


def results_of(rows: Iterable[dict[str, Any]]) -> list[PublishResult]:
    """Returns the results that rows of SENT stand for."""
    return [PublishResult(**row) for row in rows]


class Due(NamedTuple):
    """A part of a log of which records leave, and the bucket that sends it."""

    range: OffsetRange
    bucket: int


def due_of(state: State, plans: Sequence[PublishPlan]) -> list[Due]:
    """Returns what `plans` send, in the order of their targets."""
    logs = state.by_partition()
    due = [target for plan in plans for target in plan.targets if target.start < target.end]
    return [
        Due(between(logs[target.tp], target.start, target.end), target.bucket)
        for target in due
        if _is_sent(target, logs[target.tp])
    ]


def complete(plans: Sequence[PublishPlan], sent: Sequence[PublishResult]) -> tuple[PublishResult, ...]:
    """Returns `sent`, if it answers every target once and to its end; FoldError otherwise."""
    asked = sorted((*target.tp, target.end) for plan in plans for target in plan.targets)
    answered = sorted((one.topic, one.partition, one.end) for one in sent)
    if asked != answered:
        wrong = sorted(set(asked) ^ set(answered))
        raise FoldError(f"The publishing tasks did not answer for what they were asked: {wrong[:3]}.", READ_BACK)
    return tuple(sent)


def _is_sent(target: PublishTarget, log: PartitionLog) -> bool:
    """Whether any record of `target` leaves: without an output topic only rejected ones do."""
    return target.output is not None or any(run.rejected for run in between(log, target.start, target.end).runs)
