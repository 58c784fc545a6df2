"""Fields that hold Debezium's placeholder are filled on a real broker, in output, snapshot and rebuilt log alike."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pytest

from compactor.errors import CatalogError
from tests.support.cli import invoke
from tests.support.deployment import Deployment
from tests.support.generations import live
from tests.support.kafka import ToSend, consume_all, produce
from tests.support.records import BASE_MS, read_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GONE: Final = "__debezium_unavailable_value"


@pytest.fixture
def deployment(deployment: Deployment) -> Deployment:
    """The folder's own, whose values are JSON."""
    deployment.settings |= {
        "value.converter": "keyfold.Json",
        "value.converter.schemas.enable": "false",
        "compaction.fill": "unavailable",
        "min.cleanable.dirty.ratio": 1,
    }
    return deployment


def put(deployment: Deployment, *rows: Mapping[str, Any]) -> None:
    """Produces rows, by their field `id`, into partition 0."""
    records = [(0, b"%d" % row["id"], json.dumps(row, separators=(",", ":")).encode()) for row in rows]
    produce(deployment.bootstrap, deployment.topic, records)


def table(deployment: Deployment) -> dict[int, Any]:
    """Returns the rows that a reader of the output has at its end, by their field `id`."""
    values = live(consume_all(deployment.bootstrap, deployment.output)).values()
    return {row["id"]: row for row in (json.loads(value) for value in values)}


@pytest.mark.parametrize(
    "local",
    [
        pytest.param(100_000, id="this process"),
        pytest.param(-1, id="Spark's tasks", marks=pytest.mark.long),  # spark/test_publish.py publishes there
    ],
)
def test_output_and_snapshot_have_the_last_value_that_was_there(
    spark: SparkSession, deployment: Deployment, local: int
) -> None:
    """Within one run of the worker, and from what it keeps."""
    deployment.write(publish_local_max_records=local)
    put(
        deployment, {"id": 1, "s": "new", "t": "long"}, {"id": 2, "s": "new", "t": GONE}, {"id": 1, "s": "a", "t": GONE}
    )
    deployment.run_once(spark)
    put(deployment, {"id": 1, "s": "b", "t": GONE}, {"id": 2, "s": "b", "t": None}, {"id": 3, "s": GONE, "t": ""})
    deployment.run_once(spark)
    expected = {
        1: {"id": 1, "s": "b", "t": "long"},
        2: {"id": 2, "s": "b", "t": None},
        3: {"id": 3, "s": GONE, "t": ""},
    }
    assert table(deployment) == expected
    manifest, rows = read_snapshot(deployment)
    assert manifest["fill"] == "unavailable"
    assert {row["id"]: row for row in (json.loads(value) for _, value in rows.values())} == expected


def test_a_rebuilt_log_fills_from_what_the_output_has(spark: SparkSession, deployment: Deployment) -> None:
    """The filled records are there."""
    deployment.publishing_only()
    put(deployment, {"id": 1, "t": "long"}, {"id": 1, "t": GONE, "n": 2})
    deployment.run_once(spark)
    deployment.storage.delete_folder("")
    connector, worker = deployment.write()
    result = invoke("rebuild", connector, "--worker", worker, "--json")
    assert result.exit_code == 0, result.output
    put(deployment, {"id": 1, "t": GONE, "n": GONE})
    deployment.run_once(spark)
    assert table(deployment) == {1: {"id": 1, "t": "long", "n": 2}}


@pytest.mark.long
def test_killed_after_values_were_filled(spark: SparkSession, deployment: Deployment) -> None:
    """No commit names the files; the next worker fills the same."""
    deployment.publishing_only()
    put(deployment, {"id": 1, "t": "long"})
    deployment.run_once(spark)
    put(deployment, {"id": 1, "t": GONE, "n": 2}, {"id": 1, "t": GONE, "n": GONE})
    with deployment.process("--once", failpoints="ingest.fill=sleep:600000") as worker:
        worker.until_logged("failpoint ingest.fill")
        worker.signal_all(signal.SIGKILL)
        worker.wait()
    assert table(deployment) == {1: {"id": 1, "t": "long"}}
    deployment.run_once(spark)
    assert table(deployment) == {1: {"id": 1, "t": "long", "n": 2}}


TOPIC_ROWS: Final[tuple[tuple[int, dict[str, Any]], ...]] = (
    (1, {"id": 3, "t": "", "n": 0}),
    (0, {"id": 1, "t": "long", "n": 1}),
    (1, {"id": 1, "t": GONE, "n": 2}),
    (1, {"id": 2, "t": "short", "n": 3}),
    (0, {"id": 2, "t": GONE, "n": 4}),
    (1, {"id": 3, "t": GONE, "n": 5}),
)
TOPIC_TABLE: Final = {
    1: {"id": 1, "t": "long", "n": 2},
    2: {"id": 2, "t": "short", "n": 4},
    3: {"id": 3, "t": "", "n": 5},
}


def put_into_both(deployment: Deployment) -> None:
    """Produces rows that move from one partition to the other, each with the time of its place in the list."""
    others = [ToSend(0, b"other-%d" % number, b'{"t":""}', (), BASE_MS + number) for number in range(40)]
    told = [
        ToSend(partition, b"%d" % row["id"], json.dumps(row, separators=(",", ":")).encode(), (), BASE_MS + 100 + time)
        for time, (partition, row) in enumerate(TOPIC_ROWS)
    ]
    produce(deployment.bootstrap, deployment.topic, [*others, *told])


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_fill_over_a_topic(spark: SparkSession, deployment: Deployment, *, killed: bool) -> None:
    """Rows move between partitions that are read at unequal pace; also if the worker is killed while one waits."""
    deployment.settings |= {"compaction.scope": "topic", "max.offsets.per.trigger": 24}
    deployment.publishing_only()
    put_into_both(deployment)
    if killed:
        with deployment.process("--once", failpoints="ingest.wait=sleep:600000") as worker:
            worker.until_logged("failpoint ingest.wait")
            worker.signal_all(signal.SIGKILL)
            worker.wait()
    state = deployment.run_once(spark)
    rows = [json.loads(record.value or b"") for record in consume_all(deployment.bootstrap, deployment.output)]
    assert {row["id"]: row for row in rows if "id" in row} == TOPIC_TABLE
    assert [log.end for log in state.logs_of(deployment.topic)] == [42, 4]


def test_a_resync_fills_what_came_before(spark: SparkSession, deployment: Deployment) -> None:
    """Another fill is refused until all of the source is read again by it."""
    deployment.publishing_only()
    put(deployment, {"id": 1, "t": "long", "n": 1}, {"id": 1, "t": GONE, "n": 2})
    deployment.run_once(spark, compaction_fill="none")
    assert table(deployment) == {1: {"id": 1, "t": GONE, "n": 2}}
    with pytest.raises(CatalogError, match=r"fill was none so far and is unavailable now.*keyfold resync"):
        deployment.run_once(spark, compaction_fill="unavailable")
    connector, worker = deployment.write()
    assert invoke("resync", connector, "--worker", worker).exit_code == 0
    put(deployment, {"id": 1, "t": GONE, "n": 3})
    deployment.run_once(spark)
    assert table(deployment) == {1: {"id": 1, "t": "long", "n": 3}}


@pytest.mark.long
@pytest.mark.parametrize("local", [100_000, -1], ids=["this process", "Spark's tasks"])
def test_fill_and_order_together(spark: SparkSession, deployment: Deployment, local: int) -> None:
    """A late record fills nothing, and is filled from nothing; a rebuilt log goes on by both."""
    deployment.settings |= {"compaction.order": "field:v"}
    deployment.publishing_only()
    deployment.write(publish_local_max_records=local)
    put(deployment, {"id": 1, "v": 5, "t": "long"}, {"id": 1, "v": 4, "t": "late"}, {"id": 1, "v": 6, "t": GONE})
    deployment.run_once(spark)
    put(deployment, {"id": 1, "v": 3, "t": "late again"}, {"id": 2, "v": 1, "t": GONE})
    deployment.run_once(spark)
    put(deployment, {"id": 1, "v": 7, "t": GONE}, {"id": 2, "v": 0, "t": "late"})
    deployment.run_once(spark)
    expected = {1: {"id": 1, "v": 7, "t": "long"}, 2: {"id": 2, "v": 1, "t": GONE}}
    assert table(deployment) == expected
    deployment.storage.delete_folder("")
    connector, worker = deployment.write()
    assert invoke("rebuild", connector, "--worker", worker).exit_code == 0
    put(deployment, {"id": 1, "v": 6, "t": "late"}, {"id": 2, "v": 2, "t": "there"}, {"id": 1, "v": 8, "t": GONE})
    deployment.run_once(spark)
    assert table(deployment) == {1: {"id": 1, "v": 8, "t": "long"}, 2: {"id": 2, "v": 2, "t": "there"}}
