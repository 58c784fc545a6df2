"""Counting in bounded memory: the same figures as with everything in memory, however little may be held."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.analyze.arrow_counts import ArrowCounts
from compactor.analyze.keyed_counts import KeyedCounts, KeyPart
from compactor.model.log import PartitionLog
from tests.support.memory.storage import MemoryStorage
from tests.support.run_files import Row
from tests.unit.compactor.analyze.test_arrow_counts import NOW, log_of, rows

ORDERS = ["timestamp", "header:v", "field:source.lsn"]


@given(
    partitions=st.lists(rows, min_size=1, max_size=3),
    cuts=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), min_size=1, max_size=3),
    most_bytes=st.sampled_from([0, 60, 200, 1 << 20]),
    order=st.sampled_from(ORDERS),
)
def test_figures_are_those_of_all_in_memory(
    partitions: list[list[Row]], cuts: list[tuple[int, int]], most_bytes: int, order: str
) -> None:
    """Of ranges, last records, winners of topics and split keys; whatever the number of parts that keys are read in."""
    storage = MemoryStorage()
    logs = [log_of(storage, at, records) for at, records in enumerate(partitions)]
    logs.append(log_of(storage, 0, partitions[0], topic="u"))
    folds = [tuple((min(start, log.end), min(start + width, log.end)) for log in logs) for start, width in cuts]
    plain, keyed = ArrowCounts(storage, logs), KeyedCounts(storage, logs, most_bytes=most_bytes)
    bounds = [tuple(sorted({0, log.end, *(offset for fold in folds for offset in fold[at])})) for at, log in _at(logs)]
    assert keyed.range_counts(bounds) == plain.range_counts(bounds)
    assert keyed.survivors(folds, NOW) == plain.survivors(folds, NOW)
    assert keyed.winners(folds, NOW, order) == plain.winners(folds, NOW, order)
    assert keyed.split_keys(folds[0]) == plain.split_keys(folds[0])


def _at(logs: Sequence[PartitionLog]) -> list[tuple[int, PartitionLog]]:
    return list(enumerate(logs))


@pytest.mark.parametrize(("order", "allocated"), [(None, 9_000_000), ("timestamp", 16_000_000)])
def test_no_more_is_held_than_the_latest_of_each_key(order: str | None, allocated: int) -> None:
    """Many records of few keys are read once, and folded as they are read: all of them would take 10 and 31 MB."""
    storage = MemoryStorage()
    log = log_of(storage, 0, [_row(b"%d" % (at % 3), at) for at in range(100_000)])
    fold, read = ((0, log.end),), list[tuple[int, int]]()
    with _own_pool() as pool:
        counts = KeyedCounts(storage, [log], lambda at, of: read.append((at, of)), most_bytes=2_000, waiting=10_000)
        found = counts.winners([fold], NOW, order) if order else counts.survivors([fold], NOW)
    assert found[fold][0].live.records == 3
    assert read == [(1, 1)]
    assert pool.max_memory() < allocated


@contextmanager
def _own_pool() -> Iterator[pa.MemoryPool]:
    """Has Arrow allocate from a pool that counts from 0."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)


def test_keys_that_do_not_fit_are_read_in_parts() -> None:
    """Each partition is told as it is read, once for each part."""
    storage = MemoryStorage()
    logs = [log_of(storage, number, [_row(b"%d" % at, at) for at in range(200)]) for number in (0, 1)]
    read: list[int] = []
    counts = KeyedCounts(storage, logs, lambda at, _: read.append(at), most_bytes=9_000)
    fold = tuple((0, log.end) for log in logs)
    assert [each.live.records for each in counts.survivors([fold], NOW)[fold]] == [200, 200]
    assert read.count(1) > 2
    assert counts.split_keys(fold)["t"].keys == 200


def test_split_keys_of_all_parts_are_counted_together() -> None:
    """Keys, outdated records and deleted keys as sums, and the smallest keys of all."""
    storage = MemoryStorage()
    live = [_row(b"%03d" % at, at) for at in range(200)]
    gone = [{**_row(b"gone %d" % at, at), "value": value} for at in range(100) for value in [b"v" * 9]]
    logs = [
        log_of(storage, 0, [*live, *gone]),
        log_of(storage, 1, [*live, *gone]),
        log_of(storage, 2, [{**each, "value": None, "timestamp": 10_000} for each in gone]),
    ]
    fold = tuple((0, log.end) for log in logs)
    whole = ArrowCounts(storage, logs).split_keys(fold)
    assert whole["t"].deleted == 100
    assert KeyedCounts(storage, logs, most_bytes=9_000).split_keys(fold) == whole


def test_halves_have_the_keys_of_the_whole() -> None:
    """Each key is in one of the two, and a half has halves of its own."""
    one, other = KeyPart(1, 2).halves()
    assert (one, other) == (KeyPart(1, 4), KeyPart(3, 4))


def _row(key: bytes, at: int) -> Row:
    return {"key": key, "value": b"v%d" % at, "headers": [], "timestamp": at}
