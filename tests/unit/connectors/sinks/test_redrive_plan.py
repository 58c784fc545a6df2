"""Which letters go back, and what the group holds of it: none twice, none lost, whatever is left between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.sinks.letters import REDRIVES, Letter
from connectors.sinks.redrive_plan import (
    FILTERED,
    GONE,
    METADATA_MAX,
    NO_SOURCE,
    OTHER_CONNECTOR,
    TOO_OFTEN,
    TRANSFORMED,
    Place,
    Progress,
    Wanted,
    decide,
)

CONTEXT = {
    "connector.name": "c",
    "topic": "t",
    "partition": "1",
    "stage": "VALUE_CONVERTER",
    "class.name": "keyfold.Json",
}
WANTED = Wanted("c", {"t": 2})


def letter(redrives: int = 0, **context: str) -> Letter:
    """Returns a letter of t-1 with another context."""
    said = {**CONTEXT, **{name.replace("_", "."): text for name, text in context.items()}}
    return Letter(0, 5, 7, b"k", b"v", ((REDRIVES, b"%d" % redrives),) if redrives else (), said)


@pytest.mark.parametrize(
    ("one", "wanted", "expected"),
    [
        (letter(), WANTED, Place("t", 1)),
        (letter(partition="2"), WANTED, Place("t", -1)),
        (letter(connector_name="other"), WANTED, OTHER_CONNECTOR),
        (letter(topic="gone"), WANTED, GONE),
        (letter(2), Wanted("c", {"t": 2}, max_redrives=2), TOO_OFTEN),
        (letter(), Wanted("c", {"t": 2}, stage="TASK_PUT"), FILTERED),
        (letter(), Wanted("c", {"t": 2}, class_name="keyfold.Json"), Place("t", 1)),
        (letter(stage="KAFKA_PRODUCE"), Wanted("c", {"t": 2}, transforms=True), TRANSFORMED),
        (letter(stage="KAFKA_PRODUCE"), WANTED, Place("t", 1)),
        (Letter(0, 5, 7, b"k", b"v", (), {}), WANTED, NO_SOURCE),
        (Letter(0, 5, 7, b"k", b"v", (), {}), Wanted("c", {"t": 2}, source="t"), Place("t", -1)),
    ],
)
def test_a_letter_goes_back_or_is_left_with_a_reason(one: Letter, wanted: Wanted, expected: object) -> None:
    """To the partition that it came from, as long as there is one."""
    assert decide(one, wanted) == expected


def test_the_count_of_redrives_is_one_header() -> None:
    """Others of its name, and the original time, are not sent again."""
    one = Letter(0, 5, 7, None, None, (("h", None), (REDRIVES, b"2"), ("keyfold.source.timestamp", b"7")), {})
    assert one.sent_back() == (("h", None), (REDRIVES, b"3"))


@given(st.lists(st.tuples(st.sets(st.integers(0, 12)), st.integers(0, 14)), max_size=5))
def test_runs_with_any_filters_and_ends_send_each_letter_once(runs: list[tuple[set[int], int]]) -> None:
    """Each run sends some letters, and is cut off behind any: what the group holds says which have gone."""
    letters = [offset for offset in range(15) if offset % 4 != 3]  # markers take offsets too
    sent: list[int] = []
    position, metadata = 0, ""
    for chosen, cut in [*runs, (set(letters), 99)]:
        progress = Progress.of(position, metadata)
        start = position
        for offset in (one for one in letters if one >= start):
            if offset >= cut:
                break
            if progress.is_done(offset):
                progress = progress.sent(offset)
            elif offset in chosen:
                sent.append(offset)
                progress = progress.sent(offset)
            else:
                progress = progress.kept(offset)
            position, metadata = progress.position, progress.metadata
        if cut == 99:
            position = progress.ended(15).position
    assert sorted(sent) == letters
    assert position == 15


def test_metadata_that_is_not_ours_is_refused() -> None:
    """A position of somebody else says nothing of letters."""
    with pytest.raises(ValueError, match="what"):
        Progress.of(3, "what is this")


def test_metadata_stays_within_what_kafka_takes() -> None:
    """A run ends before it would grow beyond."""
    progress = Progress(10**12).kept(10**12)
    offset = 10**12
    while progress.fits:
        offset += 2
        progress = progress.sent(offset).kept(offset + 1)
    assert METADATA_MAX <= len(progress.metadata) < 4_096
