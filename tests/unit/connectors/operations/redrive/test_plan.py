"""Which letters go back, and what the group holds of it: none twice, none lost, whatever is left between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from connectors.operations.redrive.letters import REDRIVES, Letter, LetterFilter
from connectors.operations.redrive.plan import (
    BATCH_BYTES,
    BATCH_LETTERS,
    FILTERED,
    GONE,
    NO_SOURCE,
    OTHER_CONNECTOR,
    TOO_OFTEN,
    TRANSFORMED,
    UNNAMED,
    UNSTAGED,
    RedrivePosition,
    RedriveSelection,
    RedriveTarget,
    batches,
    target_of,
)
from connectors.sinks.encode import TIMESTAMP

CONTEXT = {
    "connector.name": "c",
    "topic": "t",
    "partition": "1",
    "stage": "VALUE_CONVERTER",
    "class.name": "keyfold.Json",
}
ALL = RedriveSelection(3)
BARE = Letter(0, 5, 7, b"k", b"v", (), {})
KAFKA_MAX = 4_096
"""Bytes that brokers take as metadata (offset.metadata.max.bytes)."""


def letter(redrives: int = 0, offset: int = 5, **context: str) -> Letter:
    """Returns a letter of t-1 with another context."""
    said = {**CONTEXT, **{name.replace("_", "."): text for name, text in context.items()}}
    return Letter(0, offset, 7, b"k", b"v", ((REDRIVES, b"%d" % redrives),) if redrives else (), said)


@pytest.mark.parametrize(
    ("one", "selection", "expected"),
    [
        (letter(), ALL, None),
        (letter(connector_name="other"), RedriveSelection(3, unnamed=True), OTHER_CONNECTOR),
        (letter(), ALL.without("t"), GONE),
        (letter(), ALL.without("other"), None),
        (letter(2), RedriveSelection(2), TOO_OFTEN),
        (letter(2), RedriveSelection(3), None),
        (letter(), RedriveSelection(3, LetterFilter(stage="TASK_PUT")), FILTERED),
        (letter(), RedriveSelection(3, LetterFilter(class_name="keyfold.Json")), None),
        (letter(stage="KAFKA_PRODUCE"), RedriveSelection(3, transforms=True), TRANSFORMED),
        (letter(stage="KAFKA_PRODUCE"), ALL, None),
        (BARE, RedriveSelection(3, source=True), UNNAMED),
        (BARE, RedriveSelection(3, source=True, transforms=True), UNSTAGED),
        (replace(BARE, context={"stage": "TASK_PUT"}), RedriveSelection(3, transforms=True), UNNAMED),
        (BARE, RedriveSelection(3, unnamed=True), NO_SOURCE),
        (BARE, RedriveSelection(3, unnamed=True, source=True, transforms=True), None),
        (BARE, RedriveSelection(3, LetterFilter("t"), unnamed=True, source=True), FILTERED),
    ],
)
def test_a_letter_is_chosen_or_left_with_a_reason(one: Letter, selection: RedriveSelection, expected: object) -> None:
    """One that does not name its connector is left unless the run says that all such are this one's."""
    assert selection.why_left(one, "c") == expected


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        (RedriveSelection(4), ALL),
        (ALL, RedriveSelection(3, LetterFilter("t", "TASK_PUT", "x.Y"))),
        (RedriveSelection(3, unnamed=True), ALL),
        (RedriveSelection(3, source=True), ALL),
        (ALL, RedriveSelection(3, transforms=True)),
        (ALL, ALL.without("t")),
        (ALL.without("t"), ALL.without("t").without("u")),
    ],
)
def test_one_selection_includes_another(wide: RedriveSelection, narrow: RedriveSelection) -> None:
    """Never the other way round; each includes itself."""
    assert wide.includes(narrow)
    assert not narrow.includes(wide)
    assert wide.includes(wide)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (letter(), RedriveTarget("t", 1)),
        (letter(partition="2"), RedriveTarget("t", -1)),
        (letter(partition="9" * 5_000), RedriveTarget("t", -1)),
        (letter(partition="²"), RedriveTarget("t", -1)),
        (letter(topic="gone"), None),
        (BARE, RedriveTarget("t", -1)),
    ],
)
def test_a_letter_goes_to_the_partition_that_it_came_from(one: Letter, expected: object) -> None:
    """As long as there is one; otherwise its key decides."""
    assert target_of(one, "t", {"t": 2}) == expected


def test_the_count_of_redrives_is_one_header() -> None:
    """The record's own headers stay, one that another keyfold has made of its time among them."""
    one = Letter(0, 5, 7, b"k", b"v", (("h", None), (REDRIVES, b"2"), (TIMESTAMP, b"7")), {})
    assert one.source_row() == (b"v", b"k", 7, [("h", None), (TIMESTAMP, b"7"), (REDRIVES, b"3")])


def test_time_0_is_sent_as_1_with_a_header_that_says_so() -> None:
    """To librdkafka 0 is now."""
    assert replace(BARE, timestamp=0).source_row() == (b"v", b"k", 1, [(REDRIVES, b"1"), (TIMESTAMP, b"0")])


SELECTIONS = st.builds(
    RedriveSelection,
    st.integers(1, 4),
    st.builds(LetterFilter, st.sampled_from([None, "t", "u"]), st.sampled_from([None, "TASK_PUT", "VALUE_CONVERTER"])),
    unnamed=st.booleans(),
    source=st.booleans(),
    transforms=st.booleans(),
    gone=st.sampled_from([(), ALL.without("t").gone, ALL.without("u").gone]),
)
LETTERS = st.lists(
    st.builds(
        lambda redrives, context: (redrives, context),
        st.integers(0, 3),
        st.fixed_dictionaries(
            {},
            optional={
                "connector.name": st.sampled_from(["c", "other"]),
                "topic": st.sampled_from(["t", "u"]),
                "stage": st.sampled_from(["TASK_PUT", "VALUE_CONVERTER", "KAFKA_PRODUCE"]),
            },
        ),
    ),
    max_size=12,
)


@given(LETTERS, st.lists(st.tuples(SELECTIONS, st.integers(0, 14)), max_size=6))
def test_runs_that_choose_anything_and_end_anywhere_send_each_letter_once(
    kinds: list[tuple[int, dict[str, str]]], runs: list[tuple[RedriveSelection, int]]
) -> None:
    """None twice, and none that was chosen is passed over, whatever other runs have left."""
    letters = [replace(letter(redrives, offset), context=said) for offset, (redrives, said) in enumerate(kinds)]
    sent: list[int] = []
    held = (0, "")
    for selection, cut in runs:
        position = RedrivePosition.of(*held)
        ahead = [one for one in letters if position.start(selection) <= one.offset < cut]
        chosen = [one.offset for one in letters[:cut] if selection.why_left(one, "c") is None]
        sent += [
            one.offset for one in ahead if not position.is_redriven(one, "c") and selection.why_left(one, "c") is None
        ]
        position = position.noted(selection, cut)
        held = (position.offset, position.metadata)
        assert set(chosen) <= set(sent)
    assert len(sent) == len(set(sent))


def test_the_length_of_a_position_does_not_depend_on_what_was_left() -> None:
    """Also where every second letter is left, by a filter or as it came back too often: later runs go on."""
    letters = [letter(3 * (at % 3 == 0), at, topic="tu"[at % 2]) for at in range(3_000)]
    held, sent = (0, ""), list[int]()
    for selection in (RedriveSelection(3, LetterFilter("u")), ALL, RedriveSelection(9)):
        position = RedrivePosition.of(*held)
        for batch in batches(one for one in letters if one.offset >= position.start(selection)):
            left = [one for one in batch if not position.is_redriven(one, "c")]
            sent += [one.offset for one in left if selection.why_left(one, "c") is None]
            position = position.noted(selection, batch[-1].offset + 1)
            held = (position.offset, position.metadata)
            position = RedrivePosition.of(*held)
            assert len(position.metadata) < 300
    assert sorted(sent) == list(range(3_000))
    assert [one.selection for one in position.redriven] == [RedriveSelection(9)]


def test_a_position_that_is_full_of_filters_has_room_for_a_run_without() -> None:
    """Which takes their place; one filter more is refused before anything is sent, one that was used is not."""
    position, used = RedrivePosition(), list[RedriveSelection]()
    while True:
        asked = RedriveSelection(3, LetterFilter(f"{len(used):0>200}"))
        if not position.has_room_for(asked):
            break
        position = position.noted(asked, 10**18)
        used.append(asked)
    position = RedrivePosition.of(position.offset, position.metadata)
    assert len(used) > 5
    assert not position.has_room_for(asked)
    assert all(map(position.has_room_for, used))
    assert position.has_room_for(ALL)
    halfway = position.noted(ALL, 10**17)
    assert halfway.fits
    assert len(halfway.metadata.encode()) < KAFKA_MAX
    assert halfway.noted(ALL, 10**18).redriven == RedrivePosition().noted(ALL, 10**18).redriven


def test_what_retention_has_removed_is_not_remembered() -> None:
    """Of selections whose letters are all gone from the topic nothing is held."""
    early, late = RedriveSelection(3, LetterFilter("t")), RedriveSelection(3, LetterFilter("u"))
    position = RedrivePosition(4).noted(early, 10).noted(late, 20).since(10)
    assert (position.base, [one.selection for one in position.redriven]) == (4, [late])


def test_an_offset_without_metadata_is_where_it_begins() -> None:
    """So an operator sets a group: everything below it counts as sent."""
    position = RedrivePosition.of(6, "")
    assert [position.is_redriven(letter(offset=at), "c") for at in (5, 6)] == [True, False]
    noted = position.noted(RedriveSelection(1), 9)
    assert RedrivePosition.of(noted.offset, noted.metadata) == noted
    assert noted.offset == 9


@pytest.mark.parametrize("metadata", ["what is this", '{"base":3}', '{"redriven":[],"more":1}'])
def test_metadata_that_is_not_ours_is_refused(metadata: str) -> None:
    """A position of somebody else says nothing of letters."""
    with pytest.raises(ValueError, match=r"^\S"):
        RedrivePosition.of(3, metadata)


def test_letters_of_one_transaction_are_few_and_small() -> None:
    """By number and by bytes; a letter that is larger than that is alone."""
    small = [letter(offset=at) for at in range(BATCH_LETTERS + 1)]
    half, huge = replace(BARE, value=bytes(BATCH_BYTES // 2)), replace(BARE, value=bytes(BATCH_BYTES + 1))
    assert [len(batch) for batch in batches(small)] == [BATCH_LETTERS, 1]
    assert [len(batch) for batch in batches([half, BARE, half, huge, BARE])] == [2, 1, 1, 1]
    assert list(batches([])) == []
