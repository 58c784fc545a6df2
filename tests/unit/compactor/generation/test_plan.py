"""What a change of offsets does to each log, from what the catalog and the brokers say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from compactor.errors import OffsetChangeError
from compactor.generation.plan import FoundPartition, FoundTopic, OffsetChange, actions_of, plan_change
from compactor.model.actions import (
    AnyAction,
    Append,
    BeginGeneration,
    CloseTopic,
    PlanFold,
    Publish,
    Refill,
    Reidentify,
    Reorder,
    Rescope,
    SetFence,
    Skip,
)
from compactor.model.fence import Fence
from compactor.model.log import Gap, Generation, OutputPoint, Run, lost_by
from compactor.model.record import TopicPartition
from compactor.model.state import BYTES, CatalogState, apply
from tests.support.engine import new_state
from tests.support.logs import run

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPICS = {"t": FoundTopic("id-t", "out-id")}
AS_KNOWN = {
    T0: FoundPartition(start=0, end=100, position=40, output_end=7),
    T1: FoundPartition(start=0, end=50, position=0, output_end=0),
}


def state(*more: AnyAction) -> CatalogState:
    """Two partitions, of which the first is published up to 40."""
    return apply(
        new_state({0: 0, 1: 0}),
        [*_ingested(0, 60), Publish(topic="t", partition=0, end=40, output=OutputPoint(40, 5)), *more],
    )


def _ingested(partition: int, end: int) -> list[AnyAction]:
    return [
        Append(topic="t", partition=partition, start=0, end=end, run=run(0, end, 3)),
        PlanFold(topic="t", partition=partition, end=40),
    ]


def begun(number: int, start: int, first_end: int, partition: int = 0) -> BeginGeneration:
    generation = Generation(number=number, start=start, first_end=first_end, output_offset=7)
    return BeginGeneration(topic="t", partition=partition, generation=generation)


def decided(
    offsets: Mapping[TopicPartition, int | None],
    *,
    known: CatalogState | None = None,
    topics: Mapping[str, FoundTopic] = TOPICS,
    found: Mapping[TopicPartition, FoundPartition] = AS_KNOWN,
    **more: Any,
) -> list[AnyAction]:
    """The actions of a change without tombstones."""
    plan = plan_change(known or state(), OffsetChange(offsets=offsets, **more), topics, found)
    return list(actions_of(plan, {}))


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        pytest.param(40, [], id="where it stands"),
        pytest.param(70, [Skip(topic="t", partition=0, end=70)], id="forward"),
        pytest.param(100, [Skip(topic="t", partition=0, end=100)], id="to the end"),
        pytest.param(39, [begun(2, 39, 100)], id="back"),
        pytest.param(0, [begun(2, 0, 100)], id="to the beginning"),
        pytest.param(None, [begun(2, 0, 100)], id="to the source's start"),
    ],
)
def test_an_offset_is_forward_back_or_where_it_stands(to: int | None, expected: list[AnyAction]) -> None:
    """Forward is a gap, back a generation that waits for the source's end."""
    assert decided({T0: to}) == expected


def test_a_partition_that_was_not_named_stays_as_it_is() -> None:
    """Only what was asked for changes; asked for all, those at their start stay unless it is anew."""
    everything = {T0: None, T1: None}
    assert [one.tp for one in decided(everything) if isinstance(one, BeginGeneration)] == [T0]
    anew = decided(everything, anew=True)
    assert [(one.tp, one.generation.first_end) for one in anew if isinstance(one, BeginGeneration)] == [
        (T0, 100),
        (T1, 50),
    ]


def test_no_gap_is_left_where_the_output_holds_an_earlier_generation() -> None:
    """Its keys would stay for ever; what is given up is counted all the same. The same place is nothing to do."""
    waiting = state(begun(2, 30, 100))
    unsent = {T0: replace(AS_KNOWN[T0], position=30)}
    assert decided({T0: 50}, known=waiting, found=unsent) == [replace(begun(3, 50, 100), gap=Gap(30, 50))]
    assert decided({T0: 30}, known=waiting, found=unsent) == []


def test_where_no_position_tells_it_begins_anew() -> None:
    """A gap would begin nobody knows where."""
    found = {T0: replace(AS_KNOWN[T0], position=None)}
    assert decided({T0: 70}, found=found) == [replace(begun(2, 70, 100), gap=Gap(60, 70))]


@pytest.mark.parametrize(
    "topics", [{"t": FoundTopic("other", "out-id")}, {"t": FoundTopic("id-t", "other")}], ids=["source", "output"]
)
def test_a_topic_that_was_recreated_begins_anew_as_a_whole(topics: Mapping[str, FoundTopic]) -> None:
    """All partitions from their start, under the new ids; not one alone, and at no offset."""
    known = state(CloseTopic(topic="t", reason="recreated"))
    renewed, *others = decided({T0: None, T1: None}, known=known, topics=topics)
    after = apply(known, [renewed, *others])
    assert (after.topics["t"].topic_id, after.topics["t"].output_id) == (topics["t"].topic_id, topics["t"].output_id)
    assert after.topics["t"].closed is None
    assert [one.tp for one in others if isinstance(one, BeginGeneration)] == [T0, T1]
    for offsets in ({T0: None}, {T0: None, T1: 3}):
        with pytest.raises(OffsetChangeError, match="all of its 2 partitions begin anew"):
            decided(offsets, known=known, topics=topics)


def test_a_topic_that_was_cut_begins_anew_as_a_whole() -> None:
    """Nobody knows which of its partitions lacks what was taken back: none is read on, and a gap does not help."""
    known, cut = state(CloseTopic(topic="t", reason="truncated")), {"t": FoundTopic("id-t", "out-id", is_cut=True)}
    for offsets in ({T0: None}, {T0: 70}, {T0: None, T1: 3}):
        with pytest.raises(OffsetChangeError, match="all of its 2 partitions begin anew"):
            decided(offsets, known=known, topics=cut)
    renewed, *others = decided({T0: None, T1: None}, known=known, topics=cut)
    assert apply(known, [renewed]).topics["t"].closed is None
    assert [one.tp for one in others if isinstance(one, BeginGeneration)] == [T0, T1]


def test_a_number_is_never_given_twice() -> None:
    """Where position or output name a later generation than a catalog that is an older copy, the next is above."""
    plan = plan_change(state(), OffsetChange(offsets={T0: 30, T1: None}, anew=True), TOPICS, AS_KNOWN)
    assert [one.number for one in plan.above({T0: 4, T1: 1}).generations.values()] == [5, 2]


def test_a_closed_topic_is_read_again() -> None:
    """Also where its log only gets a gap."""
    known = state(CloseTopic(topic="t", reason="records lost"))
    found = {T0: replace(AS_KNOWN[T0], start=65)}
    after = apply(known, decided({T0: 65}, known=known, found=found))
    assert (after.topics["t"].closed, after.log(T0).published) == (None, 65)


@pytest.mark.parametrize(
    ("offsets", "found", "text"),
    [
        pytest.param(
            {TopicPartition("u", 0): 0}, AS_KNOWN, "keeps nothing of topic u, partition 0", id="another topic"
        ),
        pytest.param({TopicPartition("t", 9): 0}, AS_KNOWN, "keeps nothing of topic t, partition 9", id="another one"),
        pytest.param({T0: 101}, AS_KNOWN, "holds the offsets from 0 to 100", id="beyond the end"),
        pytest.param({T0: 4}, {T0: replace(AS_KNOWN[T0], start=5)}, "offsets from 5 to 100", id="below the start"),
        pytest.param({T0: 4}, {}, "t, partition 0 is in the catalog, and the brokers do not have it", id="is gone"),
        pytest.param(
            {T0: None}, {T0: replace(AS_KNOWN[T0], start=5)}, "began at offset 0, and the source begins at 5", id="loss"
        ),
    ],
)
def test_what_cannot_be_is_refused(
    offsets: dict[TopicPartition, int | None], found: dict[TopicPartition, FoundPartition], text: str
) -> None:
    """By name, with what there is."""
    with pytest.raises(OffsetChangeError, match=text):
        decided(offsets, found=found)


def test_a_loss_may_be_accepted() -> None:
    """Then it begins where the source does; an operator who names a later offset has said what goes."""
    cut = {T0: replace(AS_KNOWN[T0], start=5)}
    assert decided({T0: None}, found=cut, accepts_loss=True) == [begun(2, 5, 100)]
    assert decided({T0: 6}, found=cut) == [begun(2, 6, 100)]


BEGINS_ABOVE = {T0: replace(AS_KNOWN[T0], start=65)}
"""The source has lost the 25 offsets from the position 40 on, and all below."""


@pytest.mark.parametrize("anew", [True, False], ids=["resync", "reset"])
def test_a_source_that_begins_above_the_position_is_a_loss(anew: bool) -> None:
    """Going back to its start is no gap that somebody asked for: it is refused, then a generation that counts it."""
    with pytest.raises(OffsetChangeError, match=r"begins at 65 now.*The 25 offsets from 40 on are in no output"):
        decided({T0: None}, found=BEGINS_ABOVE, anew=anew)
    (action,) = decided({T0: None}, found=BEGINS_ABOVE, anew=anew, accepts_loss=True)
    assert action == replace(begun(2, 65, 100), gap=Gap(40, 65))
    assert apply(state(), [action]).log(T0).gaps == (Gap(40, 65),)
    assert decided({T0: 65}, found=BEGINS_ABOVE) == [Skip(topic="t", partition=0, end=65)]


def test_anew_is_never_a_gap() -> None:
    """Asked to begin again, a log begins a generation also if its offset lies forward."""
    (action,) = decided({T0: 70}, anew=True)
    assert isinstance(action, BeginGeneration)
    assert action.gap == Gap(40, 70)


@pytest.mark.parametrize(
    ("position", "gap"),
    [
        pytest.param(None, Gap(60, 65), id="unknown: what was never read"),
        pytest.param(65, None, id="at the start"),
        pytest.param(80, None, id="above the start"),
    ],
)
def test_the_loss_begins_where_publishing_stood(position: int | None, gap: Gap | None) -> None:
    """What was published before is no loss; if no position tells, what was not even read is one."""
    found = {T0: replace(BEGINS_ABOVE[T0], position=position)}
    assert decided({T0: None}, found=found, accepts_loss=True, anew=True) == [replace(begun(2, 65, 100), gap=gap)]


def test_tombstones_that_were_not_sent_are_no_loss() -> None:
    """The offsets below 0, with which a generation begins, are none of the source."""
    lead = Run(start=-3, end=30, level=0, files=(), records=3, bytes=3, folded=True)
    waiting = state(replace(begun(2, 30, 100), lead=lead))
    found = {T0: replace(BEGINS_ABOVE[T0], position=-3)}
    (action,) = decided({T0: None}, known=waiting, found=found, accepts_loss=True)
    assert action == replace(begun(3, 65, 100), gap=Gap(30, 65))


@pytest.mark.parametrize("start", [65, 70], ids=["from there again", "the source has lost more"])
def test_a_loss_that_nothing_has_counted_is_not_forgotten(start: int) -> None:
    """If a change of offsets is asked for twice before a worker has run, the second counts what the first gave up."""
    waiting = state(replace(begun(2, 65, 100), gap=Gap(40, 65)))
    found = {T0: replace(BEGINS_ABOVE[T0], start=start, position=65)}
    (action,) = decided({T0: None}, known=waiting, found=found, accepts_loss=True, anew=True)
    assert isinstance(action, BeginGeneration)
    assert action.gap == Gap(40, start)
    assert lost_by(apply(waiting, [action]).log(T0)) == start - 40


def test_offsets_of_another_topic_are_no_loss() -> None:
    """If the topic was recreated its offsets began again."""
    topics = {"t": FoundTopic("other", "out-id")}
    found = {T0: replace(AS_KNOWN[T0], start=65), T1: AS_KNOWN[T1]}
    changes = decided({T0: None, T1: None}, topics=topics, found=found, accepts_loss=True)
    assert [one.gap for one in changes if isinstance(one, BeginGeneration)] == [None, None]


def test_the_tombstones_end_where_the_source_is_read() -> None:
    """Between the last of them and there the log has nothing."""
    plan = plan_change(state(), OffsetChange(offsets={T0: 30}), TOPICS, AS_KNOWN)
    lead = Run(start=-3, end=0, level=0, files=(), records=3, bytes=3, folded=True)
    (action,) = actions_of(plan, {T0: lead})
    assert isinstance(action, BeginGeneration)
    assert action.lead == replace(lead, end=30)
    log = apply(state(), [action]).log(T0)
    assert (log.start, log.published, log.end, log.position) == (-3, -3, 30, 30)
    assert log.output == OutputPoint(-3, 7)


def test_another_order_comes_with_all_logs_that_begin_again() -> None:
    """One action, before theirs. A log that would keep what was decided about by the order before is named."""
    assert decided({T0: None, T1: None}, anew=True, order="timestamp")[0] == Reorder(order="timestamp")
    for order in (None, "offset"):
        assert not any(isinstance(each, Reorder) for each in decided({T0: None, T1: None}, anew=True, order=order))
    for offsets, is_anew in (({T0: None}, True), ({T0: 60, T1: None}, False)):
        with pytest.raises(OffsetChangeError, match=r"order was offset and is header:v now, and partition t-"):
            decided(offsets, anew=is_anew, order="header:v")
        with pytest.raises(OffsetChangeError, match=r"fill was none and is unavailable now, .*compaction.fill back"):
            decided(offsets, anew=is_anew, fill="unavailable")


@pytest.mark.parametrize(
    ("scope", "sizes", "outcome"),
    [
        ("topic", (2, 2), Rescope(scope="topic", outputs={"t": 2})),
        ("topic", (3, 1), Rescope(scope="topic", outputs={"t": 1})),
        ("topic", (2, 3), "t.compacted has 3 partitions, and its source t has 2: .* no more than 2"),
        ("topic", (2, 0), "t.compacted has 0 partitions"),
        ("partition", (2, 2), Rescope(scope="partition")),
        ("partition", (2, 5), Rescope(scope="partition")),
        ("partition", (2, 1), "t.compacted has 1 partitions, and its source t has 2: .* no fewer than 2"),
    ],
)
def test_another_scope_needs_an_output_of_a_size(scope: str, sizes: tuple[int, int], outcome: Rescope | str) -> None:
    """By topic no position can speak for more partitions than the source has; by partition each log needs one."""
    before = state(Rescope(scope="topic", outputs={"t": 1})) if scope == "partition" else state()
    topics = {"t": FoundTopic("id-t", "out-id", partitions=sizes[0], outputs=sizes[1])}
    everything = {T0: None, T1: None}
    if isinstance(outcome, str):
        with pytest.raises(OffsetChangeError, match=outcome):
            decided(everything, anew=True, known=before, topics=topics, scope=scope)
        return
    first, *_ = actions = decided(everything, anew=True, known=before, topics=topics, scope=scope)
    assert first == outcome
    spread = outcome.outputs.get("t", UNSET)
    assert apply(before, actions).topics["t"].outputs == spread
    with pytest.raises(OffsetChangeError, match=r"scope was .*, and partition t-1 would keep"):
        decided({T0: None}, anew=True, known=before, topics=topics, scope=scope)
    assert not any(isinstance(each, Rescope) for each in decided(everything, anew=True, known=before, topics=topics))


def test_another_identity_does_as_well() -> None:
    """The word `bytes` is another one in the catalog; what it has already is no action."""
    by_json = state(Reidentify(identity="json"))
    everything = {T0: None, T1: None}
    assert decided(everything, anew=True, identity="json")[0] == Reidentify(identity="json")
    assert decided(everything, anew=True, known=by_json, identity="avro")[0] == Reidentify(identity="avro")
    assert decided(everything, anew=True, known=by_json, identity="bytes")[0] == Reidentify(identity=BYTES)
    for known, word in ((state(), "bytes"), (by_json, "json"), (by_json, None)):
        actions = decided(everything, anew=True, known=known, identity=word)
        assert not any(isinstance(each, Reidentify) for each in actions)
    with pytest.raises(OffsetChangeError, match=r"key identity was json and is bytes now, .*\.key\.identity back"):
        decided({T0: None}, anew=True, known=by_json, identity="bytes")


def test_another_fill_does_as_well() -> None:
    """None is unset in the catalog; what it has already is no action."""
    both = decided({T0: None, T1: None}, anew=True, order="timestamp", fill="unavailable")
    assert list(both[:2]) == [Reorder(order="timestamp"), Refill(fill="unavailable")]
    for fill in (None, "none"):
        assert not any(isinstance(each, Refill) for each in decided({T0: None, T1: None}, anew=True, fill=fill))


FENCE = Fence(b"20", {0: 7})


def test_after_a_truncate_each_log_goes_on_where_it_is() -> None:
    """Its position is not what counts, nor what the source still has; the fence comes with the same commit."""
    found = {T0: replace(AS_KNOWN[T0], start=70), T1: replace(AS_KNOWN[T1], output_end=7)}
    actions = decided({T0: 60, T1: 0}, found=found, anew=True, accepts_loss=True, fences={"t": FENCE})
    assert actions == [SetFence(topic="t", fence=FENCE), begun(2, 60, 100), begun(2, 0, 50, 1)]


def test_what_a_log_keeps_after_a_truncate_comes_before_what_is_read() -> None:
    """The generation begins at the first record that is carried over, behind its tombstones."""
    change = OffsetChange(offsets={T0: 60, T1: 0}, anew=True, accepts_loss=True, fences={"t": FENCE})
    plan = plan_change(state(), change, TOPICS, AS_KNOWN)
    lead, carried = {T0: run(-2, 0, 2)}, {T0: run(33, 60, 4)}
    (_, first, second) = actions_of(plan.carrying(carried), lead, carried)
    assert isinstance(first, BeginGeneration)
    assert isinstance(second, BeginGeneration)
    assert (first.generation.start, first.carried, second.generation.start) == (33, carried[T0], 0)
    log = apply(state(), [first]).log(T0)
    assert [(each.start, each.end) for each in log.runs] == [(-2, 33), (33, 60)]
    assert (log.published, log.position, log.end) == (-2, 33, 60)


def test_a_fence_goes_if_all_logs_of_its_topic_are_read_again() -> None:
    """Its truncates are read as well, and an operator can get rid of one. If some are read again it stays."""
    fenced = state(SetFence(topic="t", fence=FENCE))
    fences = [each for each in decided({T0: 0, T1: 0}, known=fenced, anew=True) if isinstance(each, SetFence)]
    assert fences == [SetFence(topic="t", fence=None)]
    assert not [each for each in decided({T0: 0}, known=fenced, anew=True) if isinstance(each, SetFence)]
