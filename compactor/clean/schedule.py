"""What is due, decided from metadata: pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from compactor.clean.decision import verdict
from compactor.clean.verdict import CleaningDecision, Kind, Reason
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
    """The logs of the next job of full folds, in the order of their choice.

    `last` is the kind that was served last: pass it to the next choice.
    """

    picked: tuple[CleaningDecision, ...] = ()
    last: Kind | None = None


def survey(
    logs: Iterable[PartitionLog],
    policy: CompactionPolicy,
    fold: FoldPolicy,
    now_ms: int,
    holds: Mapping[TopicPartition, Reason],
) -> tuple[CleaningDecision, ...]:
    """A verdict on every log; `holds` names those that may not be folded now: BUSY or QUARANTINED."""
    return tuple(verdict(log, policy, fold, now_ms, holds.get(log.tp)) for log in logs)


def choose(verdicts: Iterable[CleaningDecision], last: Kind | None, budget: int) -> Choice:
    """Which of the due logs one job takes, of `budget` bytes to read; a first one may be larger.

    Overdue ones (longest due first) and filthy ones (highest ratio first) alternate, beginning with the kind
    that was not served last, so that neither starves; ties go by topic and partition. The first that does
    not fit ends the job and is not passed over: else small logs could keep a large one waiting for ever.
    """
    due = tuple(verdicts)
    queues = {
        Kind.OVERDUE: deque(sorted(_of(due, Kind.OVERDUE), key=_by_time)),
        Kind.FILTHY: deque(sorted(_of(due, Kind.FILTHY), key=_by_ratio)),
    }
    picked: list[CleaningDecision] = []
    while kind := _turn(queues, last):
        found = queues[kind].popleft()
        if picked and found.dirt.cost > budget:
            break
        picked.append(found)
        budget -= found.dirt.cost
        last = kind
    return Choice(picked=tuple(picked), last=last)


def _of(verdicts: Iterable[CleaningDecision], kind: Kind) -> Iterator[CleaningDecision]:
    return (found for found in verdicts if found.kind is kind)


def _turn(queues: Mapping[Kind, Collection[CleaningDecision]], last: Kind | None) -> Kind | None:
    """Whose turn it is: the other kind's than `last`, if any of it waits."""
    order = (Kind.FILTHY, Kind.OVERDUE) if last is Kind.OVERDUE else (Kind.OVERDUE, Kind.FILTHY)
    return next((kind for kind in order if queues[kind]), None)


def _by_time(found: CleaningDecision) -> tuple[int, TopicPartition]:
    return (found.due_ms or 0, found.tp)


def _by_ratio(found: CleaningDecision) -> tuple[float, TopicPartition]:
    return (-found.dirt.ratio, found.tp)
