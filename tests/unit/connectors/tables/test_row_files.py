"""Which files of a table stay, whatever they hold, however many rows are compared at once."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.tables.plan import replace
from connectors.tables.positions import PLACE, SnapshotPlaces
from connectors.tables.row_files import RowFiles
from connectors.tables.table_files import TableFile, TableHead

Place = tuple[int, int]
_PLACES = st.tuples(st.integers(0, 2), st.integers(0, 3).map(lambda number: number << 16) | st.integers(0, 1 << 18))
_SCHEMA = pa.schema([(PLACE[0], pa.int32()), (PLACE[1], pa.int64())])


def _rows(places: list[Place]) -> pa.Table:
    return pa.table([[place[at] for place in places] for at in range(2)], schema=_SCHEMA)


def _file(places: list[Place], number: int) -> TableFile:
    return TableFile(number, 1 << 20, True, lambda: _rows(places))


@given(data=st.data(), at_once=st.sampled_from([1, 2, 5, 1_000]))
def test_each_row_is_in_one_file_that_stays_or_is_written(data: st.DataObject, at_once: int) -> None:
    """A file stays if each of its rows is current, and no file before it has one of them; no other file does."""
    current = data.draw(st.lists(_PLACES, unique=True, min_size=1))
    any_place = st.one_of(st.sampled_from(current), _PLACES) if data.draw(st.booleans()) else st.sampled_from(current)
    files = data.draw(st.lists(st.lists(any_place, max_size=6), max_size=6))
    halves = [current[: len(current) // 2], current[len(current) // 2 :]]
    places = SnapshotPlaces(len(current), lambda: map(_rows, halves), at_once)
    head = TableHead(None, _SCHEMA, [_file(held, number) for number, held in enumerate(files)], {})
    planned = replace(head, places, 1, lambda: 1.0)
    removed = {file.handle for file in planned.removed}
    stays = [place for number, held in enumerate(files) if number not in removed for place in held]
    assert planned.wanted is not None
    written = planned.wanted(slice(0, len(current)), lambda: pa.table({}))
    assert Counter([*stays, *(place for place, is_written in zip(current, written, strict=True) if is_written)]) == (
        Counter(current)
    )
    alone = Counter(place for held in files for place in held)
    whole = {number for number, held in enumerate(files) if all(alone[place] == 1 for place in held)}
    assert not {number for number in whole & removed if {*files[number]} <= {*current}}


def test_each_row_is_of_one_part() -> None:
    """Parts have about as many rows, whether offsets are those of transactions or far apart."""
    for offsets in (range(0, 2_000_000, 2), range(0, 1 << 36, 1 << 17)):
        rows = _rows([(0, offset) for offset in offsets])
        places = SnapshotPlaces(rows.num_rows, partial(list[pa.Table], [rows]), rows.num_rows // 4)
        parts = [np.arange(rows.num_rows)[places.part(number).rows] for number in range(places.parts)]
        assert sorted(np.concatenate(parts).tolist()) == list(range(rows.num_rows))
        assert max(map(len, parts)) < 1.1 * rows.num_rows / places.parts


@pytest.mark.parametrize("apart", [1, 1_000], ids=["dense", "sparse"])
def test_memory_follows_the_rows_that_are_compared_at_once(apart: int) -> None:
    """Not all rows: of each further one there is a byte, which says in what file it is."""
    count, at_once = 1_000_000, 100_000
    offsets = np.arange(count, dtype=np.int64) * apart
    rows = pa.table([np.zeros(count, np.int32), offsets], schema=_SCHEMA)
    few = [rows.slice(first, 50_000) for first in range(0, count, 50_000)]
    files = [TableFile(number, 1, True, partial(each.slice, 0)) for number, each in enumerate(few)]
    places = SnapshotPlaces(count, lambda: few, at_once)
    tracemalloc.start()
    compared = RowFiles(files, places)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(compared.outdated), compared.counts) == (0, [50_000] * 20)
    assert peak < count + 2 * 70 * at_once, f"{peak / count:.1f} bytes a row"
