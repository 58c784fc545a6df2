"""What a lost log is decided to have been, before anything is written."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from compactor.errors import RebuildError
from compactor.model.actions import SetFence
from compactor.model.fence import Fence
from compactor.model.log import Gap
from compactor.model.position import Position, WinnerRules
from compactor.model.record import TopicPartition
from compactor.rebuild.plan import (
    OLDER_BUCKETS,
    LostLog,
    check,
    check_of_topic,
    check_outputs,
    check_rules,
    fences_of,
    ids_of,
    position_of,
    restored,
    whole_topics,
)

WINNERS = WinnerRules("offset", "partition", "none")
OF_TOPICS = WINNERS._replace(scope="topic")


def lost(identity: str | None) -> LostLog:
    position = Position(offset=5, catalog_id="lost", output_id="id", output_offset=9, identity=identity)
    return LostLog(topic="t", partition=0, position=position, source_start=0, source_end=7, output_end=9)


def refuse(position: Position, identity: str | None, now: WinnerRules) -> str:
    with pytest.raises(RebuildError) as refused:
        check_rules(TopicPartition("t", 0), position, "c", identity, now)
    return refused.value.message + " " + refused.value.action


@pytest.mark.parametrize("identity", [None, "json"])
@pytest.mark.parametrize("said", [None, WINNERS])
def test_the_rules_that_it_was_published_with_are_taken(identity: str | None, said: WinnerRules | None) -> None:
    """There is nothing to refuse; an older version did not say all of them."""
    check_rules(TopicPartition("t", 0), replace(lost(identity).position, winners=said), "c", identity, WINNERS)


@pytest.mark.parametrize(("was", "now"), [(None, "json"), ("json", None), ("json", "avro")])
def test_another_identity_is_refused(was: str | None, now: str | None) -> None:
    """The output holds a live record of each key as keys were compared then: by another identity there may be two."""
    for said in (None, WINNERS):
        text = refuse(replace(lost(was).position, winners=said), now, WINNERS)
        assert f"published with compaction.key.identity={was or 'bytes'}, and it is {now or 'bytes'} now" in text
        assert f"Set compaction.key.identity={was or 'bytes'}" in text


@pytest.mark.parametrize(
    ("setting", "changed"),
    [("order", "header:version"), ("scope", "topic"), ("fill", "unavailable")],
)
def test_other_rules_are_refused(setting: str, changed: str) -> None:
    """The output has the winners of each key by the rules that it was published with; resync applies others."""
    before = getattr(WINNERS, setting)
    text = refuse(replace(lost(None).position, winners=WINNERS), None, WINNERS._replace(**{setting: changed}))
    assert f"published with compaction.{setting}={before}, and it is {changed} now" in text
    assert f"Set compaction.{setting}={before}" in text
    assert "keyfold resync applies another one" in text


@pytest.mark.parametrize(("offset", "is_refused"), [(-2, False), (3, False), (4, True)])
def test_what_was_not_sent_begins_again_by_other_rules(offset: int, is_refused: bool) -> None:
    """Of a generation that was begun and not sent nothing is in the output yet."""
    position = Position(offset=offset, catalog_id="lost", generation=2, start=3, winners=WINNERS)
    other = WINNERS._replace(scope="topic")
    if is_refused:
        assert "compaction.scope=partition" in refuse(position, None, other)
    else:
        check_rules(TopicPartition("t", 0), position, "c", "json", other)


def held(*buckets: int | None) -> dict[TopicPartition, Position | None]:
    """The positions of as many partitions, which name so many transactional ids; the last one has none."""
    positions = (Position(offset=5, catalog_id="lost", buckets=ids) for ids in buckets)
    return {TopicPartition("t", at): position for at, position in enumerate((*positions, None))}


@pytest.mark.parametrize(
    ("positions", "buckets", "expected"),
    [
        pytest.param(held(16, 4), 1, 16, id="the most that a position names"),
        pytest.param(held(2), 8, 8, id="those of the new catalog"),
        pytest.param(held(1, 1, 1), 1, 4, id="as many as partitions"),
        pytest.param(held(16, None), 1, OLDER_BUCKETS, id="an older version's, which does not say"),
        pytest.param(held(1_000, None), 1, 1_000, id="more than an older version may have had"),
    ],
)
def test_every_id_is_shut_out_that_may_have_been_dealt(
    positions: dict[TopicPartition, Position | None], buckets: int, expected: int
) -> None:
    """Partitions of topics that are gone had ids too: the positions of those that are left say how many."""
    assert ids_of(positions, buckets) == expected


def test_what_the_group_holds_names_the_ids_of_the_lost_catalog() -> None:
    """A rebuild that ends before it has shut them out leaves that to the worker."""
    log = lost(None)
    assert position_of(restored(log, None, None, 0), log, "ours", 16, WINNERS) == replace(
        log.position, catalog_id="ours", buckets=16, winners=WINNERS
    )
    begun = replace(log, position=replace(log.position, generation=2, start=5))
    assert position_of(restored(begun, None, None, 0), begun, "ours", 16, WINNERS).buckets == 16


def test_a_topic_is_published_again_once_all_of_now_is_read() -> None:
    """A record below the position may have been passed over for one of another log that was not sent."""
    log = lost(None)
    made = position_of(restored(log, None, None, 0), log, "ours", 2, OF_TOPICS)
    assert made == replace(log.position, catalog_id="ours", buckets=2, winners=OF_TOPICS, fold_end=7)
    at_end = replace(log, source_end=5)
    assert position_of(restored(at_end, None, None, 0), at_end, "ours", 2, OF_TOPICS).fold_end is None


def test_what_another_log_may_need_is_not_given_up() -> None:
    """With one winner over a topic the key of a record in a gap would be missing, unless all logs are read again."""
    check_of_topic(lost(None), "c")
    behind_gap = replace(lost(None), source_start=6)
    with pytest.raises(RebuildError, match="the source begins at 6 now"):
        check_of_topic(behind_gap, "c")
    check_of_topic(replace(behind_gap, with_topic=True), "c")


UNSENT = Position(offset=3, catalog_id="lost", generation=2, start=3)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"position": UNSENT}, id="nothing was sent"),
        pytest.param({"position": replace(UNSENT, offset=-2, start=0)}, id="a part of the tombstones was sent"),
        pytest.param(
            {"position": replace(UNSENT, offset=4, fold_end=5), "has_earlier": True},
            id="the first fold was sent in part",
        ),
    ],
)
def test_a_generation_that_is_not_sent_to_its_first_end_begins_again_in_all_logs_of_its_topic(
    changed: dict[str, object],
) -> None:
    """A record of another log may have been passed over for one that was not sent."""
    begun, sent = replace(lost(None), **changed), replace(lost(None), partition=1)
    other = replace(lost(None), topic="u")
    assert not sent.begins_again
    logs = whole_topics([begun, sent, other])
    assert [(log.topic, log.partition, log.begins_again) for log in logs] == [
        ("t", 0, True),
        ("t", 1, True),
        ("u", 0, False),
    ]
    made = [(log, restored(log, None, None, 0)) for log in logs]
    positions = [position_of(action, log, "ours", 1, OF_TOPICS) for log, action in made]
    assert [(each.generation, each.offset, each.fold_end) for each in positions] == [
        (3, begun.position.start, None),
        (2, 0, None),
        (1, 5, 7),
    ]
    assert [action.log.generation and action.log.generation.first_end for _, action in made] == [7, 7, None]


def test_all_logs_of_a_topic_are_read_again_only_if_what_the_source_has_lost_may_go() -> None:
    """The records below its start are in no output then."""
    (log,) = whole_topics([replace(lost(None), position=replace(UNSENT, start=3), source_start=4)])
    with pytest.raises(RebuildError, match="has to be read again from offset 3, and the source begins at 4 now"):
        check(log, "c", accepts_loss=False)
    check(log, "c", accepts_loss=True)


def test_each_output_partition_has_a_position_that_speaks_for_it() -> None:
    """Otherwise nothing says how far it has come."""
    positions = {TopicPartition("t", number): Position(offset=5, catalog_id="lost") for number in (0, 2)}
    check_outputs(positions, {"t": 1}, "c")
    with pytest.raises(RebuildError) as refused:
        check_outputs(positions, {"t": 2}, "c")
    assert "no position of t, partition 1" in refused.value.message


@pytest.mark.parametrize(
    ("source_start", "fold_end", "gaps"),
    [
        pytest.param(0, 60, (), id="nothing is lost"),
        pytest.param(50, 60, (Gap(30, 50),), id="the begin of what is to be sent is lost"),
        pytest.param(60, None, (Gap(30, 60),), id="all of it is lost"),
        pytest.param(70, None, (Gap(30, 70),), id="more is lost"),
    ],
)
@pytest.mark.parametrize("generation", [1, 2])
def test_a_fold_that_was_being_sent_keeps_its_end(
    source_start: int, fold_end: int | None, gaps: tuple[Gap, ...], generation: int
) -> None:
    """Readers have a part of it: no position inside it is that of a fold's end, also above a loss that is accepted."""
    position = Position(offset=30, catalog_id="lost", output_offset=9, fold_end=60, generation=generation)
    log = replace(lost(None), position=position, source_start=source_start, source_end=80)
    made = restored(log, None, None, 0)
    at = position_of(made, log, "ours", 1, WINNERS)
    assert (at.offset, at.fold_end, made.log.gaps) == (max(30, source_start), fold_end, gaps)


@pytest.mark.parametrize(("source_start", "gaps"), [(10, ()), (9, ()), (50, (Gap(10, 50),))])
@pytest.mark.parametrize(("offset", "has_earlier"), [(10, False), (-3, False), (30, True)])
def test_a_generation_that_was_not_sent_to_its_first_end_counts_what_the_source_has_lost(
    source_start: int, gaps: tuple[Gap, ...], offset: int, has_earlier: bool
) -> None:
    """The next generation begins after the loss, if that is accepted, and no fold of the lost one goes on."""
    position = Position(offset=offset, catalog_id="lost", output_offset=9, fold_end=60, generation=2, start=10)
    log = replace(lost(None), position=position, source_start=source_start, source_end=80, has_earlier=has_earlier)
    check(log, "c", accepts_loss=True)
    if gaps:
        with pytest.raises(RebuildError, match="the source begins at 50 now"):
            check(log, "c", accepts_loss=False)
    made = restored(log, None, None, 0)
    at = position_of(made, log, "ours", 1, WINNERS)
    assert (at.generation, at.offset, at.fold_end, made.log.gaps) == (3, max(10, source_start), None, gaps)


@pytest.mark.parametrize(("source_end", "start"), [(10, 10), (80, 10), (9, 2)])
def test_what_the_lost_generation_has_left_out_is_not_read_again(source_end: int, start: int) -> None:
    """It began at a time, or after a truncate. A source that ends below was made again, and is read from its start."""
    position = Position(offset=-3, catalog_id="lost", output_offset=9, generation=2, start=10)
    log = replace(lost(None), position=position, source_start=2, source_end=source_end)
    made = restored(log, None, None, 0).log
    assert (made.start, made.published, made.generation and made.generation.first_end) == (start, start, source_end)


def test_what_truncates_have_left_of_a_topic_is_told_by_its_positions() -> None:
    """The greatest value of all, and of each partition with it the offset; an older version's says nothing."""
    positions = [(b"20", 5), (b"19", 9), (b"20", None), (None, None)]
    logs = [
        replace(lost(None), partition=place, position=Position(offset=9, catalog_id="lost", fence=value, fence_at=at))
        for place, (value, at) in enumerate(positions)
    ]
    assert fences_of(logs) == (SetFence(topic="t", fence=Fence(b"20", {0: 5})),)
    assert fences_of(logs[3:]) == ()
