"""The acceptance scenarios about what a fold keeps, sends and drops, on Spark."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from compactor.settings import CompactionPolicy
from tests.conformance.reader import Follower, Rows
from tests.support.brokerless import BrokerlessConnector
from tests.support.dict_model import DictModel
from tests.support.engine import Row, row
from tests.support.kafka import wait_until
from tests.support.logs import DAY
from tests.support.oracle import fold_methods
from tests.support.oracle.steps import FoldMethod

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KeptOf: TypeAlias = Callable[..., BrokerlessConnector]
FollowerOf: TypeAlias = Callable[[BrokerlessConnector], Follower]


@pytest.fixture
def kept_of(spark: SparkSession, tmp_path: Path) -> KeptOf:
    """A connector's kept side under a policy of the test's own."""
    return lambda name="kept", **settings: BrokerlessConnector(spark, tmp_path / name, **settings)


@pytest.fixture
def follower_of(tmp_path: Path) -> FollowerOf:
    """Who reads the changelog of partition 0."""
    return lambda kept: Follower(kept, tmp_path)


def rounds(keys: int, count: int) -> list[Row]:
    """Each key once in each of `count` rounds."""
    return [row(0, at, b"k%03d" % (at * 7 % keys), b"round %d" % (at // keys)) for at in range(keys * count)]


def oracle(rows: list[Row]) -> Rows:
    """The last record of every key, by offset."""
    return [(one["offset"], one["key"], one["value"]) for one in DictModel(rows).survivors(0, len(rows))]


def test_scenario_01_oracle(kept_of: KeptOf, follower_of: FollowerOf) -> None:
    """Of 100 keys in 3 rounds log and changelog keep the last value and its offset of each, and are smaller."""
    kept, rows = kept_of(), rounds(100, 3)
    for lo in (0, 80, 160, 240):
        kept.ingest(rows[lo : lo + 80])
    reader = follower_of(kept)
    reader.publish()
    before = sum(one.bytes for one in kept.log().runs)
    (done,) = kept.cleaner.clean(0)
    assert kept.rows() == reader.rows == oracle(rows)
    assert (done.records_before, done.records) == (300, 100)
    assert done.bytes * 3 == done.bytes_before == before


def test_scenario_02_order_and_offset(kept_of: KeptOf, follower_of: FollowerOf) -> None:
    """Survivors keep order, partition and offset; over many folds source offsets of the changelog only rise."""
    kept, rows = kept_of(), rounds(30, 5)
    reader = follower_of(kept)
    kept.ingest(rows[:75])
    reader.publish(37)
    kept.ingest(rows[75:])
    reader.publish(101)
    kept.cleaner.clean(0)
    reader.publish()
    offsets = [offset for offset, _, _ in reader.rows]
    assert all(one < other for one, other in pairwise(offsets))
    assert all((key, value) == (rows[at]["key"], rows[at]["value"]) for at, key, value in reader.rows)
    assert {key: at for at, key, _ in reader.rows} == {key: at for at, key, _ in oracle(rows)}
    kept.cleaner.clean(0)
    assert kept.rows() == oracle(rows)


def tombstones(kept: BrokerlessConnector) -> list[int]:
    """Offsets of the tombstones that the log still has."""
    return [offset for offset, _, value in kept.rows() if value is None]


def test_scenario_11_tombstone_grace(kept_of: KeptOf) -> None:
    """A tombstone's time counts from the fold that meets it, however old it is: there at grace - 1, gone at grace."""
    kept = kept_of(policy=CompactionPolicy(delete_retention_ms=100))
    kept.ingest([row(0, 0, b"a", b"1"), row(0, 1, b"a", None, timestamp=1)], now_ms=2)
    kept.publish()
    assert [len(kept.cleaner.clean(now)) for now in (1000, 1050)] == [1, 0]
    kept.ingest([row(0, 2, b"b", None, timestamp=1)], now_ms=2)
    kept.publish()
    assert len(kept.cleaner.clean(1099)) == 1
    assert tombstones(kept) == [1, 2]
    assert len(kept.cleaner.clean(1100)) == 1
    assert tombstones(kept) == [2]
    assert [len(kept.cleaner.clean(now)) for now in (1198, 1199)] == [0, 1]
    assert kept.rows() == []


@pytest.mark.parametrize(
    ("ends", "left", "sent"),
    [
        pytest.param((3, 5, 6, 6), [[0, 4], [4], [], []], [0, 4], id="published behind the value, then the tombstone"),
        pytest.param((6, 6, 6), [[4], [], []], [4], id="value and tombstone in one pass (E19)"),
    ],
)
def test_scenario_12_tombstone_two_step(
    kept_of: KeptOf, follower_of: FollowerOf, ends: Sequence[int], left: list[list[int]], sent: list[int]
) -> None:
    """A value and the tombstone over it never go in one fold, not even with no grace: who follows reads the delete."""
    kept = kept_of(policy=CompactionPolicy(delete_retention_ms=0))
    reader = follower_of(kept)
    records = [(b"a", b"1"), (b"k1", b""), (b"k2", b""), (b"k3", b""), (b"a", None), (b"k5", b"")]
    kept.ingest([row(0, offset, key, value) for offset, (key, value) in enumerate(records)])
    found = []
    for end in ends:
        reader.publish(end)
        kept.cleaner.clean(10 + end)
        found.append([offset for offset, key, _ in kept.rows() if key == b"a"])
    assert found == left
    assert [offset for offset, key, _ in reader.rows if key == b"a"] == sent
    assert b"a" not in reader.table


def test_scenario_13_idle_tombstone_expiry(kept_of: KeptOf) -> None:
    """With nothing new, and settings as they are by default, a tombstone still goes a day after it was met."""
    kept = kept_of()
    kept.ingest([row(0, 0, b"a", b"1"), row(0, 1, b"a", None)])
    kept.publish()
    done = [kept.cleaner.round(now).cleaned for now in (5, 6, DAY, DAY + 4)]
    assert (done, tombstones(kept)) == ([1, 0, 0, 0], [1])
    assert kept.cleaner.round(DAY + 5).cleaned == 1
    assert kept.rows() == []
    assert kept.cleaner.round(9 * DAY).cleaned == 0


def test_scenario_14_tombstone_then_value(kept_of: KeptOf, follower_of: FollowerOf) -> None:
    """A value behind a tombstone lives and the tombstone is gone; one of an unknown key is passed on, then expires."""
    kept = kept_of(policy=CompactionPolicy(delete_retention_ms=100))
    reader = follower_of(kept)
    kept.ingest([row(0, 0, b"a", b"1"), row(0, 1, b"a", None), row(0, 2, b"unknown", None), row(0, 3, b"a", b"2")])
    reader.publish()
    kept.cleaner.clean(1000)
    assert kept.rows() == reader.rows == [(2, b"unknown", None), (3, b"a", b"2")]
    assert [len(kept.cleaner.clean(now)) for now in (1099, 1100)] == [0, 1]
    assert kept.rows() == [(3, b"a", b"2")]
    assert reader.table == {b"a": (3, b"2")}


@contextmanager
def room_for_one_key(spark: SparkSession, rows: int = 2) -> Iterator[None]:
    """Spark's hash aggregates give up after one key, and its sorters after so many rows: both go on from disk.

    Each time that a sorter gives up costs 2 MiB of the heap while it is merged with the others.

    The first is a setting of Spark's own tests that a new session takes, as a fold has one; the second each task reads.
    Both are in the environment that tasks share with the driver here.
    """
    aggregates = "spark.sql.TungstenAggregate.testFallbackStartsAt"
    sorters = "spark.shuffle.spill.numElementsForceSpillThreshold"
    assert spark._jvm is not None
    environment = spark._jvm.org.apache.spark.SparkEnv.get().conf()
    environment.set(aggregates, "1,1")
    environment.set(sorters, str(rows))
    try:
        yield
    finally:
        environment.remove(aggregates)
        environment.remove(sorters)


def spilled(spark: SparkSession) -> int:
    """Bytes that tasks have written to disk for want of memory since Spark was started."""
    context: Any = spark.sparkContext
    none = context._gateway.new_array(context._jvm.double, 0)
    stages = context._jsc.sc().statusStore().stageList(None, False, False, none, None)
    return sum(stages.apply(number).diskBytesSpilled() for number in range(stages.size()))


@pytest.mark.long  # spark/test_fold.py folds a big log
def test_scenario_17_memory_cap(spark: SparkSession, kept_of: KeptOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folds that have room for one key and spill the rest keep what one fold keeps that has room for all."""
    small, large, rows = kept_of("small"), kept_of("large"), rounds(200, 3)
    for kept in (small, large):
        kept.uses_tasks = False
        kept.restart()
    passes, before = [], spilled(spark)
    with room_for_one_key(spark):
        small.ingest([row(0, at, b"%d" % (at % 2), b"%d" % at) for at in range(5)])
        for end in (3, 4, 5):
            small.publish({0: end})
            small.cleaner.clean(0)
            passes.append([offset for offset, _, _ in small.rows()])
        assert passes == [[1, 2, 3, 4], [2, 3, 4], [3, 4]]
        wait_until(lambda: spilled(spark) > before, "Spark has reported what was spilled")
    with room_for_one_key(spark, 40):
        small.ingest([{**one, "offset": one["offset"] + 5} for one in rows])
        small.publish()
        small.cleaner.clean(0)
    monkeypatch.undo()
    large.ingest(rows)
    large.publish()
    large.cleaner.clean(0)
    assert large.rows() == oracle(rows)
    assert small.rows()[2:] == [(offset + 5, key, value) for offset, key, value in large.rows()]


def test_scenario_18_holes(kept_of: KeptOf, follower_of: FollowerOf) -> None:
    """Holes cost nothing and hold nothing up: inside a run, wider than 2^31, and behind the last record."""
    kept, end = kept_of(), 3 << 32
    reader = follower_of(kept)
    far = (1 << 32) + 5
    kept.ingest([row(0, 0, b"a", b"1"), row(0, 7_206_178, b"a", b"2"), row(0, far, b"b", b"1")], {0: far + 1})
    kept.ingest([], {0: end})
    reader.publish()
    (done,) = kept.cleaner.clean(0)
    log = kept.log()
    assert (done.end, log.clean_end, log.published, log.end) == (end, end, end, end)
    assert kept.rows() == reader.rows == [(7_206_178, b"a", b"2"), (far, b"b", b"1")]
    kept.ingest([row(0, end, b"b", b"2")])
    kept.publish()
    kept.cleaner.clean(0)
    assert [offset for offset, _, _ in kept.rows()] == [7_206_178, end]


_BLOCK = (
    "4dc968ff0ee35c209572d4777b721587d36fa7b21bdc56b74a3dc0783e7b9518"
    "afbfa20{}a8284bf36e8e4b55b35f427593d849676da0d1{}55d8360fb5f07fea2"
)
SAME_MD5 = (bytes.fromhex(_BLOCK.format("0", "5")), bytes.fromhex(_BLOCK.format("2", "d")))
"""A known pair with one MD5, by which Kafka's cleaner tells keys apart."""


def same_murmur3(spark: SparkSession) -> tuple[bytes, bytes]:
    """Two keys of a log with the hash by which Spark deals them out and finds their group."""
    keys = spark.range(1 << 18).selectExpr("cast(cast(id as string) as binary) as key")
    hashed = keys.selectExpr("key", "hash(0, key, cast(null as bigint)) as hash").groupBy("hash")
    found = hashed.agg({"key": "collect_list"}).toDF("hash", "keys").where("size(keys) > 1").first()
    assert found is not None
    one, other = found["keys"][:2]
    return bytes(one), bytes(other)


@pytest.fixture(params=[FoldMethod.MEMORY, FoldMethod.SPARK], ids=["tasks", "Spark"])
def each_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tasks fold by themselves, then Spark does."""
    with fold_methods.forced(request.param, local=False):
        yield


@pytest.mark.usefixtures("each_way")
def test_scenario_25_collision_and_stats(spark: SparkSession, kept_of: KeptOf) -> None:
    """Keys with one hash stay apart, and a fold's figures are exact: read 5, written 2, rejected 0, next offset 5."""
    pairs = (*SAME_MD5, *same_murmur3(spark))
    assert len(set(pairs)) == 4
    assert hashlib.md5(pairs[0]).digest() == hashlib.md5(pairs[1]).digest()
    apart = kept_of("apart")
    apart.ingest([row(0, at, key, b"v%d" % at) for at, key in enumerate((*pairs, *pairs[::2]))])
    apart.publish()
    apart.cleaner.clean(0)
    assert apart.rows() == [(at, pairs[key], b"v%d" % at) for at, key in ((1, 1), (3, 3), (4, 0), (5, 2))]
    kept = kept_of("counted")
    for lo, hi in ((0, 2), (2, 5)):
        kept.ingest([row(0, at, b"%d" % (at % 2), b"v") for at in range(lo, hi)])
        kept.publish()
        done = kept.cleaner.clean(0)
    base = kept.log().base
    assert base is not None
    assert [(one.records_before, one.records, one.end) for one in done] == [(5, 2, 5)]
    assert (base.rejected, kept.log().clean_end, kept.counters.values()["full_folds"]) == (0, 5, 2)
