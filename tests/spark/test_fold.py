from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise

import pytest
from pyspark.sql import DataFrame, SparkSession

from compactor.analyze import spark_counts
from compactor.clean import compaction
from compactor.clean.rewriter import Rewriter
from compactor.errors import StorageError
from compactor.fold import on_spark
from compactor.model.state import CatalogState, apply
from compactor.runs import reader
from compactor.runs.scan import SCAN, between, whole
from compactor.settings import CompactionPolicy
from compactor.storage.local import LocalStorage
from tests.support.brokerless import without_tasks
from tests.support.dict_model import DictModel
from tests.support.engine import (
    Row,
    ingested,
    log_of,
    new_state,
    published,
    record_dicts,
    row,
    target,
    with_range_reports,
)

KEYS = [b"", b"\x00", b"\x00\x00", b"a", b"ab", b"abc", b"\xff", b"\xff\xfe", b"a" * 300]
FURTHER = ((1, 1), (1, 2), (3, 0), (3, 2), (40, 0), (40, 1))
"""Partitions and seeds; each of both is in a case that is tried each time."""


def collected(frame: DataFrame) -> list[Row]:
    rows = frame.orderBy("topic", "partition", "offset").toArrow().to_pylist()
    return record_dicts([]) or [{name: one[name] for name in row(0, 0, b"", b"")} for one in rows]


def random_rows(seed: int, partitions: int, lo: int, hi: int) -> list[Row]:
    rng = random.Random(seed)
    offsets = [(p, o) for o in range(lo, hi) for p in range(partitions) if rng.random() < 0.8]
    return [
        row(p, o, rng.choice([*KEYS, None]), rng.choice([None, b"", b"v%d" % o]), headers=[{"key": "h", "value": None}])
        for p, o in offsets
    ]


def with_batches(storage: LocalStorage, state: CatalogState, batches: Sequence[list[Row]], step: int) -> CatalogState:
    for number, rows in enumerate(batches):
        ends = dict.fromkeys(range(len(state.logs)), (number * step, (number + 1) * step))
        state = ingested(storage, state, [with_range_reports(rows, ends)], now_ms=number)
    return state


@pytest.mark.parametrize(
    ("partitions", "seed"),
    [
        *zip((1, 3, 40), range(3), strict=True),
        *(pytest.param(partitions, seed, marks=pytest.mark.long) for partitions, seed in FURTHER),
    ],
)
def test_survivors_equal_the_model(spark: SparkSession, storage: LocalStorage, seed: int, partitions: int) -> None:
    """Over any offset range of any partitions, what survives is what a dict keeps: the last record of every key."""
    batches = [random_rows(100 * seed + n, partitions, n * 20, n * 20 + 20) for n in range(3)]
    state = with_batches(storage, new_state(dict.fromkeys(range(partitions), 0)), batches, 20)
    start, end = 7 * seed, 60 - 5 * seed
    ranges = [between(log, start, end) for log in state.logs]
    model = DictModel(one for rows in batches for one in rows)
    assert collected(on_spark.survivors(on_spark.scan(spark, storage, ranges))) == model.survivors(start, end)


def test_a_range_without_files_is_an_empty_frame(spark: SparkSession, storage: LocalStorage) -> None:
    """Nothing to read needs no file: the frame is empty and has its columns."""
    frame = on_spark.scan(spark, storage, [whole(log_of(new_state({0: 0})))])
    assert frame.columns == SCAN.names
    assert on_spark.survivors(frame).count() == 0


def test_the_fold_is_hashed_and_never_sorts_for_its_groups(spark: SparkSession, storage: LocalStorage) -> None:
    """Grouping is a hash aggregate over fixed-width offsets: a sort by key would take three times as long."""
    state = ingested(storage, new_state({0: 0}), [with_range_reports([row(0, 0, b"k", b"v")], {0: (0, 1)})])
    frame = on_spark.survivors(on_spark.scan(spark, storage, [whole(log_of(state))]))
    plan = frame._jdf.queryExecution().sparkPlan().toString()
    assert "HashAggregate" in plan
    assert "SortAggregate" not in plan
    assert "ObjectHashAggregate" not in plan


@pytest.mark.parametrize("threshold", ["10485760", str(1 << 60)], ids=["tiny data", "small by any estimate"])
@pytest.mark.parametrize("adaptive", ["false", "true"])
def test_no_plan_broadcasts_what_grows_with_keys(
    spark: SparkSession, storage: LocalStorage, threshold: str, adaptive: str
) -> None:
    """Spark estimates by the bytes of files, and a broadcast has to fit into memory: a sort spills."""
    state = ingested(storage, new_state({0: 0}), [with_range_reports([row(0, 0, b"k", b"v")], {0: (0, 1)})])
    log = log_of(state)
    settings = {"spark.sql.autoBroadcastJoinThreshold": threshold, "spark.sql.adaptive.enabled": adaptive}
    with configured(spark, settings):
        folded = on_spark.latest(on_spark.scan(spark, storage, [whole(log)]))
        counted = spark_counts.last(spark_counts.sized(spark, storage, [whole(log)]), [((0, 1),)])
        for frame in (folded, counted):
            assert len(frame.collect()) == 1
            plan = frame._jdf.queryExecution().executedPlan().toString()
            assert "SortMergeJoin" in plan
            assert "Broadcast" not in plan


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """A session's settings for as long as the block runs."""
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is not None:
                spark.conf.set(name, old)


def test_a_missing_file_is_never_an_empty_one(spark: SparkSession, storage: LocalStorage) -> None:
    """A run whose file is gone is a StorageError that can be told from a defect, not fewer records."""
    state = ingested(storage, new_state({0: 0}), [with_range_reports([row(0, 0, b"k", b"v")], {0: (0, 1)})])
    log = log_of(state)
    storage.delete(log.runs[0].files[0].path)
    with pytest.raises(StorageError):
        compaction.clean(
            Rewriter(spark, storage), [log_of(published(state, {0: 1}))], target(storage), CompactionPolicy(), now_ms=0
        )


@pytest.mark.parametrize(
    ("seed", "queries", "in_tasks"), [(0, 8, False), (1, 8, False), (2, 0, False), (3, 8, True), (4, 8, True)]
)
def test_full_folds_equal_the_model(
    spark: SparkSession, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, seed: int, queries: int, in_tasks: bool
) -> None:
    """Fold after fold, at ends inside runs and of some partitions only, each log keeps what a dict keeps."""
    monkeypatch.setattr(on_spark, "_QUERIES", queries)
    folds = None if in_tasks else without_tasks(spark, storage)
    rng = random.Random(seed)
    policy = CompactionPolicy(delete_retention_ms=10**9)
    batches = [random_rows(10 * seed + n, 3, n * 20, n * 20 + 20) for n in range(3)]
    state = new_state({0: 0, 1: 0, 2: 0})
    model: DictModel = DictModel()
    for number, rows in enumerate(batches):
        read = with_range_reports(rows, dict.fromkeys(range(3), (number * 20, number * 20 + 20)))
        state = ingested(storage, state, [read], number)
        model.add(rows)
        chosen = rng.sample(range(3), 2)
        ends = {p: rng.randint(max(log_of(state, p).published, 1), log_of(state, p).end) for p in chosen}
        state = published(state, ends)
        logs = [log_of(state, p) for p in chosen]
        state = apply(
            state,
            compaction.clean(
                Rewriter(spark, storage, folds=folds), logs, target(storage, f"1-c{number}"), policy, now_ms=7
            ),
        )
        for p in range(3):
            log = log_of(state, p)
            connector = list(reader.read(storage, whole(log)))
            latest = [one for one in model.survivors(0, log.clean_end) if one["partition"] == p]
            above = [one for one in model.rows if one["partition"] == p and log.clean_end <= one["offset"] < log.end]
            assert record_dicts(connector) == latest + above
            assert log.base is None or log.base.records == len(latest)
            assert log.base is None or log.base.horizons == log.base.tombstones


def test_a_tombstone_is_stamped_by_one_fold_and_dropped_by_a_later(spark: SparkSession, storage: LocalStorage) -> None:
    """KIP-534: the first full fold sets the horizon; one at or after it drops the tombstone, none before."""
    rows = [row(0, 0, b"a", b"1"), row(0, 1, b"a", None, timestamp=1), row(0, 2, b"b", b"2")]
    state = published(ingested(storage, new_state({0: 0}), [with_range_reports(rows, {0: (0, 3)})], 50), {0: 3})
    policy = CompactionPolicy(delete_retention_ms=100)
    seen = []
    for now in (1000, 1099, 1100):
        state = apply(
            state, compaction.clean(Rewriter(spark, storage), [log_of(state)], target(storage, f"1-{now}"), policy, now)
        )
        base = log_of(state).base
        assert base is not None
        seen.append((base.records, base.tombstones, base.horizons, base.next_horizon_ms, base.arrived_ms))
    assert seen == [(2, 1, 1, 1100, 50), (2, 1, 1, 1100, 50), (1, 0, 0, None, 50)]


def test_a_fold_that_leaves_nothing_is_an_empty_base(spark: SparkSession, storage: LocalStorage) -> None:
    """Rejected records are sent by then and not kept; a base run may have no file."""
    rows = [row(0, 0, None, b"x")]
    state = published(ingested(storage, new_state({0: 0}), [with_range_reports(rows, {0: (0, 4)})]), {0: 4})
    (done,) = compaction.clean(
        Rewriter(spark, storage), [log_of(state)], target(storage, "1-c"), CompactionPolicy(), now_ms=0
    )
    assert (done.end, done.base.start, done.base.end, done.base.files, done.base.records) == (4, 0, 4, (), 0)


@pytest.mark.parametrize("in_tasks", [False, True])
def test_a_big_log_is_folded_into_rising_files(spark: SparkSession, storage: LocalStorage, in_tasks: bool) -> None:
    """Files are rolled at segment.bytes, and one after the other they hold rising offsets."""
    rewriter = Rewriter(spark, storage, folds=None if in_tasks else without_tasks(spark, storage))
    rng = random.Random(1)
    rows = [row(0, offset, b"%d" % offset, rng.randbytes(20_000)) for offset in range(3000)]
    state = published(ingested(storage, new_state({0: 0}), [with_range_reports(rows, {0: (0, 3000)})]), {0: 3000})
    policy = CompactionPolicy(segment_bytes=4 << 20)
    (done,) = compaction.clean(rewriter, [log_of(state)], target(storage, "1-c"), policy, now_ms=0)
    files = done.base.files
    assert len(files) > 2
    assert all(one.last < other.first for one, other in pairwise(files))
    assert sum(file.records for file in files) == 3000
