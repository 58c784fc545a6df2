from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession

from compactor.errors import StorageError
from compactor.fold import in_memory, on_spark
from compactor.runs.scan import SCAN, OffsetRange, between
from compactor.storage.local import LocalStorage
from tests.support.engine import Row, ingested, log_of, new_state, row, with_range_reports

KEYS = [b"", b"\x00", b"a", b"ab", b"\xff", b"a" * 300, None]


def rows_of(seed: int, partitions: int, lo: int, hi: int) -> list[Row]:
    chance = random.Random(seed)
    return [
        row(
            partition,
            offset,
            chance.choice(KEYS),
            chance.choice([None, b"", b"v%d" % offset]),
            headers=[{"key": "h", "value": b"1"}] if chance.random() < 0.2 else [],
            rejected="undecodable" if chance.random() < 0.1 else None,
        )
        for offset in range(lo, hi)
        for partition in range(partitions)
        if chance.random() < 0.8
    ]


def files_of(storage: LocalStorage, ranges: Sequence[OffsetRange]) -> in_memory.Files:
    found = in_memory.load(storage, ranges)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
@pytest.mark.parametrize("partitions", [1, 40])
def test_it_leaves_what_the_fold_on_spark_leaves(
    spark: SparkSession, storage: LocalStorage, seed: int, partitions: int
) -> None:
    """Two folds, one meaning: nobody can tell from the output which process has folded it."""
    state = new_state(dict.fromkeys(range(partitions), 0))
    for number in range(3):
        lo, hi = 20 * number, 20 * number + 20
        ends = dict.fromkeys(range(partitions), (lo, hi))
        rows = rows_of(100 * seed + number, partitions, lo, hi)
        state = ingested(storage, state, [with_range_reports(rows, ends)], now_ms=number)
    ranges = [between(log, 7 * seed, 60 - 5 * seed) for log in state.logs]
    order = [("log", "ascending"), ("offset", "ascending")]
    wanted = on_spark.latest(on_spark.scan(spark, storage, ranges)).select(*SCAN.names).toArrow().sort_by(order)
    found = in_memory.latest(files_of(storage, ranges), ranges)
    assert found.num_rows > 0
    assert found.select(SCAN.names).to_pylist() == wanted.to_pylist()


def test_nothing_to_fold_is_an_empty_table(storage: LocalStorage) -> None:
    """A plan may only commit positions."""
    ranges = [between(log_of(new_state({0: 0})), 0, 0)]
    found = in_memory.latest(files_of(storage, ranges), ranges)
    assert found.schema.names == SCAN.names
    assert found.num_rows == 0


@pytest.mark.parametrize("place", [0.3, 0.999])
def test_a_file_that_is_not_what_was_written_is_not_decoded_here(storage: LocalStorage, place: float) -> None:
    """A damaged page can end the process that reads it: Spark's, then, which is another one."""
    rows = [row(0, offset, b"k%d" % offset, b"v" * 100) for offset in range(200)]
    state = ingested(storage, new_state({0: 0}), [with_range_reports(rows, {0: (0, 200)})])
    log = log_of(state)
    ranges = [between(log, 0, 200)]
    assert in_memory.load(storage, ranges) is not None
    path = log.runs[0].files[0].path
    data = bytearray(storage.read(path))
    data[int(len(data) * place)] ^= 0xFF
    storage.delete(path)
    storage.create(path, bytes(data))
    assert in_memory.load(storage, ranges) is None


def test_a_missing_file_is_an_error(storage: LocalStorage) -> None:
    """It is never an empty one."""
    state = ingested(storage, new_state({0: 0}), [with_range_reports([row(0, 0, b"k", b"v")], {0: (0, 1)})])
    storage.delete(log_of(state).runs[0].files[0].path)
    with pytest.raises(StorageError):
        in_memory.load(storage, [between(log_of(state), 0, 1)])
