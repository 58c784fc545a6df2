"""Which logs the next job cleans: filthiest and overdue alternate. Pure, from metadata alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from compactor.clean.decision import CleaningDecision, Queue, Reason, evaluate
from compactor.model.log import PartitionLog, end_within
from compactor.model.record import TopicPartition
from compactor.settings import CompactionPolicy, FoldPolicy


def publishable(
    log: PartitionLog,
    policy: CompactionPolicy,
    now_ms: int,
    first_young: Callable[[int], int | None],
    *,
    bootstrap_fold: bool = True,
) -> int:
    """The offset up to which `log` may be folded and sent: the first record inside the lag, or the log's end.

    `first_young` gives the first offset from folded_end on whose record is younger than the time that it is
    told, in ms; it is asked only where there is a lag (KIP-58, by record instead of by segment). Never below
    folded_end: a fold that began once ends where it was to end, whatever clock and lag say now. While the
    backlog that a topic had when it was first seen is not read to its end, nothing more is publishable, so
    that a reader of a fresh output gets each key once. Runs that were folded when they came, before there was a lag,
    are let go whole.
    """
    if bootstrap_fold and log.backlog_end is not None and log.end < log.backlog_end:
        return log.folded_end
    if policy.min_compaction_lag_ms <= 0 or log.folded_end >= log.end:
        return log.end
    young = first_young(now_ms - policy.min_compaction_lag_ms)
    return log.end if young is None else max(log.folded_end, end_within(log, young))


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
    holds: Mapping[TopicPartition, Reason],
) -> tuple[CleaningDecision, ...]:
    """Decides on each of `logs`; `holds` names those that may not be cleaned now: BUSY or QUARANTINED."""
    return tuple(evaluate(log, policy, fold, now_ms, holds.get(log.tp)) for log in logs)


def choose(decisions: Iterable[CleaningDecision], last: Queue | None, budget: int) -> Choice:
    """Chooses those of the due logs that one job of `budget` bytes to read takes; a first one may be larger.

    Overdue ones (longest due first) and filthy ones (highest ratio first) alternate, beginning with the queue
    that was not served last, so that neither starves; ties go by topic and partition. The first that does
    not fit ends the job and is not passed over: else small logs could keep a large one waiting for ever.
    """
    due = tuple(decisions)
    queues = {
        Queue.OVERDUE: deque(sorted(_of(due, Queue.OVERDUE), key=_by_time)),
        Queue.FILTHY: deque(sorted(_of(due, Queue.FILTHY), key=_by_ratio)),
    }
    picked: list[CleaningDecision] = []
    while turn := _turn(queues, last):
        found = queues[turn].popleft()
        if picked and found.measured.total_bytes > budget:
            break
        picked.append(found)
        budget -= found.measured.total_bytes
        last = turn
    return Choice(picked=tuple(picked), last=last)


def _of(decisions: Iterable[CleaningDecision], queue: Queue) -> Iterator[CleaningDecision]:
    return (found for found in decisions if found.queue is queue)


def _turn(queues: Mapping[Queue, Collection[CleaningDecision]], last: Queue | None) -> Queue | None:
    """Returns whose turn it is: the other queue than `last`, if any log waits in it."""
    order = (Queue.FILTHY, Queue.OVERDUE) if last is Queue.OVERDUE else (Queue.OVERDUE, Queue.FILTHY)
    return next((queue for queue in order if queues[queue]), None)


def _by_time(found: CleaningDecision) -> tuple[int, TopicPartition]:
    return (found.due_ms or 0, found.tp)


def _by_ratio(found: CleaningDecision) -> tuple[float, TopicPartition]:
    return (-found.measured.ratio, found.tp)
