"""Records that come late by another order than the offset, on a real broker (compaction.order)."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compactor.errors import CatalogError, DamagedFileError
from tests.support.cli import invoke
from tests.support.deployment import Deployment
from tests.support.generations import live
from tests.support.kafka import consume_all, produce
from tests.support.records import read_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def deployment(deployment: Deployment) -> Deployment:
    """The folder's own, ordered by a header."""
    deployment.settings |= {"compaction.order": "header:version", "min.cleanable.dirty.ratio": 1}
    return deployment


def put(deployment: Deployment, *records: tuple[bytes, bytes | None, int | None]) -> None:
    """Produces into partition 0 records of a key, a value and a version."""
    produce(
        deployment.bootstrap,
        deployment.topic,
        [
            (0, key, value, [] if version is None else [("version", version.to_bytes(8, "big"))])
            for key, value, version in records
        ],
    )


def sent(deployment: Deployment) -> list[tuple[bytes | None, bytes | None]]:
    return [(each.key, each.value) for each in consume_all(deployment.bootstrap, deployment.output)]


@pytest.mark.parametrize(
    "local",
    [
        pytest.param(100_000, id="this process"),
        pytest.param(-1, id="Spark's tasks", marks=pytest.mark.long),  # spark/test_publish.py publishes there
    ],
)
def test_late_records_are_neither_sent_nor_kept(spark: SparkSession, deployment: Deployment, local: int) -> None:
    """Over restarts, and after full folds; output and snapshot agree, and the manifest names the order."""
    deployment.write(publish_local_max_records=local)
    put(deployment, (b"a", b"2", 2), (b"a", b"1", 1), (b"b", b"none", None), (b"c", b"5", 5))
    deployment.run_once(spark)
    put(deployment, (b"b", b"1", 1), (b"c", None, 7), (b"b", b"none again", None), (b"a", b"2 again", 2))
    deployment.run_once(spark)
    put(deployment, (b"c", b"6", 6), (b"a", b"1", 1))
    state = deployment.run_once(spark)
    assert sent(deployment) == [
        (b"a", b"2"), (b"b", b"none"), (b"c", b"5"), (b"b", b"1"), (b"c", None), (b"a", b"2 again"),
    ]  # fmt: skip
    assert deployment.caught_up()
    assert state.order == "header:version"
    manifest, rows = read_snapshot(deployment)
    assert manifest["order"] == "header:version"
    assert {key: (offset, value) for (_, key), (offset, value) in rows.items()} == {
        b"a": (7, b"2 again"), b"b": (4, b"1"),
    }  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("at", ["ingest.look-up", "ingest.admit", "ingest.before-commit"])
def test_killed_while_late_records_are_left_out(spark: SparkSession, deployment: Deployment, at: str) -> None:
    """The next worker reads the portion again and decides the same; no record comes twice."""
    deployment.publishing_only()
    put(deployment, (b"a", b"2", 2), (b"b", b"2", 2))
    deployment.run_once(spark)
    put(deployment, (b"a", b"1", 1), (b"b", b"3", 3))
    with deployment.process("--once", failpoints=f"{at}=sleep:600000") as worker:
        worker.until_logged(f"failpoint {at}")
        worker.signal_all(signal.SIGKILL)
        worker.wait()
    deployment.run_once(spark)
    assert sent(deployment) == [(b"a", b"2"), (b"b", b"2"), (b"b", b"3")]


def test_another_order_is_refused(spark: SparkSession, deployment: Deployment) -> None:
    """It is fixed with the first commit: what is kept was decided about by the first one."""
    put(deployment, (b"a", b"2", 2))
    deployment.run_once(spark)
    with pytest.raises(CatalogError, match="order was header:version so far and is timestamp now"):
        deployment.run_once(spark, compaction_order="timestamp")


def test_a_resync_applies_another_order(spark: SparkSession, deployment: Deployment) -> None:
    """A part of the connector cannot have it; all of it is read again, and the output becomes equal to that."""
    put(deployment, (b"a", b"2", 2), (b"a", b"1", 1), (b"b", b"1", None))
    deployment.run_once(spark)
    deployment.write(compaction_order="offset")
    files = deployment.folder / "connector.json", "--worker", deployment.folder / "worker.json"
    partly = invoke("resync", *files, "--topic", deployment.topic, "--partition", "0")
    assert partly.exit_code != 0
    assert "would keep what it has by the order before" in " ".join(partly.stderr.split())
    assert invoke("resync", *files).exit_code == 0
    state = deployment.run_once(spark)
    assert state.order == "offset"
    assert {each.key: each.value for each in consume_all(deployment.bootstrap, deployment.output)} == {
        b"a": b"1", b"b": b"1",
    }  # fmt: skip


def test_a_field_orders_delete_events_and_a_rebuild_knows_it(spark: SparkSession, deployment: Deployment) -> None:
    """A tombstone that a transform makes of a delete event has the event's; the rebuilt log has what was published."""
    deployment.settings |= {
        "compaction.order": "field:source.lsn",
        "value.converter": "keyfold.Json",
        "transforms": "row",
        "transforms.row.type": "io.debezium.transforms.ExtractNewRecordState",
    }
    deployment.publishing_only()
    put(deployment, event(1, 10), event(2, 10), event(1, 30), event(2, 40, deleted=True), (b"2", None, None))
    put(deployment, event(1, 20, deleted=True), event(2, 35))
    deployment.run_once(spark)
    assert [key for _, key in live(consume_all(deployment.bootstrap, deployment.output))] == [b"1"]
    deployment.storage.delete_folder("")
    files = deployment.write()
    rebuilt = invoke("rebuild", files[0], "--worker", files[1])
    assert rebuilt.exit_code == 0, rebuilt.output
    before = len(sent(deployment))
    put(deployment, event(1, 29, deleted=True), event(2, 39), event(2, 40))
    state = deployment.run_once(spark)
    assert [key for key, _ in sent(deployment)[before:]] == [b"2"]
    assert state.order == "field:source.lsn"


def event(number: int, lsn: int, *, deleted: bool = False) -> tuple[bytes, bytes, None]:
    """Returns a change event of Debezium's, in JSON with its schema, for `put`."""
    row = {"type": "struct", "optional": True, "fields": [{"field": "id", "type": "int64"}]}
    lsns = {"field": "source", "type": "struct", "fields": [{"field": "lsn", "type": "int64"}]}
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, lsns]
    rows = {"before": {"id": number} if deleted else None, "after": None if deleted else {"id": number}}
    schema = {"type": "struct", "name": "db.t.Envelope", "fields": fields}
    return b"%d" % number, json.dumps({"schema": schema, "payload": {**rows, "source": {"lsn": lsn}}}).encode(), None


@pytest.mark.parametrize("way", [*(pytest.param(way, marks=pytest.mark.long) for way in ("copy", "resync")), "rebuild"])
def test_a_damaged_file_that_decides_is_named_with_the_ways_on(
    spark: SparkSession, deployment: Deployment, way: str
) -> None:
    """The connector fails, as nothing can be decided without it: each way that the error names leads on."""
    deployment.publishing_only()
    put(deployment, (b"a", b"2", 2), (b"b", b"1", 1))
    state = deployment.run_once(spark)
    ((file,),) = (run.files for log in state.logs for run in log.kept if run.files)
    path = Path(deployment.storage.location, file.path)
    whole = path.read_bytes()
    path.write_bytes(whole[:40] + bytes([whole[40] ^ 255]) + whole[41:])
    put(deployment, (b"a", b"1", 1), (b"b", b"2", 2))
    with pytest.raises(DamagedFileError, match="-0: the records from offset 2 on are decided about") as failed:
        deployment.run_once(spark)
    assert file.path in str(failed.value)
    assert "keyfold restart" in str(failed.value)
    connector, worker = deployment.write()
    if way == "copy":
        path.write_bytes(whole)
    elif way == "rebuild":
        deployment.storage.delete_folder("")
    if way != "copy":
        assert invoke(way, connector, "--worker", worker).exit_code == 0
    deployment.run_once(spark)
    assert live(consume_all(deployment.bootstrap, deployment.output)).keys() == {(0, b"a"), (0, b"b")}
    assert sent(deployment)[-1] == (b"b", b"2")
