"""Chooses which logs the next job cleans: the filthiest and the overdue alternate. Pure, from metadata alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from compactor.clean.due import CleaningDecision, Queue, Reason, evaluate
from compactor.model.log import PartitionLog
from compactor.model.record import TopicPartition
from compactor.settings import CompactionPolicy, FoldPolicy


class Choice(Struct, frozen=True, kw_only=True):
    """The logs that the next job cleans, in the order of their choice.

    `last` is the queue that was served last: pass it to the next choice.
    """

    picked: tuple[CleaningDecision, ...] = ()
    last: Queue | None = None


def evaluate_all(
    logs: Iterable[PartitionLog],
    policy: CompactionPolicy,
    fold: FoldPolicy,
    now_ms: int,
    excluded: Mapping[TopicPartition, Reason],
) -> tuple[CleaningDecision, ...]:
    """Decides on each of `logs`; `excluded` names those that may not be cleaned now: BUSY or QUARANTINED."""
    return tuple(evaluate(log, policy, fold, now_ms, excluded.get(log.tp)) for log in logs)


def choose(decisions: Iterable[CleaningDecision], last: Queue | None, budget: int) -> Choice:
    """Chooses from the due logs those that one job of `budget` bytes to read takes; the first may be larger.

    Overdue ones (longest due first) and filthy ones (highest ratio first) alternate, beginning with the queue
    that was not served last, so that neither starves; ties go by topic and partition. The first that does
    not fit ends the job and is not passed over: else small logs could keep a large one waiting for ever.
    """
    due = tuple(decisions)
    queues = {
        Queue.OVERDUE: deque(sorted(_of(due, Queue.OVERDUE), key=lambda log: (log.due_ms or 0, log.tp))),
        Queue.FILTHY: deque(sorted(_of(due, Queue.FILTHY), key=lambda log: (-log.measured.ratio, log.tp))),
    }
    picked: list[CleaningDecision] = []
    while turn := _turn(queues, last):
        decision = queues[turn].popleft()
        if picked and decision.measured.total_bytes > budget:
            break
        picked.append(decision)
        budget -= decision.measured.total_bytes
        last = turn
    return Choice(picked=tuple(picked), last=last)


def _of(decisions: Iterable[CleaningDecision], queue: Queue) -> Iterator[CleaningDecision]:
    return (decision for decision in decisions if decision.queue is queue)


def _turn(queues: Mapping[Queue, Collection[CleaningDecision]], last: Queue | None) -> Queue | None:
    """Returns the queue that is next: the other one than `last`, if any log waits in it."""
    order = (Queue.FILTHY, Queue.OVERDUE) if last is Queue.OVERDUE else (Queue.OVERDUE, Queue.FILTHY)
    return next((queue for queue in order if queues[queue]), None)
