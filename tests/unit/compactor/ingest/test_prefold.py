"""Folding while reading: what is left out is superseded by what stays, and counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.ingest.prefold import Prefold
from compactor.model.record import RUN, TopicPartition

Rec = tuple[int, bytes, bool]
"""Partition, key, whether it is rejected."""

RECORDS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([b"a", b"b", b"c", b""]), st.booleans()), max_size=40)


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=RUN)


def numbered(found: list[Rec]) -> list[dict[str, Any]]:
    """Each as a row with an offset of its own, its value the offset as text."""
    return [
        {
            "topic": "t",
            "partition": partition,
            "offset": offset,
            "key": key,
            "value": b"%d" % offset * 20,
            "headers": [],
            "rejected": "why" if rejected else None,
        }
        for offset, (partition, key, rejected) in enumerate(found)
    ]


def latest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each partition and key the last row, and every rejected one."""
    last = {(row["partition"], row["key"]): row["offset"] for row in rows if row["rejected"] is None}
    return [row for row in rows if row["rejected"] or last[row["partition"], row["key"]] == row["offset"]]


def offsets(batches: list[pa.RecordBatch]) -> list[int]:
    return [offset for each in batches for offset in each["offset"].to_pylist()]


@given(RECORDS, st.integers(1, 7))
def test_all_that_is_held_at_once_is_folded(found: list[Rec], step: int) -> None:
    """Whatever the batches: one record of each partition and key stays, byte for byte; the others are counted."""
    rows = numbered(found)
    prefold = Prefold()
    given_in = (batch(rows[first : first + step]) for first in range(0, len(rows), step))
    kept = [row for one in prefold.latest(given_in) if one is not None for row in one.to_pylist()]
    wanted = latest(rows)
    assert [(row["offset"], row["value"]) for row in kept] == [(row["offset"], row["value"]) for row in wanted]
    gone = Counter(row["partition"] for row in rows) - Counter(row["partition"] for row in wanted)
    assert +prefold.superseded == {TopicPartition("t", partition): count for partition, count in gone.items()}


@given(RECORDS, st.integers(1, 7), st.integers(0, 10_000), st.lists(st.sampled_from([1, 2_000]), min_size=40))
def test_what_does_not_fit_goes_on_and_nothing_is_lost(
    found: list[Rec], step: int, held: int, value_sizes: list[int]
) -> None:
    """With little room some that are superseded stay, never the other way round; by partition offsets rise."""
    rows = [{**row, "value": b"v" * size} for row, size in zip(numbered(found), value_sizes, strict=False)]
    prefold = Prefold(held)
    given_in = (batch(rows[first : first + step]) for first in range(0, len(rows), step))
    kept = offsets([one for one in prefold.latest(given_in) if one is not None])
    assert {row["offset"] for row in latest(rows)} <= set(kept) <= set(range(len(rows)))
    assert len(kept) + sum(prefold.superseded.values()) == len(rows)
    assert kept == sorted(kept)


@pytest.mark.parametrize("held", [0, 1 << 20])
def test_nothing_is_folded_across_a_break(held: int) -> None:
    """What comes behind a break supersedes nothing before it; the break stays where it was."""
    rows = numbered([(0, b"a", False), (0, b"a", False), (0, b"a", False)])
    prefold = Prefold(held)
    given_in = iter([batch(rows[:2]), None, batch(rows[2:])])
    found = [one if one is None else one["offset"].to_pylist() for one in prefold.latest(given_in)]
    assert found == [[1], None, [2]]
    assert prefold.superseded == {TopicPartition("t", 0): 1}


def test_what_comes_out_is_cut_to_row_groups() -> None:
    """Many records leave in batches of the size of a row group."""
    rows = numbered([(0, b"%d" % number, False) for number in range(100)])
    found = [one for one in Prefold(group_bytes=1_000).latest([batch(rows)]) if one is not None]
    assert offsets(found) == list(range(100))
    assert len(found) > 5
    assert max(one.nbytes for one in found) < 1_500


def of_one_size(keys: list[bytes]) -> list[pa.RecordBatch]:
    """Makes a batch for each record of one partition, with `keys` of one length."""
    return [batch([{**row, "value": b"v"}]) for row in numbered([(0, key, False) for key in keys])]


def left_of(keys: list[bytes], held: int) -> list[int]:
    """Returns the offsets of what is left of records with `keys` if `held` of them are held, and one more is folded."""
    batches = of_one_size(keys)
    return offsets([one for one in Prefold(held * batches[0].nbytes).latest(batches) if one is not None])


def test_records_are_passed_on_after_a_fold_that_left_out_none() -> None:
    """Of 11 keys that differ none is left out: behind them twice as many are passed on each time, up to 80."""
    differ = [b"%d" % number for number in range(11)]
    keys = [key for passed in (10, 20, 40, 80, 80, 80) for key in [*differ, *[b"a"] * passed]]
    assert left_of([b"%5s" % key for key in keys], held=10) == list(range(len(keys)))


def test_nothing_is_held_while_records_are_passed_on() -> None:
    """Also if a fold has left out one record of many, and with it most of the bytes."""
    rows = numbered([*((0, b"%d" % number, False) for number in range(30)), (0, b"big", False), (0, b"big", False)])
    rows[30]["value"], later = b"v" * 20_000, numbered([(0, b"later", False)] * 40)[33:]
    given_in = [batch(rows), *(batch([row]) for row in later)]
    kept = offsets([one for one in Prefold(10_000).latest(given_in) if one is not None])
    assert kept == [*range(30), 31, *range(33, 40)]


def test_a_fold_is_tried_again_and_goes_on_if_it_leaves_out_one_of_ten() -> None:
    """Behind what was passed on, of records with one key the last of all that are held together is left."""
    keys = [*(b"%5d" % number for number in range(11)), *[b"passd"] * 10, *[b"later"] * 50]
    assert left_of(keys, held=10) == [*range(21), 70]
