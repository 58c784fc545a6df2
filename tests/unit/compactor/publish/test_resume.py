"""What a committed position means after a start: every case of docs/protocol.md's table."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from msgspec.structs import replace

from compactor.errors import PositionError
from compactor.model import log_transitions
from compactor.model.log import Gap, Generation, OutputPoint, PartitionLog, empty
from compactor.model.position import Position, ResumePoint, Tail, Unknown
from compactor.model.record import TopicPartition
from compactor.model.state import Topic
from compactor.publish.resume import resume_point

OURS = "catalog-1"
TOPIC = Topic(topic="t", topic_id="tid", output="t.compacted", output_id="oid")
FRESH = PartitionLog(topic="t", partition=0, bucket=0, start=10, end=100, folded_end=10, published=10, clean_end=10)
"""Offsets 10 to 100 are ingested, nothing is published."""
PUBLISHED = replace(FRESH, folded_end=50, published=50, output=OutputPoint(50, 7))
"""Published up to 50."""
PLANNED = replace(PUBLISHED, folded_end=90)
"""A fold up to 90 may have been sent in part."""


def ours(offset: int, fold_end: int | None = None, output_offset: int | None = 9) -> Position:
    return Position(offset=offset, catalog_id=OURS, output_id="oid", output_offset=output_offset, fold_end=fold_end)


def theirs(offset: int) -> Position:
    return Position(offset=offset)


def at(start: int, committed: int | None, **named: Any) -> ResumePoint:
    return ResumePoint(start=start, committed=committed, **named)


def never() -> NoReturn:
    raise AssertionError("the output was read for nothing")


@pytest.mark.parametrize(
    ("log", "position", "expected"),
    [
        pytest.param(PUBLISHED, ours(50), at(50, 50, output_offset=9), id="at published"),
        pytest.param(FRESH, ours(10), at(10, 10, output_offset=9), id="at the start"),
        pytest.param(PLANNED, ours(50), at(50, 50, output_offset=9), id="planned, nothing sent"),
        pytest.param(
            PLANNED,
            ours(90),
            at(90, 90, output_offset=9, publish_end=90, publish_output=OutputPoint(90, 9)),
            id="the catalog lags behind",
        ),
        pytest.param(
            PLANNED, ours(90, None, None), at(90, 90, publish_end=90), id="the catalog lags behind, without an output"
        ),
        pytest.param(PLANNED, ours(70, 90), at(70, 70, output_offset=9, fold_end=90), id="inside a fold"),
        pytest.param(PUBLISHED, ours(70, 95), at(70, 70, output_offset=9, fold_end=95), id="a fold it never heard of"),
        pytest.param(
            PUBLISHED,
            ours(70, 70),
            at(70, 70, output_offset=9, publish_end=70, publish_output=OutputPoint(70, 9)),
            id="at the end of the fold that it names",
        ),
        pytest.param(
            PUBLISHED,
            ours(70, 60),
            at(70, 70, output_offset=9, publish_end=70, publish_output=OutputPoint(70, 9)),
            id="behind the fold that it names",
        ),
        pytest.param(
            PLANNED,
            ours(100),
            at(100, 100, output_offset=9, publish_end=100, publish_output=OutputPoint(100, 9)),
            id="at the log's end",
        ),
        pytest.param(PLANNED, ours(120), at(120, 120, output_offset=9, hold=True), id="above the log's end"),
        pytest.param(PLANNED, ours(95, 120), at(120, 95, output_offset=9, hold=True), id="fold ends above it"),
    ],
)
def test_a_position_of_ours_is_the_truth(log: PartitionLog, position: Position, expected: ResumePoint) -> None:
    """At or above the floor it decides, and the output is not read."""
    assert resume_point(log, TOPIC, OURS, position, never) == expected


@pytest.mark.parametrize(
    ("log", "position", "tail", "expected"),
    [
        pytest.param(FRESH, None, None, at(10, None), id="first run"),
        pytest.param(FRESH, theirs(60), None, at(10, 60), id="first run, position set by hand"),
        pytest.param(replace(FRESH, folded_end=50), None, None, at(10, None, fold_end=50), id="planned, nothing sent"),
        pytest.param(replace(FRESH, folded_end=50), None, 30, at(31, None, fold_end=50), id="first fold, sent in part"),
        pytest.param(PUBLISHED, None, 49, at(50, None, output_offset=7), id="expired"),
        pytest.param(PUBLISHED, None, None, at(50, None, output_offset=7), id="expired, and the output is empty"),
        pytest.param(PLANNED, None, 49, at(50, None, output_offset=7, fold_end=90), id="expired, planned"),
        pytest.param(PLANNED, None, 69, at(70, None, output_offset=7, fold_end=90), id="expired inside a fold"),
        pytest.param(PLANNED, None, 89, at(90, None, output_offset=7, publish_end=90), id="expired, fold sent"),
        pytest.param(PUBLISHED, theirs(20), 49, at(50, 20, output_offset=7), id="set back by an operator"),
        pytest.param(PUBLISHED, theirs(80), 49, at(50, 80, output_offset=7), id="set forward by an operator"),
        pytest.param(PUBLISHED, theirs(500), 49, at(50, 500, output_offset=7), id="set above the log"),
        pytest.param(PLANNED, ours(30), 69, at(70, 30, output_offset=7, fold_end=90), id="ours, but older"),
    ],
)
def test_without_one_floor_and_output_decide(
    log: PartitionLog, position: Position | None, tail: Tail, expected: ResumePoint
) -> None:
    """A position that is missing, lower, or written by nobody we know goes by the catalog and the last record."""
    assert resume_point(log, TOPIC, OURS, position, lambda: tail) == expected


@pytest.mark.parametrize(
    ("log", "position", "tail", "text"),
    [
        pytest.param(FRESH, None, 30, "already holds source offset 30", id="never published, output full"),
        pytest.param(FRESH, None, 10, "already holds source offset 10", id="never published, first record there"),
        pytest.param(FRESH, None, 9, "already holds source offset 9", id="never published, an older writer's output"),
        pytest.param(FRESH, None, Unknown.UNKNOWN, "may have been published already", id="all lost, no headers"),
        pytest.param(FRESH, theirs(60), Unknown.UNKNOWN, "published already", id="all lost, no headers, set by hand"),
        pytest.param(
            replace(FRESH, folded_end=50), None, Unknown.UNKNOWN, "do not name source offsets", id="planned, no headers"
        ),
        pytest.param(PUBLISHED, None, 50, "past the last fold", id="the output is ahead of the catalog"),
        pytest.param(PLANNED, theirs(60), 90, "past the last fold", id="overwritten, and the output is ahead"),
        pytest.param(PUBLISHED, None, Unknown.UNKNOWN, "do not name source", id="expired without headers"),
        pytest.param(
            replace(PUBLISHED, start=50),
            None,
            Unknown.UNKNOWN,
            "has published up to 50",
            id="retention took what was sent",
        ),
        pytest.param(PUBLISHED, theirs(20), Unknown.UNKNOWN, "do not name source", id="set back without headers"),
        pytest.param(PUBLISHED, ours(20), Unknown.UNKNOWN, "is lower than", id="lower without headers"),
        pytest.param(PUBLISHED, replace(ours(50), catalog_id="x"), None, "belongs to catalog x", id="another's"),
        pytest.param(FRESH, replace(ours(10), catalog_id="x"), None, "belongs to catalog x", id="also at first"),
        pytest.param(PUBLISHED, replace(ours(50), output_id="x"), None, "output topic id x", id="another output topic"),
    ],
)
def test_what_is_unclear_is_an_error(log: PartitionLog, position: Position | None, tail: Tail, text: str) -> None:
    """It names group and partition, and what an operator can do; it is never taken for a first run."""
    with pytest.raises(PositionError, match=text) as raised:
        resume_point(log, TOPIC, OURS, position, lambda: tail, connector="c")
    assert "Group connect-c, t-0" in raised.value.message
    assert raised.value.action


@pytest.mark.parametrize("log", [FRESH, PUBLISHED])
@pytest.mark.parametrize("tail", [50, Unknown.UNKNOWN])
def test_a_catalog_that_has_sent_nothing_may_be_beside_the_real_one(log: PartitionLog, tail: Tail) -> None:
    """A store may have listed the folder as empty as it was made: the next run looks again, others wait for people."""
    with pytest.raises(PositionError) as raised:
        resume_point(log, TOPIC, OURS, None, lambda: tail)
    assert raised.value.retriable is (log is FRESH)


def test_without_an_output_the_floor_decides() -> None:
    """With output.topic=none there is nothing to read back."""
    topic = replace(TOPIC, output=None, output_id=None)
    assert resume_point(PUBLISHED, topic, OURS, None, never) == at(50, None, output_offset=7)


def test_a_log_of_which_retention_took_all_that_was_sent_has_begun() -> None:
    """Also where the catalog never heard of the commit: a lost position is found again behind the last record."""
    filled = log_transitions.append(empty(TopicPartition("t", 0), 0, 10, None), 10, 50, None, None)
    sent = log_transitions.publish(log_transitions.plan_fold(filled, 50), 50, None)
    emptied = log_transitions.retain(sent, 50)
    assert (emptied.folded_end, emptied.output) == (emptied.start, None)
    assert resume_point(emptied, TOPIC, OURS, None, lambda: 49) == at(50, None)


SECOND = replace(
    FRESH,
    start=-3,
    clean_end=-3,
    published=-3,
    folded_end=-3,
    output=OutputPoint(-3, 7),
    generation=Generation(number=2, start=12, first_end=60, output_offset=7),
)
"""A generation of which nothing was sent, with three tombstones."""


def of_second(offset: int, fold_end: int | None = None) -> Position:
    return replace(ours(offset, fold_end), generation=2, start=12)


@pytest.mark.parametrize(
    ("log", "position", "tail", "expected"),
    [
        pytest.param(SECOND, of_second(-3), None, at(-3, -3, output_offset=9), id="at its beginning"),
        pytest.param(
            SECOND, of_second(-1, 80), None, at(-1, -1, output_offset=9, fold_end=80), id="among its tombstones"
        ),
        pytest.param(
            SECOND, ours(50), None, at(-3, 50, output_offset=7), id="of the earlier one: as if there were none"
        ),
        pytest.param(SECOND, None, None, at(-3, None, output_offset=7), id="none"),
        pytest.param(
            replace(SECOND, folded_end=80),
            None,
            30,
            at(31, None, output_offset=7, fold_end=80),
            id="none, and some of it was sent",
        ),
        pytest.param(
            replace(SECOND, published=60, folded_end=60),
            of_second(-2),
            None,
            at(60, -2, output_offset=7),
            id="lower than published",
        ),
    ],
)
def test_a_position_counts_in_the_generation_of_the_log(
    log: PartitionLog, position: Position | None, tail: Tail, expected: ResumePoint
) -> None:
    """That of an earlier one says nothing, however high it is."""
    assert resume_point(log, TOPIC, OURS, position, lambda: tail) == expected


def test_an_earlier_generation_counts_in_the_output_of_its_time() -> None:
    """The output may have been recreated since: the position is none, and no error."""
    earlier = replace(ours(50), output_id="the one before")
    assert resume_point(SECOND, TOPIC, OURS, earlier, lambda: None).start == SECOND.published
    with pytest.raises(PositionError, match="counts in output topic id the one before"):
        resume_point(SECOND, TOPIC, OURS, replace(of_second(50), output_id="the one before"), never)


def test_a_fold_of_tombstones_alone_ends_at_0() -> None:
    """Of an empty source: a part of it that was sent is no end of a fold."""
    empty_source = Generation(number=2, start=0, first_end=0, output_offset=7)
    log = replace(SECOND, end=0, folded_end=0, generation=empty_source)
    found = resume_point(log, TOPIC, OURS, replace(of_second(-2, 0), start=0), never)
    assert (found.start, found.fold_end, found.publish_end) == (-2, 0, None)


@pytest.mark.parametrize(
    ("position", "folded_end"),
    [(ours(47), 90), (ours(40), 50), (theirs(47), 50), (None, 50)],
    ids=["a fold was begun since", "before it", "not ours", "none"],
)
def test_right_before_a_gap_the_output_need_not_tell(position: Position | None, folded_end: int) -> None:
    """The group was not told of the gap; where more was begun since, or more is missing, only the output tells."""
    skipped = replace(PUBLISHED, gaps=(Gap(45, 50),))
    for held in (ours(45), ours(48, 60)):
        expected = at(50, held.offset, output_offset=7)
        assert resume_point(skipped, TOPIC, OURS, held, lambda: Unknown.UNKNOWN) == expected
    with pytest.raises(PositionError, match="do not name source offsets"):
        resume_point(replace(skipped, folded_end=folded_end), TOPIC, OURS, position, lambda: Unknown.UNKNOWN)


def test_a_position_of_a_later_generation_is_an_error() -> None:
    """The catalog is an older copy: what it would send was sent, or must not be."""
    with pytest.raises(PositionError, match="is of generation 3, the catalog knows generation 2"):
        resume_point(SECOND, TOPIC, OURS, replace(of_second(50), generation=3), never)
    with pytest.raises(PositionError, match="of generation 2, the catalog knows generation 1"):
        resume_point(PUBLISHED, TOPIC, OURS, of_second(50), never)
