"""Finds what a clean would do now. It only reads: nothing is written, and no connector is taken over.

    1  previews      at which offsets each log's fold would begin and end, under each of the settings
    2  range counts  records and bytes of every log between the offsets that matter
    3  survivors     what the last records of all keys come to, under each of the settings
    4  split keys    under the first settings: keys that live in more than one partition of a topic, or were deleted in
                     another one

A log that is in quarantine, or has a damaged file, is left out and reported with its error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from msgspec.structs import replace

from compactor.analyze.effect import Analysis, PartitionAnalysis, SplitKeys, Survivors, outcome
from compactor.analyze.preview import FoldPreview, RangeCounts, boundaries, preview
from compactor.fold.memory_budget import COUNTED, MemoryBudget
from compactor.model.log import PartitionLog
from compactor.model.order import TIMESTAMP
from compactor.model.record import TopicPartition
from compactor.model.state import BY_OFFSET, OF_TOPIC, CatalogState
from compactor.publish.publishable import first_young
from compactor.quarantine import verify
from compactor.quarantine.quarantine import may_be_damage
from compactor.runs.scan import whole
from compactor.settings import EngineSettings
from compactor.storage.base import Storage

Fold = tuple[tuple[int, int], ...]
"""By number of the log, the offsets [start, end) that a clean reads of it."""

EXAMPLES: Final = 5
"""How many split keys of a topic are named: the smallest."""


class Counting(Protocol):
    """Counts what some logs hold; lists are by number of the log. Raises StorageError, and what damaged files raise.

    `arrow_counts` reads little in this process, `spark_counts` any amount on Spark; the same tests hold both.
    """

    def range_counts(self, bounds: Sequence[tuple[int, ...]]) -> list[RangeCounts]:
        """Returns what each log holds between its own `bounds`, which are at least one."""

    def survivors(self, folds: Sequence[Fold], now_ms: int) -> dict[Fold, list[Survivors]]:
        """Returns by fold the last records of all keys, by what the fold makes of them at `now_ms`."""

    def winners(self, folds: Sequence[Fold], now_ms: int, order: str) -> dict[Fold, list[Survivors]]:
        """Returns the same if a key has one winner over all partitions of a topic: by `order`, then by partition.

        Of a log that is the records of it that win.
        """

    def split_keys(self, ranges: Fold) -> dict[str, SplitKeys]:
        """Returns by topic the keys that are live in several of its partitions, and the outdated records.

        Topics without any are left out.
        """


def is_little(logs: Iterable[PartitionLog], budget: MemoryBudget = COUNTED) -> bool:
    """Returns whether `logs` hold so little that counting it in this process takes less than Spark's start."""
    return budget.fits([whole(log) for log in logs])


def analyze(
    storage: Storage,
    state: CatalogState,
    settings: Sequence[EngineSettings],
    now_ms: int,
    counts: Callable[[Sequence[PartitionLog]], Counting],
    report: Callable[[str], None] = lambda _: None,
) -> Analysis:
    """Returns what a clean of every log of `state` at `now_ms` would do under each of `settings`, in their order.

    `counts` makes what counts some logs; `report` is called with the name of each step. Raises StorageError.
    """
    job = partial(_analyze, storage, settings=settings, now_ms=now_ms, counts=counts, report=report)
    excluded = {log.tp: log.quarantine.error for log in state.logs if log.quarantine}
    try:
        analysis = job(_without(state, excluded))
    except Exception as error:
        damaged = _damaged(storage, _without(state, excluded).logs) if may_be_damage(error) else {}
        if not damaged:
            raise
        excluded |= damaged
        analysis = job(_without(state, excluded))
    left_out = (_left_out(log, excluded[log.tp]) for log in state.logs if log.tp in excluded)
    return replace(
        analysis, partitions=tuple(sorted((*analysis.partitions, *left_out), key=lambda partition: partition.tp))
    )


def _without(state: CatalogState, excluded: Collection[TopicPartition]) -> CatalogState:
    """Returns `state` without the logs `excluded`."""
    logs = (log for log in state.logs if log.tp not in excluded)
    return replace(state, logs=tuple(sorted(logs, key=lambda log: log.tp)))


def _damaged(storage: Storage, logs: Iterable[PartitionLog]) -> dict[TopicPartition, str]:
    listed = tuple(logs)
    damages = verify.find_damage(storage, map(whole, listed))
    return {log.tp: str(damage) for log, damage in zip(listed, damages, strict=True) if damage}


def _left_out(log: PartitionLog, error: str) -> PartitionAnalysis:
    return PartitionAnalysis(
        topic=log.topic, partition=log.partition, ingested=log.end, published=log.position, error=error
    )


def _analyze(
    storage: Storage,
    state: CatalogState,
    settings: Sequence[EngineSettings],
    now_ms: int,
    counts: Callable[[Sequence[PartitionLog]], Counting],
    report: Callable[[str], None],
) -> Analysis:
    logs = state.logs
    if not logs:
        return Analysis(partitions=(), split={})
    report("finding young records")
    previews = [
        tuple(_preview(storage, state, log, case_settings, now_ms) for log in logs) for case_settings in settings
    ]
    counting = counts(logs)
    report("counting records")
    counts_of = counting.range_counts([boundaries(log, own) for log, *own in zip(logs, *previews, strict=True)])
    report("finding last records")
    # A fold reads nothing if cleanup.policy has no compact.
    folds = [tuple((seen.start, seen.end if seen.folds else seen.start) for seen in own) for own in previews]
    order = TIMESTAMP if state.order == BY_OFFSET else state.order
    kept = _kept(counting, folds, settings, now_ms, order)
    report("finding split keys")
    several = [] if settings[0].scope == OF_TOPIC else _several(logs, kept[0])
    split = dict.fromkeys(several, SplitKeys()) | (counting.split_keys(folds[0]) if several else {})
    cases = tuple(zip(previews, kept, settings, strict=True))
    partitions = (_partition(at, log, counts_of[at], cases, now_ms) for at, log in enumerate(logs))
    return Analysis(partitions=tuple(partitions), split=split)


def _kept(
    counting: Counting, folds: Sequence[Fold], settings: Sequence[EngineSettings], now_ms: int, order: str
) -> list[list[Survivors]]:
    """Returns what each of `folds` leaves under its settings; folds that are the same are counted once."""
    of_topics = [case.scope == OF_TOPIC for case in settings]
    alone = list(dict.fromkeys(fold for fold, of_topic in zip(folds, of_topics, strict=True) if not of_topic))
    together = list(dict.fromkeys(fold for fold, of_topic in zip(folds, of_topics, strict=True) if of_topic))
    survivors = counting.survivors(alone, now_ms) if alone else {}
    winners = counting.winners(together, now_ms, order) if together else {}
    return [(winners if of_topic else survivors)[fold] for fold, of_topic in zip(folds, of_topics, strict=True)]


Case = tuple[Sequence[FoldPreview], Sequence[Survivors], EngineSettings]


def _partition(
    at: int, log: PartitionLog, counts: RangeCounts, cases: Sequence[Case], now_ms: int
) -> PartitionAnalysis:
    outcomes = tuple(outcome(seen[at], counts, kept[at], settings, now_ms) for seen, kept, settings in cases)
    return PartitionAnalysis(
        topic=log.topic, partition=log.partition, ingested=log.end, published=log.position, outcomes=outcomes
    )


def _preview(
    storage: Storage, state: CatalogState, log: PartitionLog, settings: EngineSettings, now_ms: int
) -> FoldPreview:
    young = partial(first_young, storage, log, log.folded_end)
    closed = state.topics[log.topic].closed is not None
    return preview(log, settings, now_ms, closed=closed, first_young=young)


def _several(logs: Sequence[PartitionLog], kept: Sequence[Survivors]) -> list[str]:
    """Returns the topics with records of keys in more than one partition, and live ones: only there are split keys."""
    placed = Counter(log.topic for log, own in zip(logs, kept, strict=True) if own.all.records)
    living = {log.topic for log, own in zip(logs, kept, strict=True) if own.live.records}
    return [topic for topic, partitions in placed.items() if partitions > 1 and topic in living]
