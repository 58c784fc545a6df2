"""Which record of a key is later, by timestamp or by a header."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.model.order import columns_of, ordered, values_of
from compactor.model.record import RUN
from tests.support.engine import row


def long(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=RUN)


def of_headers(*headers: Any, offset: int = 0) -> dict[str, Any]:
    pairs = None if headers == (None,) else [{"key": key, "value": value} for key, value in headers]
    return row(0, offset, b"k", b"v", headers=pairs)


@pytest.mark.parametrize(
    ("record", "value"),
    [
        (of_headers(("v", long(7))), 7),
        (of_headers(("v", long(-7))), -7),
        (of_headers(("v", long(2**63 - 1))), 2**63 - 1),
        (of_headers(("v", long(1)), ("v", long(5)), ("w", long(9))), 5),
        (of_headers(("v", long(5)), ("v", b"1234567")), None),
        (of_headers(("v", long(5)), ("v", None)), None),
        (of_headers(("v", b"12345678 ")), None),
        (of_headers(("V", long(5))), None),
        (of_headers(), None),
        (of_headers(None), None),
        (of_headers(("v", long(7)), offset=-1), None),
    ],
)
def test_the_value_is_the_last_long_of_the_header(record: dict[str, Any], value: int | None) -> None:
    """Eight bytes, big-endian (KIP-280); the last of several, as Kafka's lastHeader; anything else is no value."""
    other = of_headers(("v", long(3)))
    rows = batch(other, record, other).select([*columns_of("header:v")])
    assert values_of(rows, "header:v").to_pylist() == [3, value, 3]
    assert values_of(rows.slice(1, 1), "header:v").to_pylist() == [value]


def test_the_value_of_a_timestamp_is_the_timestamp() -> None:
    """A tombstone that a generation begins with (below offset 0) is of no source record, and has none."""
    rows = batch(*(row(0, offset, b"k", None, timestamp=time) for offset, time in ((-1, 9), (0, -1), (5, 4))))
    assert values_of(rows.select([*columns_of("timestamp")]), "timestamp").to_pylist() == [None, -1, 4]


def late(*records: tuple[int, int | None, int | None]) -> list[int]:
    """Returns the offsets that are late of records (key, value, value of what is kept), by offset from 0."""
    keys, values, kept = (list(column) for column in zip(*records, strict=True))
    hashes = [np.array(keys, np.uint64), np.zeros(len(keys), np.uint64)]
    offsets = np.arange(len(keys))
    mask = ordered(hashes, offsets, pa.array(values, pa.int64()), pa.array(kept, pa.int64())).late
    return np.flatnonzero(mask).tolist()


@pytest.mark.parametrize(
    ("records", "lost"),
    [
        ([(1, 5, None), (1, 4, None)], [1]),
        ([(1, 5, None), (1, 5, None)], []),
        ([(1, 5, None), (1, 7, None), (1, 6, None), (1, 7, None)], [2]),
        ([(1, 5, None), (1, None, None)], [1]),
        ([(1, None, None), (1, None, None), (1, -9, None)], []),
        ([(1, 5, 6), (1, 6, 6), (1, 5, 6)], [0, 2]),
        ([(1, None, 6)], [0]),
        ([(1, None, None), (2, 3, None), (1, 1, None), (2, 2, None)], [3]),
        ([(1, -(2**63), None), (1, 2**63 - 1, None), (1, -(2**63), None)], [2]),
    ],
)
def test_a_record_is_late_if_a_lower_offset_has_a_higher_value(
    records: list[tuple[int, int | None, int | None]], lost: list[int]
) -> None:
    """Of equal values the higher offset wins; no value is lower than each; what is kept counts as a lower offset."""
    assert late(*records) == lost


@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(-2, 2)), min_size=1), st.data())
def test_what_is_left_never_falls(records: list[tuple[int, int | None]], data: st.DataObject) -> None:
    """By a plain dict: for each key, the values of what is left never fall as offsets rise."""
    floors = {key: data.draw(st.none() | st.integers(-2, 2)) for key in range(4)}
    highest = {key: () if floor is None else (floor,) for key, floor in floors.items()}
    lost = []
    for offset, (key, value) in enumerate(records):
        rank = () if value is None else (value,)
        if rank < highest[key]:
            lost.append(offset)
        highest[key] = max(highest[key], rank)
    assert late(*((key, value, floors[key]) for key, value in records)) == lost


def test_texts_are_values_too() -> None:
    """Bytes are compared as bytes."""
    values = pa.array([b"b", b"a", None, b"bb"], pa.binary())
    hashes = [np.zeros(4, np.uint64)]
    told = ordered(hashes, np.arange(4), values, pa.nulls(4, pa.binary()))
    assert told.late.tolist() == [False, True, True, False]


def with_bare(*records: tuple[int, int | str | None], follows_late: bool = False) -> tuple[list[int], list[Any]]:
    """Returns which of records (key, value; "-" for a bare tombstone) are late, and what bare ones take."""
    hashes = [np.array([key for key, _ in records], np.uint64), np.zeros(len(records), np.uint64)]
    bare = np.array([value == "-" for _, value in records])
    values = pa.array([None if value == "-" else value for _, value in records], pa.int64())
    kept = pa.array([{8: 50}.get(key) for key, _ in records], pa.int64())
    told = ordered(hashes, np.arange(len(records)), values, kept, bare, follows_late=follows_late)
    return np.flatnonzero(told.late).tolist(), [told.taken[row].as_py() for row in np.flatnonzero(bare)]


@pytest.mark.parametrize(
    ("records", "lost", "taken"),
    [
        ([(1, 5), (1, "-")], [], [5]),
        ([(1, 5), (1, "-"), (1, 4), (1, "-"), (1, 5)], [2, 3], [5, None]),
        ([(1, 5), (1, 4), (2, 1), (1, "-"), (1, "-")], [1], [5, 5]),
        ([(1, 5), (1, 4), (1, "-"), (1, "-"), (2, "-")], [1, 2, 3], [None, None, None]),
        ([(1, 5), (1, None), (1, "-")], [1, 2], [None]),
        ([(1, None), (1, "-"), (1, None)], [], [None]),
        ([(8, "-"), (8, 49), (8, "-"), (8, 51)], [1, 2], [50, None]),
        ([(8, 49), (2, "-"), (8, "-")], [0], [None, 50]),
    ],
)
def test_a_bare_tombstone_takes_what_it_deletes_and_is_late_with_the_record_right_before_it(
    records: list[tuple[int, int | str | None]], lost: list[int], taken: list[int | None]
) -> None:
    """It is of that record only if it has its key; the highest value so far otherwise, and it is not late."""
    assert with_bare(*records) == (lost, taken)


def test_the_first_bare_tombstone_follows_the_record_before_the_portion() -> None:
    """And those right after it; the next record of its key does not."""
    records: list[tuple[int, int | str | None]] = [(8, "-"), (8, "-"), (8, 50), (8, "-")]
    assert with_bare(*records, follows_late=True) == ([0, 1], [None, None, 50])
    assert with_bare(*records) == ([], [50, 50, 50])
    assert with_bare((8, 50), (8, "-"), follows_late=False) == ([], [50])
