"""Rows of many sections are sorted as a whole, a range of them at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.snapshot import sections
from compactor.snapshot.sections import Section
from compactor.storage.local import LocalStorage
from tests.support.memory.storage import MemoryStorage

Keys = Sequence[tuple[int | None, bytes]]


def _written(rows: Sequence[Keys], padding: int = 0) -> tuple[MemoryStorage, list[Section]]:
    """Writes a section of each list of keys, to each of which its place is added."""
    folder, written = MemoryStorage(), list[Section]()
    for number, keys in enumerate(rows):
        parts = pa.array([part for part, _ in keys], pa.int64())
        data = pa.array([key for _, key in keys], pa.binary())
        places = pa.array([number << 32 | at for at in range(len(keys))], pa.int64())
        filler = pa.array([b"x" * padding] * len(keys), pa.binary())
        names = ["row", "filler", "0", "1", "2"]
        table = pa.table([places, filler, parts, sections.comparable(data), places], names=names)
        told = sections.section_data(sections.write_section(folder, f"{number}.arrow", sections.in_order(table, 3), 3))
        written.append(sections.section_from(told))
    return folder, written


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.none() | st.integers(-3, 3), st.binary(max_size=3)), min_size=1, max_size=40),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 400_000),
)
def test_ranges_have_all_rows_in_order(rows: list[list[tuple[int | None, bytes]]], most: int) -> None:
    """One after the other they are what sorting all rows at once gives, with nulls last."""
    folder, written = _written(rows, padding=50_000)
    expected = sorted(
        ((part is None, part or 0, key, number << 32 | at), number << 32 | at)
        for number, keys in enumerate(rows)
        for at, (part, key) in enumerate(keys)
    )
    ranges = sections.ranges_of(written, most)
    read = [row for part in ranges for row in sections.read_range(folder, part, 3)["row"].to_pylist()]
    assert read == [row for _, row in expected]
    assert [part.number for part in ranges] == [*range(len(ranges))]


def test_a_range_is_bounded() -> None:
    """It has about the bytes that it may have, though all rows have one key, and one row is large."""
    folder, written = _written([[(1, b"same" * 2_000)] * 300 for _ in range(4)], padding=20_000)
    for part in (ranges := sections.ranges_of(written, 2 << 20)):
        assert sections.read_range(folder, part, 3).nbytes < 5 << 20
    assert len(ranges) > 8
    assert sum(part.bytes for part in ranges) == sum(sum(section.sizes) for section in written)
    assert all(len(key) == 4_096 for section in written for key in section.firsts["1"].to_pylist())


def test_a_section_is_written_again(tmp_path: Path) -> None:
    """A task that is tried again takes the place of what its first attempt has left."""
    folder, table = LocalStorage(str(tmp_path)), pa.table([pa.array([1, 2]), pa.array([1, 2])], names=["a", "0"])
    for rows in (table, table.slice(1)):
        section = sections.write_section(folder, "sections/0.arrow", rows, 1)
        (part,) = sections.ranges_of([section], 100)
        assert sections.read_range(folder, part, 1)["a"].to_pylist() == rows["a"].to_pylist()
