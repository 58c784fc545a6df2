"""When a log is due for a full fold; ids name the rule or Kafka's test."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from compactor.clean.due import CleaningDecision, Reason, evaluate, would_change
from compactor.clean.log_to_clean import LogToClean
from compactor.model.log import PartitionLog, without_indexes
from compactor.model.times import moment
from compactor.settings import CompactionPolicy, FoldPolicy
from tests.support.logs import DAY, HOUR, base, log, run

FOLD = FoldPolicy()
T0 = 100 * DAY
POLICY = CompactionPolicy()
NEVER_BY_RATIO = replace(POLICY, min_cleanable_dirty_ratio=1.0)
MAX_LAG = replace(NEVER_BY_RATIO, min_compaction_lag_ms=HOUR, max_compaction_lag_ms=6 * HOUR)

DIRTY = log(run(0, 10, 5, arrived=T0 + HOUR, oldest=T0))
STAMPED = base(10, 9, tombstones=1, horizons=1, next_horizon=T0 + 2 * DAY)


def judge(
    kept: PartitionLog, now_ms: int = T0, policy: CompactionPolicy = POLICY, fold: FoldPolicy = FOLD
) -> CleaningDecision:
    return evaluate(kept, policy, fold, now_ms)


@pytest.mark.parametrize(
    ("clean", "head", "limit", "reason"),
    [
        pytest.param(50, 50, 0.5, Reason.CLEAN_ENOUGH, id="rule 17: strictly greater"),
        pytest.param(50, 51, 0.5, Reason.DIRTY, id="rule 17: a byte more"),
        pytest.param(0, 99, 1.0, Reason.CLEAN_ENOUGH, id="rule 17: 1.0 never fires though all is dirty (E13)"),
        pytest.param(10**9, 1, 0.0, Reason.DIRTY, id="rule 17: 0.0 needs one byte"),
        pytest.param(10, 0, 0.0, Reason.NOTHING, id="rule 17: 0.0 with nothing dirty"),
    ],
)
def test_the_dirty_ratio_must_be_exceeded(clean: int, head: int, limit: float, reason: Reason) -> None:
    """A log is due by ratio when head / (base + head) is strictly greater than min.cleanable.dirty.ratio."""
    dirty = (run(10, 20, head, arrived=T0),) if head else ()
    kept = log(*dirty, clean=base(10, clean), folded_ms=T0)
    assert judge(kept, policy=replace(POLICY, min_cleanable_dirty_ratio=limit)).reason is reason


@pytest.mark.parametrize(
    ("now", "published", "reason"),
    [
        pytest.param(T0 + 3 * HOUR, 10, Reason.CLEAN_ENOUGH, id="testMaxLogCompactionLag: not at 3 h"),
        pytest.param(T0 + 6 * HOUR, 10, Reason.CLEAN_ENOUGH, id="testMaxLogCompactionLag: not at 6 h"),
        pytest.param(T0 + 6 * HOUR + 1, 10, Reason.OVERDUE, id="rule 18, rule 22: at 6 h + 1 ms, without traffic"),
        pytest.param(T0 + 9 * HOUR, 0, Reason.HELD, id="rule 23: it does not override the lag or published"),
        pytest.param(T0 - 9 * HOUR, 10, Reason.CLEAN_ENOUGH, id="a clock that steps back makes nothing overdue"),
    ],
)
def test_max_lag_overrides_the_ratio_and_nothing_else(now: int, published: int, reason: Reason) -> None:
    """A log is overdue when its oldest foldable dirty record is older than max.compaction.lag.ms, idle or not."""
    kept = log(run(0, 10, 5, arrived=T0 + HOUR, oldest=T0), published=published, end=10)
    assert judge(kept, now, MAX_LAG).reason is reason


@pytest.mark.parametrize(
    ("published", "reason"),
    [
        pytest.param(0, Reason.HELD, id="testCleanableOffsetsForNone: nothing is sent, nothing is folded"),
        pytest.param(10, Reason.DIRTY, id="testCleanableOffsetsActiveSegment: what is sent is"),
    ],
)
def test_nothing_is_folded_before_it_is_published(published: int, reason: Reason) -> None:
    """A tombstone that went before it was sent would delete nothing for who follows the output."""
    assert judge(log(run(0, 10, 5, arrived=T0), published=published, end=10), T0, POLICY).reason is reason


def test_a_second_block_waits_its_own_max_lag() -> None:
    """testMaxLogCompactionLag: after the fold of a first block, the second is due only another 6 h later."""
    kept = log(run(10, 20, 5, arrived=T0 + 6 * HOUR), clean=base(10, 5), folded_ms=T0 + 6 * HOUR)
    assert judge(kept, T0 + 12 * HOUR, MAX_LAG).reason is Reason.CLEAN_ENOUGH
    assert judge(kept, T0 + 12 * HOUR + 1, MAX_LAG).reason is Reason.OVERDUE


@pytest.mark.parametrize(
    ("kept", "policy", "now", "reason"),
    [
        pytest.param(
            log(run(10, 20, 60, arrived=T0), clean=base(10, 50), published=15, folded_ms=T0),
            POLICY, T0, Reason.UNMEASURED, id="the ratio hangs on a file across published",
        ),
        pytest.param(
            log(run(10, 20, 50, arrived=T0), clean=base(10, 50), published=15, folded_ms=T0),
            POLICY, T0, Reason.CLEAN_ENOUGH, id="not dirty enough even with all of it",
        ),
        pytest.param(
            log(run(10, 20, 60), run(20, 30, 9), clean=base(10, 50), published=25, folded_ms=T0),
            POLICY, T0, Reason.DIRTY, id="dirty enough without it",
        ),
        pytest.param(
            log(run(10, 20, 1, arrived=T0), clean=base(10, 50), published=15, folded_ms=T0 + 9 * HOUR),
            MAX_LAG, T0 + 9 * HOUR, Reason.UNMEASURED, id="being overdue hangs on it",
        ),
        pytest.param(
            log(run(10, 20, 1, arrived=T0), clean=base(10, 50), published=15, folded_ms=T0 - 2 * DAY),
            POLICY, T0, Reason.UNMEASURED, id="the interval has passed, and whether anything is dirty hangs on it",
        ),
    ],
)  # fmt: skip
def test_what_hangs_on_an_unsure_file_is_measured_first(
    kept: PartitionLog, policy: CompactionPolicy, now: int, reason: Reason
) -> None:
    """A bound inside a file is decided in proportion never: either it makes no difference, or it is counted."""
    assert judge(kept, now, policy).reason is reason


@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        pytest.param(
            log(run(10, 11, 1, arrived=T0), clean=base(10, 99), folded_ms=T0 - DAY), Reason.INTERVAL, id="dirty"
        ),
        pytest.param(
            log(run(10, 11, 1, arrived=T0), clean=base(10, 99), folded_ms=T0 - DAY + 1),
            Reason.CLEAN_ENOUGH, id="a millisecond early",
        ),
        pytest.param(
            log(run(10, 11, 0, arrived=T0), clean=base(10, 99), folded_ms=T0 - DAY), Reason.INTERVAL, id="no bytes",
        ),
        pytest.param(
            log(run(0, 1, 9, arrived=T0 - DAY)), Reason.INTERVAL, id="never folded: counted from the oldest arrival"
        ),
        pytest.param(log(clean=base(10, 99), folded_ms=T0 - 9 * DAY), Reason.NOTHING, id="nothing to do"),
        pytest.param(
            log(clean=base(10, 99, tombstones=2, horizons=1, next_horizon=T0 + 1), folded_ms=T0 - DAY),
            Reason.UNSTAMPED, id="a horizon to stamp",
        ),
        pytest.param(
            log(clean=base(10, 99, tombstones=2, horizons=2, next_horizon=T0), folded_ms=T0 - DAY),
            Reason.EXPIRED, id="better than rule 27: a horizon passed on an idle log",
        ),
        pytest.param(
            log(clean=base(10, 99, tombstones=2, horizons=2, next_horizon=T0 + 1), folded_ms=T0 - DAY),
            Reason.TOMBSTONES, id="a horizon that has not passed",
        ),
        pytest.param(
            log(clean=base(10, 99, tombstones=2, horizons=2, next_horizon=T0 - 9), folded_ms=T0 - DAY + 1),
            Reason.TOMBSTONES, id="a horizon passed, no interval passed",
        ),
        pytest.param(
            log(run(10, 11, 1, arrived=T0), clean=base(10, 99), folded_ms=T0 + DAY),
            Reason.CLEAN_ENOUGH, id="a clock that steps back",
        ),
    ],
)  # fmt: skip
def test_a_day_without_a_full_fold_is_enough_where_there_is_something_to_do(kept: PartitionLog, reason: Reason) -> None:
    """fold.full.interval.ms after the last full fold: dirty records, or a horizon to stamp or passed."""
    assert judge(kept).reason is reason


def test_the_interval_can_be_switched_off() -> None:
    """A negative fold.full.interval.ms is never due, and says so."""
    kept = log(run(10, 11, 1, arrived=0), clean=base(10, 99), folded_ms=0)
    found = judge(kept, fold=FoldPolicy(full_interval_ms=-1))
    assert (found.reason, found.due_ms) == (Reason.CLEAN_ENOUGH, None)


@pytest.mark.parametrize(
    ("hold", "policy", "reason"),
    [
        (Reason.BUSY, POLICY, Reason.BUSY),
        (Reason.QUARANTINED, POLICY, Reason.QUARANTINED),
        pytest.param(
            None, replace(POLICY, cleanup_policy=("delete",)), Reason.NOT_COMPACTED,
            id="rule 1, testLogsWithSegmentsToDeleteShouldNotConsiderCleanupPolicyDeleteLogs",
        ),
        pytest.param(None, replace(POLICY, cleanup_policy=("compact", "delete")), Reason.DIRTY, id="rule 1: both"),
    ],
)  # fmt: skip
def test_what_may_not_be_folded_is_not_due(hold: Reason | None, policy: CompactionPolicy, reason: Reason) -> None:
    """A busy or quarantined log, and one that is not compacted, is never due, however dirty."""
    assert evaluate(log(run(0, 10, 9, arrived=T0)), policy, FOLD, T0, hold).reason is reason


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param({"clean_end": 200}, "out of order", id="testDirtyOffsetResetIfLargerThanEndOffset"),
        pytest.param({"start": 10, "clean_end": 0}, "out of order", id="testDirtyOffsetResetIfSmallerThanStartOffset"),
        pytest.param({"published": 3, "folded_end": 2}, "out of order", id="testCleanableOffsetsNeedsCheckpointReset"),
        pytest.param({"runs": (run(0, 6, 1), run(4, 9, 1))}, "overlap", id="runs overlap"),
        pytest.param({"published": 5, "runs": (run(0, 9, 1, level=1),)}, "beyond published", id="merged too far"),
    ],
)
def test_a_log_that_is_not_sound_is_faulty_and_says_why(change: dict[str, object], says: str) -> None:
    """Offsets that no protocol step can produce are never folded, and never repaired by guessing."""
    found = judge(replace(log(run(0, 9, 1)), **change))
    assert found.reason is Reason.FAULTY
    assert not found.due
    assert says in found.text


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (log(), False),
        (log(run(0, 5, 1)), True),
        (log(run(0, 5, 1), published=0), False),
        pytest.param(log(clean=base(5, 1), end=9), True, id="testCleaningBeyondMissingOffsets: over holes too"),
        (log(clean=base(5, 1)), False),
        (log(clean=base(5, 1, tombstones=1)), True),
        (log(clean=base(5, 1, tombstones=1, horizons=1, next_horizon=T0)), True),
        (log(clean=base(5, 1, tombstones=1, horizons=1, next_horizon=T0 + 1)), False),
    ],
)
def test_on_command_everything_is_folded_that_can_be(kept: PartitionLog, expected: bool) -> None:
    """A fold on command asks neither ratio nor interval, only whether anything would change."""
    assert would_change(kept, T0) is expected


TEXTS = [
    (judge(log(run(0, 10, 5, arrived=T0)), T0 + 7 * HOUR, MAX_LAG), "Due: its oldest dirty record should have been"),
    (judge(log(run(0, 10, 5, arrived=T0 - DAY))), "Due since 1970-04-11T00:00:00Z: 10 dirty records"),
    (judge(log(run(0, 10, 5, arrived=T0))), "Due: its dirty ratio is 1.000, above min.cleanable.dirty.ratio 0.5."),
    (judge(log(run(0, 9, 5, arrived=T0)), T0, NEVER_BY_RATIO), "due by time at 1970-04-12T00:00:00Z."),
    (judge(log(run(0, 9, 5, arrived=T0), published=0)), "Not due: 5 bytes are inside min.compaction.lag.ms or not"),
    (judge(log()), "Not due: nothing is dirty and there are no tombstones."),
    (evaluate(log(), POLICY, FOLD, T0, Reason.BUSY), "Not considered: a fold of it is running."),
]


@pytest.mark.parametrize(
    ("found", "says"), TEXTS, ids=lambda value: "" if isinstance(value, str) else value.reason.name
)
def test_every_verdict_is_a_sentence(found: CleaningDecision, says: str) -> None:
    """Who asks why a log is or is not folded reads it in words, with the figures."""
    assert says in found.text


@pytest.mark.parametrize("reason", list(Reason))
def test_no_reason_is_without_words(reason: Reason) -> None:
    """Each reason has its sentence, whatever is known of the log."""
    assert CleaningDecision(tp=log().tp, reason=reason, fault="x").text.startswith(("Due", "Not "))


@pytest.mark.parametrize(("at", "text"), [(None, "never"), (2**63 - 1, "never"), (0, "1970-01-01T00:00:00Z")])
def test_a_time_that_never_comes_is_never(at: int | None, text: str) -> None:
    """Kafka's largest long stands for never."""
    assert moment(at) == text


@pytest.mark.parametrize(
    ("kept", "policy", "due"),
    [
        pytest.param(DIRTY, MAX_LAG, T0 + 6 * HOUR + 1, id="by its oldest record, before its turn"),
        pytest.param(DIRTY, POLICY, T0 + HOUR + DAY, id="by its turn, from the arrival of its oldest run"),
        pytest.param(
            replace(DIRTY, last_full_fold_ms=T0 - DAY), MAX_LAG, T0, id="by its turn, from its last full fold"
        ),
        pytest.param(replace(DIRTY, last_full_fold_ms=T0), POLICY, T0 + DAY, id="without a maximal lag"),
        pytest.param(log(clean=base(10, 9, tombstones=1), folded_ms=T0), POLICY, T0 + DAY, id="to stamp a tombstone"),
        pytest.param(log(clean=STAMPED, folded_ms=T0), POLICY, T0 + 2 * DAY, id="to drop one, not before its horizon"),
        pytest.param(log(clean=STAMPED, folded_ms=T0 + 3 * DAY), POLICY, T0 + 4 * DAY, id="nor before its turn"),
        pytest.param(log(clean=base(10, 9), folded_ms=T0), POLICY, None, id="never, with nothing to do"),
        pytest.param(log(), POLICY, None, id="never, without a run"),
    ],
)
def test_a_verdict_says_from_when_on_a_log_is_due_by_time(
    kept: PartitionLog, policy: CompactionPolicy, due: int | None
) -> None:
    """The earlier of max.compaction.lag.ms and fold.full.interval.ms, where there will be anything to do."""
    assert judge(kept, T0, policy).due_ms == due


def test_an_overdue_log_waits_since_its_oldest_record_was_too_old() -> None:
    """Its turn may have been earlier; the order among overdue logs goes by max.compaction.lag.ms."""
    kept = replace(DIRTY, last_full_fold_ms=T0 - 3 * DAY)
    found = judge(kept, T0 + 7 * HOUR, MAX_LAG)
    assert (found.reason, found.due_ms) == (Reason.OVERDUE, T0 + 6 * HOUR + 1)
    assert judge(kept, T0, MAX_LAG).due_ms == T0 - 2 * DAY
    assert judge(kept, T0, POLICY, replace(FOLD, full_interval_ms=-1)).due_ms is None


def test_a_log_that_may_not_be_folded_is_still_described() -> None:
    """What was measured and the limit are shown beside why it is left alone."""
    found = evaluate(DIRTY, POLICY, FOLD, T0, Reason.BUSY)
    assert found == CleaningDecision(tp=DIRTY.tp, reason=Reason.BUSY, measured=LogToClean.of(DIRTY), limit=0.5)
    broken = replace(DIRTY, clean_end=7)
    assert judge(broken).tp == broken.tp


INDEXED = FoldPolicy(has_index=True)


def with_index(kept: PartitionLog, text: str | None) -> PartitionLog:
    """`kept`, the files of its base run in the index section `text`."""
    assert kept.base is not None
    files = tuple(replace(file, index=text) for file in kept.base.files)
    return replace(kept, base=replace(kept.base, files=files))


@pytest.mark.parametrize(
    ("text", "fold", "reason"),
    [
        pytest.param(None, INDEXED, Reason.UNINDEXED, id="an index is asked for, and there is none"),
        pytest.param("runs/x.index:1:1:a:0:0", INDEXED, Reason.NOTHING, id="there is one"),
        pytest.param(None, FOLD, Reason.NOTHING, id="none is asked for"),
    ],
)
def test_a_log_without_an_index_is_due_if_one_is_asked_for(text: str | None, fold: FoldPolicy, reason: Reason) -> None:
    """A clean writes it: of a storage of before the setting, or of a log that was rebuilt."""
    kept = with_index(log(clean=base(10, 9), folded_ms=T0), text)
    assert judge(kept, fold=fold).reason is reason


def test_an_index_that_is_gone_counts_as_none() -> None:
    """The logs that name it are due, and no others."""
    kept = with_index(log(clean=base(10, 9), folded_ms=T0), "runs/x.index:1:1:a:0:0")
    assert judge(without_indexes(kept, {"runs/y.index"}), fold=INDEXED).reason is Reason.NOTHING
    assert judge(without_indexes(kept, {"runs/x.index"}), fold=INDEXED).reason is Reason.UNINDEXED
