"""Computes what a clean would do to a log, in records and bytes, as values and sums. Pure.

before = retention + superseded + expired + rejected + after
after  = live + tombstones + held + unfolded
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

from msgspec import Struct
from msgspec.structs import replace

from compactor.analyze.preview import Count, FoldPreview, RangeCounts, with_exact_counts
from compactor.clean import tombstones
from compactor.clean.due import evaluate
from compactor.model import record
from compactor.model.record import OfPartition
from compactor.model.times import earliest, latest
from compactor.settings import EngineSettings


class Amount(Struct, frozen=True):
    """Records and their bytes by `record.measure`."""

    records: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.records + other.records, self.bytes + other.bytes)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.records - other.records, self.bytes - other.bytes)


class Survivors(Struct, frozen=True, kw_only=True):
    """The last records of all keys of one log, by what a clean does with them (`tombstones.Fate`).

    `live` have a value; `stamp`, `keep` and `drop` are tombstones: without a horizon, before theirs, at or past it.
    The horizons are those of `keep`.
    """

    live: Amount = Amount()
    stamp: Amount = Amount()
    keep: Amount = Amount()
    drop: Amount = Amount()
    earliest_horizon_ms: int | None = None
    latest_horizon_ms: int | None = None

    @property
    def all(self) -> Amount:
        """All of them."""
        return self.live + self.stamp + self.keep + self.drop


class Effect(Struct, frozen=True, kw_only=True):
    """What a clean removes and keeps of one log or of several; times in ms.

    Removed: `retention` by the delete policy; of the rest, records that are `superseded` by a later one of their key,
    `expired` tombstones past their horizon, and `rejected` records (or such without a key), which are sent by then.
    Kept: `live` last records of their keys; `tombstones`, to `stamped` of which this fold would give a horizon;
    `held` records from the fold's end on, of which `waiting` are rejected; `unfolded`: all below the fold's end, if
    cleanup.policy has no compact.
    """

    before: Amount = Amount()
    retention: Amount = Amount()
    superseded: Amount = Amount()
    expired: Amount = Amount()
    rejected: Amount = Amount()
    after: Amount = Amount()
    live: Amount = Amount()
    tombstones: Amount = Amount()
    held: Amount = Amount()
    waiting: Amount = Amount()
    unfolded: Amount = Amount()
    stamped: int = 0
    earliest_horizon_ms: int | None = None
    latest_horizon_ms: int | None = None

    @property
    def gone(self) -> Amount:
        """All that is removed."""
        return self.before - self.after


class Outcome(Struct, frozen=True, kw_only=True):
    """One partition under some settings: a clean of [start, fold_end), and whether the cleaner would do it now.

    `held_by` says why there are records from fold_end on; `why` and `retained` are sentences.
    """

    start: int
    fold_end: int
    held_by: str | None
    dirty_ratio: float
    due: bool
    reason: str
    why: str
    retained: str
    effect: Effect


class PartitionAnalysis(OfPartition, Struct, frozen=True, kw_only=True):
    """A log as it is, and its outcome under each of the settings that were looked at.

    `error` is that for which it was left out: in quarantine, or its files cannot be read. Then there are none.
    """

    topic: str
    partition: int
    ingested: int
    published: int
    outcomes: tuple[Outcome, ...] = ()
    error: str | None = None


class Example(Struct, frozen=True):
    """A key, and the partitions in which it has a live record."""

    key: bytes
    partitions: tuple[int, ...]


class SplitKeys(Struct, frozen=True, kw_only=True):
    """Keys with live records in more than one partition: compaction, which is per partition, never folds these.

    `outdated`: live records of keys of which another partition has a later record, by timestamp, then partition.
    `deleted`: how many of these keys have a tombstone as their latest record.
    """

    keys: int = 0
    examples: tuple[Example, ...] = ()
    outdated: Amount = Amount()
    deleted: int = 0


class Analysis(Struct, frozen=True, kw_only=True):
    """All partitions, by topic and number; the split keys of each topic under the first settings."""

    partitions: tuple[PartitionAnalysis, ...]
    split: dict[str, SplitKeys]


def outcome(seen: FoldPreview, counts: RangeCounts, kept: Survivors, settings: EngineSettings, now_ms: int) -> Outcome:
    """Returns what a clean at `now_ms` would do to a log that holds `counts`, if `kept` survive its fold."""
    decision = evaluate(with_exact_counts(seen.log, counts), settings.policy, settings.fold, now_ms)
    return Outcome(
        start=seen.start,
        fold_end=seen.end,
        held_by=seen.hold.value if seen.hold else None,
        dirty_ratio=decision.measured.ratio,
        due=decision.due,
        reason=decision.reason.value,
        why=decision.text,
        retained=seen.retention.text,
        effect=_effect(seen, counts, kept, tombstones.horizon(seen.log, settings.policy, now_ms)),
    )


def _effect(seen: FoldPreview, counts: RangeCounts, kept: Survivors, stamp_ms: int) -> Effect:
    first, last = counts.boundaries[0], counts.boundaries[-1]
    inside, rejected = _amounts(counts.between(seen.start, seen.end))
    held, waiting = _amounts(counts.between(seen.end, last))
    unfolded = Effect(
        before=_amounts(counts.between(first, last))[0],
        retention=_amounts(counts.between(first, seen.start))[0],
        after=inside + held,
        held=held,
        unfolded=inside,
    )
    if not seen.folds:
        return unfolded
    return _folded(replace(unfolded, rejected=rejected, waiting=waiting), kept, stamp_ms)


def _amounts(count: Count) -> tuple[Amount, Amount]:
    """Returns the amounts of all records that `count` counts, and of the rejected ones."""
    return Amount(count.records, count.bytes), Amount(count.rejected, count.rejected_bytes)


def _folded(effect: Effect, kept: Survivors, stamp_ms: int) -> Effect:
    """Folds the unfolded records of `effect` by key: rejected records go, and `kept` survive of the others."""
    stamps = [stamp_ms] if kept.stamp.records else []
    return replace(
        effect,
        superseded=effect.unfolded - effect.rejected - kept.all,
        expired=kept.drop,
        after=kept.all - kept.drop + effect.held,
        live=kept.live,
        tombstones=kept.stamp + kept.keep,
        unfolded=Amount(),
        stamped=kept.stamp.records,
        earliest_horizon_ms=earliest(kept.earliest_horizon_ms, *stamps),
        latest_horizon_ms=latest(kept.latest_horizon_ms, *stamps),
    )


def total(effects: Iterable[Effect]) -> Effect:
    """Returns the sum of `effects`, with the earliest and the latest of their horizons."""
    return reduce(_added, effects, Effect())


def _added(effect: Effect, other: Effect) -> Effect:
    summed = ("earliest_horizon_ms", "latest_horizon_ms")
    names = (name for name in Effect.__struct_fields__ if name not in summed)
    return Effect(
        **{name: getattr(effect, name) + getattr(other, name) for name in names},
        earliest_horizon_ms=earliest(effect.earliest_horizon_ms, other.earliest_horizon_ms),
        latest_horizon_ms=latest(effect.latest_horizon_ms, other.latest_horizon_ms),
    )


def by_topic(partitions: Sequence[PartitionAnalysis]) -> dict[str, tuple[PartitionAnalysis, ...]]:
    """Returns the partitions of each topic, topics by name."""
    return dict(sorted(record.by_topic(partitions).items()))
