"""The metadata of a committed position comes back, and no other is taken for it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from compactor.errors import PositionError
from compactor.model.position import Position, WinnerRules, decode, encode

OURS = "catalog-1"


def ours(offset: int, fold_end: int | None = None, output_offset: int | None = 9) -> Position:
    return Position(offset=offset, catalog_id=OURS, output_id="oid", output_offset=output_offset, fold_end=fold_end)


@pytest.mark.parametrize(
    "position",
    [
        ours(5),
        ours(5, 9),
        ours(5, None, None),
        replace(ours(5), output_id=None),
        replace(ours(5), identity="json"),
        replace(ours(5), winners=WinnerRules("header:" + "v" * 249, "topic", "unavailable")),
        replace(ours(5), buckets=16),
        replace(ours(5), generation=2, fence=b"n2500002", fence_at=7),
        replace(ours(5), late_last="00ff" * 8),
    ],
)
def test_metadata_comes_back(position: Position) -> None:
    """What is committed is read back as it was, in less than 1 kB."""
    text = encode(position)
    assert decode(5, text) == position
    assert len(text) < 1000


@pytest.mark.parametrize("text", [None, "", "by hand", "{}", '{"catalog":"x"}', "[1]", '{"keyfold":"1","catalog":"x"}'])
def test_metadata_of_others_is_not_ours(text: str | None) -> None:
    """An offset with no metadata, or somebody else's, belongs to nobody."""
    assert decode(5, text) == Position(offset=5)


def test_metadata_of_another_offset_is_not_ours() -> None:
    """A tool that sets an offset and keeps the metadata has not published what lies between."""
    assert decode(7, encode(ours(5, 9))) == Position(offset=7)


def test_metadata_from_before_it_held_its_offset_is_read() -> None:
    """What an older version committed is still ours."""
    text = '{"keyfold":1,"catalog":"catalog-1","output":"oid","output_offset":9,"fold_end":8}'
    assert decode(5, text) == ours(5, 8)


def test_what_names_no_transactional_ids_is_read_and_written_as_before() -> None:
    """An older version did not say how many it had, and passes over what is said."""
    assert decode(5, '{"keyfold":1,"catalog":"catalog-1","offset":5}').buckets is None
    assert "buckets" not in encode(ours(5))
    assert '"keyfold":1,' in encode(replace(ours(5), buckets=16))


@pytest.mark.parametrize(
    ("said", "read"), [(1, 1), (10_000, 10_000), (10_001, 10_000), (1 << 62, 10_000), (0, None), (-4, None)]
)
def test_a_number_of_ids_is_bounded(said: int, read: int | None) -> None:
    """Each one named is initialised, and any tool may have written the metadata."""
    assert decode(5, f'{{"keyfold":1,"catalog":"c","offset":5,"buckets":{said}}}').buckets == read
    assert decode(5, encode(replace(ours(5), buckets=1 << 40))).buckets == 10_000


def test_metadata_of_a_newer_format_is_refused() -> None:
    """A position that a newer version wrote is not guessed at."""
    with pytest.raises(PositionError, match="format 3"):
        decode(5, '{"keyfold":3,"catalog":"x"}')


def test_first_generation_is_written_as_before() -> None:
    """An older version reads the positions of a log that was never begun anew."""
    assert '"keyfold":1' in encode(ours(5, 8))
    assert "generation" not in encode(ours(5, 8))


def test_position_of_a_later_generation_survives_its_metadata() -> None:
    """Inside the tombstones the group holds the source offset where the generation begins, the metadata the other."""
    position = Position(offset=-3, catalog_id="c", output_id="o", output_offset=40, fold_end=60, generation=2, start=50)
    assert position.group_offset == 50
    assert decode(50, encode(position)) == position
    assert '"keyfold":2' in encode(position)


def test_position_above_the_tombstones_is_the_groups() -> None:
    """Once records of the source are published the two offsets are one, for the tools that read the group."""
    position = Position(offset=57, catalog_id="c", output_id="o", output_offset=40, generation=3, start=50)
    assert position.group_offset == 57
    assert decode(57, encode(position)) == position


def test_metadata_of_a_later_generation_for_another_offset_is_not_ours() -> None:
    """A tool that moves the group away from where a generation begins is found out, as in the first generation."""
    position = Position(offset=-3, catalog_id="c", output_id="o", output_offset=40, generation=2, start=50)
    assert decode(49, encode(position)) == Position(offset=49)
