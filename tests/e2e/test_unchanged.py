"""Records that change nothing are not sent to a real broker (publish.unchanged=skip)."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.deployment import Deployment
from tests.support.kafka import consume_all, produce
from tests.support.records import read_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def deployment(deployment: Deployment) -> Deployment:
    """The folder's own, which skips them."""
    deployment.settings |= {"publish.unchanged": "skip", "min.cleanable.dirty.ratio": 1}
    return deployment


def put(deployment: Deployment, *records: tuple[bytes, bytes | None]) -> None:
    """Produces into partition 0."""
    produce(deployment.bootstrap, deployment.topic, [(0, *each) for each in records])


def sent(deployment: Deployment) -> list[tuple[bytes | None, bytes | None]]:
    return [(each.key, each.value) for each in consume_all(deployment.bootstrap, deployment.output)]


@pytest.mark.parametrize(
    "local",
    [
        pytest.param(100_000, id="this process"),
        pytest.param(-1, id="Spark's tasks", marks=pytest.mark.long),  # spark/test_publish.py publishes there
    ],
)
def test_what_the_output_has_already_is_not_sent(spark: SparkSession, deployment: Deployment, local: int) -> None:
    """Over restarts, and behind full folds; the snapshot has the last record, with its own offset."""
    deployment.write(publish_local_max_records=local)
    put(deployment, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    deployment.run_once(spark)
    put(deployment, (b"a", b"1"), (b"b", b"2"), (b"c", None))
    deployment.run_once(spark)
    put(deployment, (b"a", b"1"), (b"b", b"2"), (b"c", None), (b"d", b"1"))
    state = deployment.run_once(spark)
    assert sent(deployment) == [
        (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"b", b"2"), (b"c", None), (b"d", b"1"),
    ]  # fmt: skip
    assert deployment.caught_up()
    assert state.logs[0].sent_from == 0
    manifest, rows = read_snapshot(deployment)
    assert manifest["source_offsets"]["0"] == 10
    assert {key: (offset, value) for (_, key), (offset, value) in rows.items()} == {
        b"a": (6, b"1"), b"b": (7, b"2"), b"d": (9, b"1"),
    }  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("at", ["publish.unchanged", "publish.committed", "publish.before-commit"])
def test_killed_while_records_are_left_out(spark: SparkSession, deployment: Deployment, at: str) -> None:
    """The next worker sends what changes something, and what it cannot know of once more; no record comes twice."""
    deployment.publishing_only()
    put(deployment, (b"a", b"1"), (b"b", b"1"))
    deployment.run_once(spark)
    put(deployment, (b"a", b"1"), (b"b", b"2"))
    with deployment.process("--once", failpoints=f"{at}=sleep:600000") as worker:
        worker.until_logged(f"failpoint {at}")
        worker.signal_all(signal.SIGKILL)
        worker.wait()
    deployment.run_once(spark)
    assert sent(deployment) == [(b"a", b"1"), (b"b", b"1"), (b"b", b"2")]
    put(deployment, (b"a", b"1"), (b"b", b"2"))
    deployment.run_once(spark)
    put(deployment, (b"a", b"1"), (b"b", b"2"))
    deployment.run_once(spark)
    missed = at != "publish.unchanged"  # the catalog did not learn of the transaction: nothing is compared with it
    assert sent(deployment)[3:] == ([(b"a", b"1"), (b"b", b"2")] if missed else [])
