from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from compactor import clean, reading, record, rewrite
from compactor.actions import AddPartition, AddTopic, CloseTopic, State, apply
from compactor.analysis import Amount, Effect, Example, Outcome, SplitKeys, total
from compactor.analyze import analyze
from compactor.dirt import across_bounds, dirt
from compactor.due import verdict
from compactor.local import LocalStorage
from compactor.log import PartitionLog, publish
from compactor.policy import FOREVER, CompactionPolicy
from compactor.recount import restated
from compactor.retention import retained
from compactor.settings import EngineSettings
from compactor.tombstones import Fate, fate
from tests.support.engine import Row, ingested, log_of, new_state, published, read_all, row, target

KEYS = [b"", b"\x00", b"a", b"ab", b"\xff", b"k" * 50]
HEADERS = [[], [{"key": "h", "value": None}], [{"key": "größe", "value": b"12"}, {"key": "", "value": b""}]]
STEP = 20
PARTITIONS = range(3)


def history(spark: SparkSession, storage: LocalStorage, chance: random.Random) -> State:
    """Three batches, with folds of some partitions between them: base runs, horizons, runs across published."""
    state = new_state(dict.fromkeys(PARTITIONS, 0))
    for number in range(3):
        lo, now_ms = number * STEP, 1_000 * (number + 1)
        rows = [
            _record(chance, p, o, now_ms) for p in PARTITIONS for o in range(lo, lo + STEP) if chance.random() < 0.8
        ]
        state = ingested(spark, storage, state, [read_all(rows, dict.fromkeys(PARTITIONS, (lo, lo + STEP)))], now_ms)
        ends = {p: chance.randint(max(log_of(state, p).published, 1), lo + STEP) for p in chance.sample(PARTITIONS, 2)}
        state = published(state, ends)
        if number < 2:
            policy = CompactionPolicy(delete_retention_ms=chance.choice([0, 700, 5_000]))
            logs = [log_of(state, p) for p in ends]
            folded = clean.full_fold(spark, storage, logs, target(storage, f"1-c{number}"), policy, now_ms + 100)
            state = apply(state, folded)
    return state


def _record(chance: random.Random, partition: int, offset: int, now_ms: int) -> Row:
    key = chance.choice([*KEYS, None])
    value = chance.choice([None, None, b"", b"v%d" % offset])
    timestamp = chance.choice([-1, 0, now_ms - 900, now_ms - 10, now_ms, now_ms + 10_000])
    return row(partition, offset, key, value, timestamp=timestamp, headers=chance.choice(HEADERS))


def settings_of(chance: random.Random) -> EngineSettings:
    """Lags, horizons and retention as they come."""
    policy = CompactionPolicy(
        cleanup_policy=chance.choice([("compact",), ("compact",), ("compact", "delete")]),
        min_cleanable_dirty_ratio=chance.choice([0.1, 0.5, 0.9]),
        min_compaction_lag_ms=chance.choice([0, 300, 1_500, 10**6]),
        max_compaction_lag_ms=chance.choice([FOREVER, 2_000]),
        delete_retention_ms=chance.choice([0, 500, FOREVER]),
        retention_ms=chance.choice([-1, 1_500]),
        retention_bytes=chance.choice([-1, 250]),
    )
    return EngineSettings(connector="c", policy=policy, bootstrap_fold=chance.random() < 0.5)


def rows_of(storage: LocalStorage, log: PartitionLog, start: int, end: int) -> list[Row]:
    return [one for batch in reading.read(storage, reading.between(log, start, end)) for one in batch.to_pylist()]


def amount(rows: Sequence[Row]) -> Amount:
    return Amount(len(rows), record.measure(pa.Table.from_pylist(list(rows), schema=record.RUN)))


def fold_end(storage: LocalStorage, log: PartitionLog, settings: EngineSettings, now_ms: int) -> int:
    """The first record inside the lag, found record by record: it is not older than its run's arrival."""
    newest_ms = now_ms - settings.policy.min_compaction_lag_ms
    arrived = [(run.start, run.end, run.arrived_ms) for run in log.runs]
    for one in rows_of(storage, log, log.folded_end, log.end):
        came_ms = next(at for start, end, at in arrived if start <= one["offset"] < end)
        if settings.policy.min_compaction_lag_ms and min(one["timestamp"], came_ms) > newest_ms:
            return one["offset"]
    return log.end


def really(
    spark: SparkSession, storage: LocalStorage, log: PartitionLog, settings: EngineSettings, now_ms: int, name: str
) -> tuple[Effect, PartitionLog, PartitionLog]:
    """Publishing, retention and full fold, done: what went and stayed, the log before the fold and after it."""
    sent = publish(log, fold_end(storage, log, settings, now_ms), None)
    found = rewrite.retain(sent, retained(sent, settings.policy, now_ms).start)
    below = rows_of(storage, found, found.start, found.published)
    (done,) = clean.full_fold(spark, storage, [found], target(storage, name), settings.policy, now_ms)
    folded = apply_one(found, done)
    kept = rows_of(storage, folded, folded.start, folded.clean_end)
    dead = [one for one in kept if one["value"] is None]
    latest = {one["key"]: one for one in below if one["rejected"] is None}
    expired = [o for o in latest.values() if o["value"] is None and fate(o["delete_horizon"], now_ms) is Fate.DROP]
    above = rows_of(storage, log, found.published, log.end)
    effect = Effect(
        before=amount(rows_of(storage, log, log.start, log.end)),
        retention=amount(rows_of(storage, log, log.start, found.start)),
        superseded=amount([one for one in below if one["rejected"] is None and latest[one["key"]] is not one]),
        expired=amount(expired),
        rejected=amount([one for one in below if one["rejected"] is not None]),
        after=amount([*kept, *above]),
        live=amount([one for one in kept if one["value"] is not None]),
        tombstones=amount(dead),
        held=amount(above),
        waiting=amount([one for one in above if one["rejected"] is not None]),
        stamped=sum(one["value"] is None and one["delete_horizon"] is None for one in latest.values()),
        earliest_horizon_ms=min((one["delete_horizon"] for one in dead), default=None),
        latest_horizon_ms=max((one["delete_horizon"] for one in dead), default=None),
    )
    assert (done.base.records, done.base.bytes) == tuple_of(amount(kept))
    assert (done.base.tombstones, done.base.next_horizon_ms) == (len(dead), effect.earliest_horizon_ms)
    return effect, found, folded


def tuple_of(one: Amount) -> tuple[int, int]:
    return one.records, one.bytes


def apply_one(log: PartitionLog, action: Any) -> PartitionLog:
    return apply(State(logs=(log,)), [action]).logs[0]


@pytest.mark.parametrize("seed", range(6))
def test_what_is_told_is_what_a_full_fold_then_does(spark: SparkSession, storage: LocalStorage, seed: int) -> None:
    """Records, bytes, tombstones and horizons of a real fold at the same time are those that were told, to the byte."""
    chance = random.Random(seed)
    state = history(spark, storage, chance)
    now_ms = chance.choice([3_050, 3_900, 9_000])
    settings = [settings_of(chance), settings_of(chance)]
    told = analyze(spark, storage, state, settings, now_ms)
    for case, one in enumerate(settings):
        for partition in PARTITIONS:
            log = log_of(state, partition)
            name = f"1-f{case}{partition}"
            effect, found, _ = really(spark, storage, log, one, now_ms, name)
            outcome = told.partitions[partition].outcomes[case]
            assert outcome.effect == effect
            assert (outcome.start, outcome.fold_end) == (found.start, found.published)
            assert_verdict(storage, outcome, found, one, now_ms)


def assert_verdict(
    storage: LocalStorage, outcome: Outcome, log: PartitionLog, settings: EngineSettings, now_ms: int
) -> None:
    """As the cleaner decides it, once it has counted the runs across published."""
    for run in across_bounds(log):
        log = apply_one(log, restated(storage, log, run))
    found = verdict(log, settings.policy, settings.fold, now_ms)
    assert (outcome.dirty_ratio, outcome.due, outcome.why) == (dirt(log).ratio, found.due, found.text)
