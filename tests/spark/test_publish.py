from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from compactor.errors import FencedError, KeyfoldError
from compactor.fold.in_memory import InMemory
from compactor.fold.in_tasks import InTasks
from compactor.fold.latest_per_key import FoldJob, LatestPerKey
from compactor.fold.memory_budget import NONE, READ, OffsetMapBudget
from compactor.fold.on_spark import OnSpark
from compactor.model.publish_plan import PublishPlan, PublishResult
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from compactor.ports import Publisher
from compactor.publish import executors
from compactor.publish.plan import complete, results_of
from compactor.storage.local import LocalStorage
from tests.support.engine import Row, ingested, new_state, plans, published, row, with_range_reports
from tests.support.memory.broker import MemoryBroker


class RefusedForTestError(KeyfoldError):
    pass


class Failing:
    """A publisher that raises an error of this class."""

    def __init__(self, kind: type[KeyfoldError]) -> None:
        self._kind = kind

    def publish(self, plan: PublishPlan, records: Iterator[pa.RecordBatch]) -> Sequence[PublishResult]:
        raise self._kind("Ours: ${x} 'q'\n\"é\".", "Do this.")


Send = Callable[[CatalogState, Sequence[PublishPlan], Publisher], Sequence[PublishResult]]


@pytest.fixture(params=["Spark's fold", "tasks", "tasks, in two passes", "this process"])
def send(request: pytest.FixtureRequest, spark: SparkSession, storage: LocalStorage) -> Send:
    """All ways to carry plans out."""
    two_passes = {"memory": NONE, "keys": OffsetMapBudget(4, 1_000)}  # several classes
    budget: dict[str, Any] = two_passes if request.param == "tasks, in two passes" else {}

    def sending(fold: LatestPerKey) -> Send:
        def send(state: CatalogState, due: Sequence[PublishPlan], publisher: Publisher) -> Sequence[PublishResult]:
            done = fold.run(job_of(storage, state, due, publisher, **budget))
            assert done.left is None
            return complete(due, results_of(done.rows))

        return send

    folds: dict[str, LatestPerKey] = {"this process": InMemory(storage), "Spark's fold": OnSpark(spark, storage)}
    return sending(folds.get(request.param, InTasks(spark, storage)))


def job_of(
    storage: LocalStorage, state: CatalogState, due: Sequence[PublishPlan], publisher: Publisher, **budget: Any
) -> FoldJob:
    """The fold that carries out `due`; `budget` replaces fields of its budget."""
    job = executors.fold_job(
        state, due, storage, publisher=lambda: publisher, local_publisher=lambda: publisher, local_records=-1
    )
    return replace(job, budget=replace(job.budget, **budget))


@pytest.fixture
def outside(tmp_path: Path) -> MemoryBroker:
    return MemoryBroker(LocalStorage(str(tmp_path / "outside")))


def sent_by(outside: MemoryBroker) -> dict[int, list[tuple[int, int]]]:
    """Partition and offset of what each bucket sent, dead letters too, in its order."""
    found: dict[int, list[tuple[int, int]]] = {}
    for entry in outside.entries:
        places = [(one.partition, one.source_offset) for one in (*entry.records, *entry.letters)]
        found.setdefault(entry.bucket, []).extend(places)
    return found


def records(partitions: int, count: int) -> list[Row]:
    return [row(p, o, b"k%d" % (o % 5), b"v%d-%d" % (p, o)) for o in range(count) for p in range(partitions)]


def test_each_bucket_gets_its_survivors_by_partition_and_offset(
    storage: LocalStorage, outside: MemoryBroker, send: Send
) -> None:
    """A bucket's records come to one publisher by partition and offset, rejected ones in their place."""
    rows = [*records(5, 20), row(3, 20, None, b"x"), row(3, 21, b"k0", None)]
    ends = dict.fromkeys(range(5), (0, 22))
    state = ingested(storage, new_state(dict.fromkeys(range(5), 0), buckets=2), [with_range_reports(rows, ends)])
    outside.most_records = 1  # each by itself, so that their order can be seen
    due = plans(state, dict.fromkeys(range(5), 22))
    sent = send(state, due, outside.publisher(state))
    places = sent_by(outside)
    assert {bucket: {p for p, _ in got} for bucket, got in places.items()} == {0: {0, 2, 4}, 1: {1, 3}}
    assert all(got == sorted(got) for got in places.values())
    assert [o for p, o in places[1] if p == 3] == [16, 17, 18, 19, 20, 21]
    assert sorted((one.partition, one.end, one.records + one.dead_letters) for one in sent) == [
        (p, 22, 6 if p == 3 else 5) for p in range(5)
    ]


def test_a_record_retires_other_encodings_of_its_key(storage: LocalStorage, outside: MemoryBroker, send: Send) -> None:
    """Whoever folds: by identity, and with the keys below the start of the publish, each partition by itself."""
    upper = [
        row(p, o, b"K%d" % o, b"%d" % p, key_identity=b"k%d" % o, key_encoding="u") for o in range(3) for p in (0, 1)
    ]
    state = replace(new_state({0: 0, 1: 0}, buckets=2), identity="letters")
    state = ingested(storage, state, [with_range_reports(upper, {0: (0, 3), 1: (0, 3)})])
    send(state, plans(state, {0: 3, 1: 3}), outside.publisher(state))
    state = published(state, {0: 3, 1: 3})
    lower = [
        row(0, 3, b"k1", b"new", key_encoding="l"),
        row(0, 4, b"K0", b"new", key_identity=b"k0", key_encoding="u"),
        row(0, 5, b"k1", b"newer", key_encoding="l"),
        row(1, 3, b"k2", None, key_encoding="l"),
    ]
    state = ingested(storage, state, [with_range_reports(lower, {0: (3, 6), 1: (3, 4)})])
    found = {tp: one and one.offset for tp, one in outside.output.positions.items()}
    due = [
        replace(plan, targets=tuple(replace(target, committed=found[target.tp]) for target in plan.targets))
        for plan in plans(state, {0: 6, 1: 4})
    ]
    sent = send(state, due, outside.publisher(state))
    assert sorted((one.partition, one.records) for one in sent) == [(0, 2), (1, 1)]
    after = {tp.partition: [(one.key, one.value) for one in own[3:]] for tp, own in outside.output.records.items()}
    assert after == {
        0: [(b"K0", b"new"), (b"K1", None), (b"k1", b"newer")],
        1: [(b"K2", None), (b"k2", None)],
    }


def test_a_publisher_runs_for_every_plan_also_without_a_record(
    storage: LocalStorage, outside: MemoryBroker, send: Send
) -> None:
    """A position can be due where no record is: every bucket with targets is called, once, and no other."""
    state = ingested(
        storage,
        new_state(dict.fromkeys(range(3), 0), buckets=5),
        [with_range_reports([], dict.fromkeys(range(3), (0, 4)))],
    )
    due = plans(state, {0: 0, 2: 4})
    sent = send(state, due, outside.publisher(state))
    assert sorted((one.partition, one.end) for one in sent) == [(0, 0), (2, 4)]
    assert sent_by(outside) == {0: [], 2: []}
    assert {tp.partition: found.offset for tp, found in outside.output.positions.items() if found} == {0: 0, 2: 4}


@pytest.mark.parametrize("kind", [FencedError, RefusedForTestError])
def test_a_publishers_error_comes_back_as_it_was(storage: LocalStorage, send: Send, kind: type[KeyfoldError]) -> None:
    """What a task raises is raised by send: the type decides whether to stop, to retry, or to ask an operator."""
    state = ingested(storage, new_state({0: 0}), [with_range_reports(records(1, 3), {0: (0, 3)})])
    due = plans(state, {0: 3})
    with pytest.raises(kind) as caught:
        send(state, due, Failing(kind))
    assert (caught.value.message, caught.value.action) == ("Ours: ${x} 'q'\n\"é\".", "Do this.")


def test_what_a_task_cannot_hold_or_trust_is_left(
    spark: SparkSession, storage: LocalStorage, outside: MemoryBroker
) -> None:
    """A bucket with too much, and one with a file that is not what was written, are left for Spark's fold, unsent."""
    state = new_state(dict.fromkeys(range(3), 0), buckets=3)
    for partition, count in ((0, 5), (1, 5), (2, 50)):
        rows = [row(partition, offset, b"k%d" % offset, b"v") for offset in range(count)]
        state = ingested(storage, state, [with_range_reports(rows, {partition: (0, count)})])
    path = Path(storage.location, state.log(TopicPartition("t", 1)).runs[0].files[0].path)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    due = plans(state, {0: 5, 1: 5, 2: 50})
    job = job_of(storage, state, due, outside.publisher(state), read=replace(READ, records=20))
    sent, left = InTasks(spark, storage).run(job)
    assert left is not None
    assert [(one["partition"], one["end"], one["records"]) for one in sent] == [(0, 5, 5)]
    assert [*(left.tasks or ())] == [1, 2]
    assert {partition for places in sent_by(outside).values() for partition, _ in places} == {0}


def test_more_keys_than_a_task_holds_are_left_before_anything_is_sent(
    spark: SparkSession, storage: LocalStorage, outside: MemoryBroker
) -> None:
    """How many differ no catalog says: a bucket's first partition is not sent where the second has too many."""
    state = new_state(dict.fromkeys(range(2), 0), buckets=1)
    for partition, count in ((0, 2), (1, 50)):
        rows = [row(partition, offset, b"k%d" % offset, b"v") for offset in range(count)]
        state = ingested(storage, state, [with_range_reports(rows, {partition: (0, count)})])
    due = plans(state, {0: 2, 1: 50})
    keys = OffsetMapBudget(10, 1_000, hash_partitions=1)
    job = job_of(storage, state, due, outside.publisher(state), memory=NONE, keys=keys)
    sent, left = InTasks(spark, storage).run(job)
    assert left is not None
    assert (sent, [*(left.tasks or ())], sent_by(outside)) == ([], [0], {})
