"""Rows of a table and of a snapshot are the same if they have the same place."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.tables.positions import PLACE, RowPlaces

Place = tuple[int, int]
_OFFSETS = {"dense": st.integers(0, 30), "sparse": st.integers(0, 2**40)}


def _rows(places: list[Place]) -> pa.Table:
    columns = ([place[at] for place in places] for at in range(2))
    return pa.table([*columns], schema=pa.schema([(PLACE[0], pa.int32()), (PLACE[1], pa.int64())]))


@pytest.mark.parametrize("kind", [*_OFFSETS])
@given(data=st.data())
def test_a_place_has_the_index_of_its_row(kind: str, data: st.DataObject) -> None:
    """Whether offsets lie close together or far apart, a place has one index below `size`, and any other has none."""
    places = st.tuples(st.integers(0, 3), _OFFSETS[kind])
    held = data.draw(st.lists(places, unique=True))
    asked = data.draw(st.lists(st.one_of(places, st.sampled_from([*held, (-1, 0), (0, -1), (9, 3)]))))
    positions = RowPlaces(_rows(held))
    index_of = dict(zip(held, positions.indices.tolist(), strict=True))
    assert len({*index_of.values()}) == len(held)
    assert all(0 <= index < positions.size for index in index_of.values())
    assert positions.index_of(_rows(asked)).tolist() == [index_of.get(place, -1) for place in asked]
