"""The metadata of a committed position comes back, and no other is taken for it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from compactor.errors import PositionError
from compactor.model.position import Position, decode, encode

OURS = "catalog-1"


def ours(offset: int, fold_end: int | None = None, output_offset: int | None = 9) -> Position:
    return Position(offset=offset, catalog_id=OURS, output_id="oid", output_offset=output_offset, fold_end=fold_end)


@pytest.mark.parametrize("position", [ours(5), ours(5, 9), ours(5, None, None), replace(ours(5), output_id=None)])
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


def test_metadata_of_a_newer_format_is_refused() -> None:
    """A position that a newer version wrote is not guessed at."""
    with pytest.raises(PositionError, match="format 2"):
        decode(5, '{"keyfold":2,"catalog":"x"}')
