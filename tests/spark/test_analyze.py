from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from compactor.analyze import spark_counts
from compactor.analyze.analyze import analyze
from compactor.analyze.arrow_counts import ArrowCounts
from compactor.analyze.effect import Amount, Effect, Example, Outcome, SplitKeys
from compactor.analyze.spark_counts import SparkCounts
from compactor.clean import compaction
from compactor.clean.due import evaluate
from compactor.clean.log_to_clean import LogToClean, straddling_runs
from compactor.clean.recount import recount
from compactor.clean.retention import evaluate_retention
from compactor.clean.rewriter import Rewriter
from compactor.clean.tombstones import Fate, fate
from compactor.fold.memory_budget import NONE
from compactor.model import record
from compactor.model.actions import Append, Clean, Publish
from compactor.model.log import PartitionLog
from compactor.model.log_transitions import publish, retain
from compactor.model.state import CatalogState, apply
from compactor.runs import reader
from compactor.runs.scan import between
from compactor.settings import FOREVER, CompactionPolicy, EngineSettings
from compactor.storage.local import LocalStorage
from tests.support.cli import connector_file, invoke, keep, worker_file
from tests.support.cli import row as at
from tests.support.engine import Row, ingested, log_of, new_state, published, row, target, with_range_reports
from tests.support.run_files import run_rows as kept_rows
from tests.support.run_files import write_run

KEYS = [b"", b"\x00", b"a", b"ab", b"\xff", b"k" * 50]
HEADERS = [
    [],
    [{"key": "h", "value": None}],
    [{"key": "größe", "value": b"12"}, {"key": "", "value": b""}],
    *([{"key": "v", "value": number.to_bytes(8, "big", signed=True)}] for number in (-(1 << 63), -1, 0, 1, 1 << 62)),
    [{"key": "v", "value": b"\x7f" * 8}, {"key": "v", "value": b"\x01"}],
]
STEP = 20
PARTITIONS = range(3)


def history(spark: SparkSession, storage: LocalStorage, chance: random.Random) -> CatalogState:
    """Three batches, with folds of some partitions between them: base runs, horizons, runs across published or cut."""
    state = new_state(dict.fromkeys(PARTITIONS, 0))
    for number in range(3):
        lo, now_ms = number * STEP, 1_000 * (number + 1)
        rows = [
            _record(chance, p, o, now_ms) for p in PARTITIONS for o in range(lo, lo + STEP) if chance.random() < 0.8
        ]
        state = ingested(storage, state, [with_range_reports(rows, dict.fromkeys(PARTITIONS, (lo, lo + STEP)))], now_ms)
        ends = {p: chance.randint(max(log_of(state, p).published, 1), lo + STEP) for p in chance.sample(PARTITIONS, 2)}
        state = published(state, ends)
        if number < 2:
            policy = CompactionPolicy(delete_retention_ms=chance.choice([0, 700, 5_000]))
            if chance.random() < 0.7:
                logs = [log_of(state, p) for p in ends]
                state = apply(state, [recount(storage, log, run) for log in logs for run in straddling_runs(log)])
            logs = [log_of(state, p) for p in ends]
            folded = compaction.clean(
                Rewriter(spark, storage), logs, target(storage, f"1-c{number}"), policy, now_ms + 100
            )
            state = apply(state, folded)
    return state


def _record(chance: random.Random, partition: int, offset: int, now_ms: int) -> Row:
    key = chance.choice([*KEYS, None, b"once-%d" % offset, b"once-%d" % offset])
    encoded = {"key": b" " + key, "key_identity": key} if key is not None and chance.random() < 0.2 else {}
    value = chance.choice([None, None, b"", b"v%d" % offset])
    timestamp = chance.choice([-1, 0, now_ms - 900, now_ms - 10, now_ms, now_ms + 10_000])
    found = row(partition, offset, key, value, timestamp=timestamp, headers=chance.choice(HEADERS))
    return {**found, **encoded, "order_value": chance.choice([None, b"", b"n1", b"n2", b"t\xff"])}


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
    return EngineSettings(connector="c", policy=policy, bootstrap_fold_enable=chance.random() < 0.5)


def rows_of(storage: LocalStorage, log: PartitionLog, start: int, end: int) -> list[Row]:
    return [one for batch in reader.read(storage, between(log, start, end)) for one in batch.to_pylist()]


def compared(one: Row) -> bytes | None:
    """What the key of a record is compared by."""
    return one["key"] if one["key_identity"] is None else one["key_identity"]


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


def before_fold(storage: LocalStorage, log: PartitionLog, settings: EngineSettings, now_ms: int) -> PartitionLog:
    """`log` once all that is due is published and retention has taken its part."""
    sent = publish(log, fold_end(storage, log, settings, now_ms), None)
    return retain(sent, evaluate_retention(sent, settings.policy, now_ms).start)


def effect_of(storage: LocalStorage, was: PartitionLog, log: PartitionLog, done: Clean, now_ms: int) -> Effect:
    """What went and what stayed of `was`, of which `log` was folded: read record by record from before and after."""
    below = rows_of(storage, log, log.start, log.published)
    kept = rows_of(storage, apply_one(log, done), log.start, log.published)
    above = rows_of(storage, was, log.published, was.end)
    dead = [one for one in kept if one["value"] is None]
    latest = {compared(one): one for one in below if one["rejected"] is None}
    expired = [o for o in latest.values() if o["value"] is None and fate(o["delete_horizon"], now_ms) is Fate.DROP]
    horizons = [one["delete_horizon"] for one in dead]
    assert Amount(done.base.records, done.base.bytes) == amount(kept)
    assert (done.base.tombstones, done.base.next_horizon_ms) == (len(dead), min(horizons, default=None))
    return Effect(
        before=amount(rows_of(storage, was, was.start, was.end)),
        retention=amount(rows_of(storage, was, was.start, log.start)),
        superseded=amount([one for one in below if one["rejected"] is None and latest[compared(one)] is not one]),
        expired=amount(expired),
        rejected=amount([one for one in below if one["rejected"] is not None]),
        after=amount([*kept, *above]),
        live=amount([one for one in kept if one["value"] is not None]),
        tombstones=amount(dead),
        held=amount(above),
        waiting=amount([one for one in above if one["rejected"] is not None]),
        stamped=sum(one["value"] is None and one["delete_horizon"] is None for one in latest.values()),
        earliest_horizon_ms=min(horizons, default=None),
        latest_horizon_ms=max(horizons, default=None),
    )


def apply_one(log: PartitionLog, action: Any) -> PartitionLog:
    return apply(CatalogState(logs=(log,)), [action]).logs[0]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 4))])
def test_what_is_told_is_what_a_full_fold_then_does(spark: SparkSession, storage: LocalStorage, seed: int) -> None:
    """Records, bytes, tombstones and horizons of a real fold at the same time are those that were told, to the byte."""
    chance = random.Random(seed)
    state = history(spark, storage, chance)
    now_ms = chance.choice([1_500, 2_800, 6_100, 7_100])
    settings = [settings_of(chance), settings_of(chance)]
    told = analyze(storage, state, settings, now_ms, partial(SparkCounts, spark, storage))
    assert analyze(storage, state, settings, now_ms, partial(ArrowCounts, storage)) == told
    scoped = [settings[0], replace(settings[1], scope="topic")]
    for order in ("offset", "header:v", "field:v"):
        known = replace(state, order=order)
        of_topics = analyze(storage, known, scoped, now_ms, partial(SparkCounts, spark, storage))
        assert analyze(storage, known, scoped, now_ms, partial(ArrowCounts, storage)) == of_topics
    for case, one in enumerate(settings):
        logs = [before_fold(storage, log_of(state, partition), one, now_ms) for partition in PARTITIONS]
        folded = compaction.clean(Rewriter(spark, storage), logs, target(storage, f"1-f{case}"), one.policy, now_ms)
        for partition, log, done in zip(PARTITIONS, logs, folded, strict=True):
            outcome = told.partitions[partition].outcomes[case]
            assert outcome.effect == effect_of(storage, log_of(state, partition), log, done, now_ms)
            assert (outcome.start, outcome.fold_end) == (log.start, log.published)
            assert_decision(storage, outcome, log, one, now_ms)


def assert_decision(
    storage: LocalStorage, outcome: Outcome, log: PartitionLog, settings: EngineSettings, now_ms: int
) -> None:
    """As the cleaner decides it, once it has counted the runs across published."""
    for run in straddling_runs(log):
        log = apply_one(log, recount(storage, log, run))
    found = evaluate(log, settings.policy, settings.fold, now_ms)
    assert (outcome.dirty_ratio, outcome.due, outcome.why) == (LogToClean.of(log).ratio, found.due, found.text)


def test_a_file_that_was_counted_in_parts_is_read_in_parts(spark: SparkSession, storage: LocalStorage) -> None:
    """What a full fold has replaced of a run that a `Restate` has cut does not come back: neither told nor folded."""
    rows = [row(0, offset, b"k%d" % (offset % 3), b"v") for offset in range(20)]
    state = published(ingested(storage, new_state({0: 0}), [with_range_reports(rows, {0: (0, 20)})]), {0: 12})
    state = apply(state, [recount(storage, log_of(state), run) for run in straddling_runs(log_of(state))])
    settings = EngineSettings(connector="c", policy=CompactionPolicy())
    first = compaction.clean(Rewriter(spark, storage), [log_of(state)], target(storage, "1-a"), settings.policy, 5)
    state = published(apply(state, first), {0: 20})
    told = analyze(storage, state, [settings], 9, partial(SparkCounts, spark, storage))
    effect = told.partitions[0].outcomes[0].effect
    assert (effect.before.records, effect.superseded.records, effect.after.records) == (11, 8, 3)
    (done,) = compaction.clean(Rewriter(spark, storage), [log_of(state)], target(storage, "1-b"), settings.policy, 9)
    assert (done.base.records, done.base.bytes) == (effect.after.records, effect.after.bytes)


def test_a_record_without_a_key_goes_as_a_rejected_one(spark: SparkSession, storage: LocalStorage) -> None:
    """A log that was not folded by key before may hold such: no full fold keeps them."""
    records: list[Row] = [{"key": b"k", "value": b"v"}, {"key": None, "value": b"raw", "rejected": None}]
    run = write_run(storage, kept_rows("t", 0, 0, records))
    state = apply(new_state({0: 0}), [Append(topic="t", partition=0, start=0, end=2, run=run)])
    settings = EngineSettings(connector="c", policy=CompactionPolicy())
    told = analyze(storage, state, [settings], 9, partial(SparkCounts, spark, storage))
    effect = told.partitions[0].outcomes[0].effect
    assert (effect.rejected, effect.live, effect.superseded) == (Amount(1, 3), Amount(1, 2), Amount())
    (done,) = compaction.clean(
        Rewriter(spark, storage), [log_of(published(state, {0: 2}))], target(storage), CompactionPolicy(), 9
    )
    assert (done.base.records, done.base.bytes) == (1, 2)


def several(storage: LocalStorage) -> CatalogState:
    """Seven keys in two or three partitions of topic t, one that is deleted in the other, one of each alone."""
    many = [(b"%d" % number, b"v") for number in range(7)]
    kept: dict[int, list[tuple[bytes | None, bytes | None]]] = {
        0: [*many, (b"gone", b"v"), (b"gone", None), (b"own", b"v"), (None, b"v")],
        1: [*many, (b"gone", b"v"), (None, b"v")],
        3: [(b"3", b"old"), (b"3", b"v")],
    }
    rows = [row(p, at, key, value) for p, records in kept.items() for at, (key, value) in enumerate(records)]
    for one in rows:
        if one["partition"] == 1 and one["key"] is not None:  # another encoding
            one |= {"key": b" " + one["key"], "key_identity": one["key"]}
    ends = {partition: (0, len(records)) for partition, records in kept.items()}
    return ingested(storage, new_state(dict.fromkeys(kept, 0)), [with_range_reports(rows, ends)])


def test_split_keys_are_counted_and_named(spark: SparkSession, storage: LocalStorage) -> None:
    """Keys that live in several partitions, the smallest with their places; both ways of counting find the same."""
    state, settings = several(storage), [EngineSettings(connector="c", policy=CompactionPolicy())]
    told = analyze(storage, state, settings, 9, partial(SparkCounts, spark, storage))
    places = [(0, 1), (0, 1), (0, 1), (0, 1, 3), (0, 1)]
    named = tuple(Example(b"%d" % number, found) for number, found in enumerate(places))
    outdated = Amount(9, 8 * 2 + 6)  # those of partitions 0 and 3, and ` gone` of partition 1
    assert told.split == {"t": SplitKeys(keys=7, examples=named, outdated=outdated, deleted=1)}
    assert analyze(storage, state, settings, 9, partial(ArrowCounts, storage)) == told


def test_outdated_records_are_found_without_split_keys(spark: SparkSession, storage: LocalStorage) -> None:
    """A key may live in one partition and have its tombstone, which is later, in another."""
    records = [row(0, 0, b"k", b"v"), row(0, 1, b"own", b"v"), row(1, 0, b"x", None), row(1, 3, b"k", None)]
    state = ingested(storage, new_state({0: 0, 1: 0}), [with_range_reports(records, {0: (0, 2), 1: (0, 4)})])
    settings = [EngineSettings(connector="c", policy=CompactionPolicy())]
    told = analyze(storage, state, settings, 9, partial(SparkCounts, spark, storage))
    assert told.split == {"t": SplitKeys(outdated=Amount(1, 2), deleted=1)}
    assert analyze(storage, state, settings, 9, partial(ArrowCounts, storage)) == told


def test_without_split_keys_there_are_none(spark: SparkSession, storage: LocalStorage) -> None:
    """A topic with several partitions is told to have none; one with a single partition is not asked."""
    rows = [row(partition, 0, b"%d" % partition, b"v") for partition in (0, 1)]
    state = ingested(storage, new_state({0: 0, 1: 0}), [with_range_reports(rows, {0: (0, 1), 1: (0, 1)})])
    settings = [EngineSettings(connector="c", policy=CompactionPolicy())]
    told = analyze(storage, state, settings, 9, partial(SparkCounts, spark, storage))
    assert told.split == {"t": SplitKeys()}
    alone = replace(state, logs=(log_of(state),))
    assert analyze(storage, alone, settings, 9, partial(SparkCounts, spark, storage)).split == {}


def test_counting_is_hashed(spark: SparkSession, storage: LocalStorage) -> None:
    """Last records are found by a hash aggregate, which spills: memory does not grow with keys."""
    logs = several(storage).logs
    counting = SparkCounts(spark, storage, logs)
    ranges = tuple((log.start, log.end) for log in logs)
    for frame in (spark_counts.last(counting.frame, [ranges, ranges]), spark_counts.placed(counting.frame)):
        plan = frame._jdf.queryExecution().sparkPlan().toString()
        assert "HashAggregate" in plan
        assert "SortAggregate" not in plan
        assert "ObjectHashAggregate" not in plan


@pytest.mark.parametrize("damaged", [False, True])
def test_a_file_that_cannot_be_read_concerns_its_partition(
    spark: SparkSession, storage: LocalStorage, damaged: bool
) -> None:
    """Gone or damaged: the partition is left out with its error, the others are told."""
    state = new_state({0: 0, 1: 0})
    for partition in (0, 1):
        rows = [row(partition, 0, b"k", b"v" * 100)]
        state = ingested(storage, state, [with_range_reports(rows, {partition: (0, 1)})])
    path = log_of(state, 1).runs[0].files[0].path
    content = storage.read(path)
    storage.delete(path)
    if damaged:
        storage.create(path, content[:60] + b"?" * 60 + content[120:])
    settings = [EngineSettings(connector="c", policy=CompactionPolicy())]
    told = analyze(storage, state, settings, 9, partial(SparkCounts, spark, storage))
    assert [bool(one.error) for one in told.partitions] == [False, True]
    assert told.partitions[0].outcomes[0].effect.live == Amount(1, 101)
    assert told.partitions[1].outcomes == ()


class NotStopped:
    """The session of all tests, which one command must not stop."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        pass


def test_the_command_tells_the_same_on_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is more than little to read, the command reads on a Spark of its own; its figures are the same."""
    kept = [at(0, b"a", b"1"), at(1, b"b", None), at(3, None, b"x", rejected="null key"), at(4, b"a", b"22")]
    keep(tmp_path, kept, [Publish(topic="orders", partition=0, end=5)])
    files = (connector_file(tmp_path), "--worker", worker_file(tmp_path))
    local = json.loads(invoke("analyze", *files, "--json").stdout)
    monkeypatch.setattr("compactor.analyze.analyze.COUNTED", NONE)
    monkeypatch.setattr("connectors.spark.session.get_session", lambda *_: NotStopped(spark))
    result = invoke("analyze", *files, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    effect = found["partitions"][0]["present"]["effect"]
    assert effect == {**local["partitions"][0]["present"]["effect"], **times(effect)}
    assert effect["superseded"] == {"records": 1, "bytes": 2}


def times(effect: dict[str, Any]) -> dict[str, Any]:
    """The horizons, which are those of the moment."""
    return {name: value for name, value in effect.items() if name.endswith("_ms")}
