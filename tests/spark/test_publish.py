from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compactor import publish
from compactor.errors import FencedError, KeyfoldError
from compactor.local import LocalStorage
from compactor.publish import BucketPlan
from tests.support.engine import FilePublisher, Row, ingested, new_state, plans, read_all, row


class RefusedForTestError(KeyfoldError):
    pass


def records(partitions: int, count: int) -> list[Row]:
    return [row(p, o, b"k%d" % (o % 5), b"v%d-%d" % (p, o)) for o in range(count) for p in range(partitions)]


def test_each_bucket_gets_its_survivors_by_partition_and_offset(
    spark: SparkSession, storage: LocalStorage, tmp_path: Path
) -> None:
    """A bucket's records come to one publisher by partition and offset, rejected ones in their place."""
    rows = [*records(5, 20), row(3, 20, None, b"x"), row(3, 21, b"k0", None)]
    ends = dict.fromkeys(range(5), (0, 22))
    state = ingested(spark, storage, new_state(dict.fromkeys(range(5), 0), buckets=2), [read_all(rows, ends)])
    publisher = FilePublisher(tmp_path)
    sent = publish.send(spark, storage, state, plans(state, dict.fromkeys(range(5), 22)), 2, publisher)
    found = publisher.buckets()
    places = {bucket: [(one["partition"], one["offset"]) for one in rows] for bucket, rows in found.items()}
    assert {bucket: {p for p, _ in got} for bucket, got in places.items()} == {0: {0, 2, 4}, 1: {1, 3}}
    assert all(got == sorted(got) for got in places.values())
    assert [o for p, o in places[1] if p == 3] == [16, 17, 18, 19, 20, 21]
    assert sorted((one.partition, one.end, one.records) for one in sent) == [
        (p, 22, 6 if p == 3 else 5) for p in range(5)
    ]


def test_a_publisher_runs_for_every_plan_also_without_a_record(
    spark: SparkSession, storage: LocalStorage, tmp_path: Path
) -> None:
    """A position can be due where no record is: every bucket with targets is called, once, and no other."""
    state = ingested(
        spark,
        storage,
        new_state(dict.fromkeys(range(3), 0), buckets=5),
        [read_all([], dict.fromkeys(range(3), (0, 4)))],
    )
    publisher = FilePublisher(tmp_path)
    due = [*plans(state, {0: 0, 2: 4}), BucketPlan(bucket=4, epoch=1, catalog_id="cat", targets=())]
    sent = publish.send(spark, storage, state, due, 5, publisher)
    assert sorted((one.partition, one.end) for one in sent) == [(0, 0), (2, 4)]
    assert publisher.buckets() == {0: [], 2: []}


@pytest.mark.parametrize("kind", [FencedError, RefusedForTestError])
def test_a_publishers_error_comes_back_as_it_was(
    spark: SparkSession, storage: LocalStorage, tmp_path: Path, kind: type[KeyfoldError]
) -> None:
    """What a task raises is raised by send: the type decides whether to stop, to retry, or to ask an operator."""
    state = ingested(spark, storage, new_state({0: 0}), [read_all(records(1, 3), {0: (0, 3)})])
    publisher = FilePublisher(tmp_path, fails=lambda: kind("Ours: ${x} 'q'\n\"é\".", "Do this."))
    with pytest.raises(kind) as caught:
        publish.send(spark, storage, state, plans(state, {0: 3}), 1, publisher)
    assert (caught.value.message, caught.value.action) == ("Ours: ${x} 'q'\n\"é\".", "Do this.")
