from __future__ import annotations

from compactor.analyze.effect import Amount, Effect, PartitionAnalysis, Survivors, by_topic, outcome, total
from compactor.analyze.preview import Count, RangeCounts, preview
from compactor.settings import FOREVER, CompactionPolicy, EngineSettings
from tests.support.logs import base, log, run

NOW = 10_000
LOG = log(run(10, 20, 90, arrived=NOW), run(20, 30, 50, arrived=NOW), clean=base(10, 40), published=20, folded_ms=1)
CENSUS = RangeCounts(
    (0, 10, 20, 30),
    (
        Count(records=4, bytes=40),
        Count(records=10, bytes=90, rejected=2, rejected_bytes=7),
        Count(records=5, bytes=50, rejected=1, rejected_bytes=3),
    ),
)
KEPT = Survivors(
    live=Amount(3, 60),
    stamp=Amount(1, 4),
    keep=Amount(2, 5),
    drop=Amount(1, 6),
    earliest_horizon_ms=11_000,
    latest_horizon_ms=12_000,
)


def effect(policy: CompactionPolicy, kept: Survivors = KEPT) -> Effect:
    settings = EngineSettings(connector="c", policy=policy)
    look = preview(LOG, settings, NOW, closed=True, first_young=lambda _: None)
    return outcome(look, CENSUS, kept, settings, NOW).effect


def test_what_goes_and_what_stays_is_all_there_was() -> None:
    """Superseded are all that neither survive nor were rejected; before = what goes + after, after = all that stays."""
    found = effect(CompactionPolicy(delete_retention_ms=500))
    assert (found.superseded, found.expired, found.rejected) == (Amount(5, 48), Amount(1, 6), Amount(2, 7))
    assert (found.live, found.tombstones, found.held, found.waiting) == (
        *(Amount(3, 60), Amount(3, 9)),
        *(Amount(5, 50), Amount(1, 3)),
    )
    assert found.before == found.superseded + found.expired + found.rejected + found.after == Amount(19, 180)
    assert found.after == found.live + found.tombstones + found.held
    assert found.gone == Amount(8, 61)


def test_tombstones_without_a_horizon_get_the_folds() -> None:
    """The fold's time + delete.retention.ms joins the horizons that are there; it never runs over."""
    found = effect(CompactionPolicy(delete_retention_ms=500))
    assert (found.stamped, found.earliest_horizon_ms, found.latest_horizon_ms) == (1, 10_500, 12_000)
    assert effect(CompactionPolicy(delete_retention_ms=FOREVER)).latest_horizon_ms == FOREVER
    assert effect(CompactionPolicy(), Survivors(live=Amount(3, 60))).latest_horizon_ms is None


def test_without_compact_nothing_is_told_apart() -> None:
    """Under cleanup.policy=delete all that retention leaves stays as it is."""
    found = effect(CompactionPolicy(cleanup_policy=("delete",)), Survivors())
    assert (found.unfolded, found.after, found.superseded, found.rejected) == (
        *(Amount(14, 130), Amount(19, 180)),
        *(Amount(), Amount()),
    )


def test_the_verdict_is_the_cleaners() -> None:
    """Ratio, reason and sentence are those of the rules that the cleaner asks."""
    settings = EngineSettings(connector="c", policy=CompactionPolicy(min_cleanable_dirty_ratio=0.6))
    look = preview(LOG, settings, NOW, closed=True, first_young=lambda _: None)
    found = outcome(look, CENSUS, KEPT, settings, NOW)
    assert (found.dirty_ratio, found.due, found.reason) == (90 / 130, True, "dirty enough")
    assert found.why == "Due: its dirty ratio is 0.692, above min.cleanable.dirty.ratio 0.6."


def test_sums_take_the_outermost_horizons() -> None:
    """Amounts are added, times are not; nothing is the sum of nothing."""
    one = Effect(before=Amount(1, 2), stamped=1, earliest_horizon_ms=5, latest_horizon_ms=9)
    other = Effect(before=Amount(3, 4), stamped=2, earliest_horizon_ms=3, latest_horizon_ms=8)
    summed = Effect(before=Amount(4, 6), stamped=3, earliest_horizon_ms=3, latest_horizon_ms=9)
    assert total([one, other, Effect()]) == summed
    assert total([]) == Effect()


def test_topics_stand_by_name() -> None:
    """Each with its own partitions, in their order."""
    ones = [
        PartitionAnalysis(topic=t, partition=p, ingested=0, published=0) for t, p in (("b", 0), ("a", 2), ("a", 10))
    ]
    found = {topic: [one.partition for one in own] for topic, own in by_topic(ones).items()}
    assert found == {"a": [2, 10], "b": [0]}
    assert list(found) == ["a", "b"]
