"""`keyfold erase`: no byte of a value is left in any file, and the receipt says the truth about the key."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compactor.catalog.owner_lock import OwnerLock
from compactor.catalog.requests import Request
from compactor.storage.base import Storage
from connectors.config.files import load_connector, load_worker
from connectors.operations.erase.receipt import COMPLETE, INCOMPLETE, PENDING, Receipt, decoded
from connectors.operations.erase.run import EraseOptions, Eraser, Erasure
from connectors.operations.request_timeout import RequestTimeout
from tests.support.change_events import JSON, PLAIN_KEY, UNWRAP, change, key_of
from tests.support.cli import invoke
from tests.support.deployment import PROCESS_TIMEOUT_S, Deployment, Process
from tests.support.erasure import files_with
from tests.support.kafka import consume_all, produce, wait_until
from tests.support.served_registry import Registry, served_registry
from tests.support.stores.chosen import chosen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = b"alice-who-wants-to-go"
SECRET = "the street where she lives"
OLDER = "the street where she lived"
HOUR_MS = 3_600_000


registry = pytest.fixture(served_registry)
Places = tuple[Path | Storage, Path | Storage]


@pytest.fixture
def folders(deployment: Deployment) -> Places:
    """What is searched for bytes."""
    if chosen() is None:
        return deployment.folder / "storage", deployment.folder / "snapshots"
    return deployment.storage, deployment.snapshots


def _set(deployment: Deployment, table: str, retention_ms: int, by: str = "none") -> None:
    deployment.worker["erasure.key.file"] = str(deployment.folder / "key.pem")
    typed = {
        "value.converter": "keyfold.Json",
        "value.converter.schemas.enable": "false",
        "snapshot.table": table,
        "snapshot.partition.by": by,
    }
    more = {"delete.retention.ms": retention_ms, "snapshot.retention.count": 5, "snapshot.value.format": "typed"}
    deployment.settings |= {**typed, **more}


def _fill(deployment: Deployment, value: str) -> None:
    """Sends a value of the key, and those of others, to both partitions."""
    others = [(number % 2, b"key-%d" % number, _json(f"{value[:10]} {number}")) for number in range(20)]
    produce(deployment.bootstrap, deployment.topic, [(0, KEY, _json(value)), *others])


def _json(text: str) -> bytes:
    return json.dumps({"address": text}).encode()


def _eraser(deployment: Deployment, spark: SparkSession, *keys: bytes) -> Eraser:
    """Erases `keys`, or KEY; without a live worker this process carries the request out on the tests' Spark."""
    connector, worker = deployment.write()
    config = load_worker(worker)

    def here(wanted: Request, lock: OwnerLock) -> dict[str, Any]:
        lock.release()
        deployment.run_once(spark)
        with ExitStack() as stack:
            task = deployment.task(spark)
            stack.callback(deployment.lock.release)
            return task.perform(wanted, deployment.drawn_start())

    settings = load_connector(connector, config).config
    return Eraser(config, settings, keys or [KEY], EraseOptions(), RequestTimeout(PROCESS_TIMEOUT_S), here)


def _verified(deployment: Deployment, done: Erasure) -> tuple[int, str]:
    """Returns the exit code of `erase verify` with the key, and the state that it finds."""
    words = "erase", "verify", done.location, "--key", KEY.decode(), "--worker", deployment.write()[1], "--json"
    result = invoke(*words)
    return result.exit_code, json.loads(result.stdout)["state"]


def _is_gone(folders: Places) -> bool:
    return not files_with(OLDER.encode(), *folders) and not files_with(SECRET.encode(), *folders)


@pytest.mark.parametrize("by", ["address", pytest.param("none", marks=pytest.mark.long)])
def test_a_live_worker_erases(spark: SparkSession, deployment: Deployment, folders: Places, by: str) -> None:
    """Values are gone from runs, snapshots and the table, and from the names of its partitions.

    The key is in its tombstone alone, as the receipt says.
    """
    _set(deployment, "delta", HOUR_MS, by)
    _fill(deployment, OLDER)
    deployment.run_once(spark)
    assert len(files_with(OLDER.encode(), *folders)) > 2
    with deployment.running(spark):
        wait_until(lambda: deployment.storage.locked_by("owner.lock"), "a worker runs it", PROCESS_TIMEOUT_S)
        _fill(deployment, SECRET)
        wait_until(deployment.caught_up, "all is published", PROCESS_TIMEOUT_S)
        done = _eraser(deployment, spark).run()
        assert _is_gone(folders)
    receipt = done.signed.receipt
    assert (receipt.state, [each.sent for each in receipt.tombstones]) == (PENDING, [True])
    assert len(receipt.snapshots_removed) == 1
    assert {each.file for each in receipt.findings} == set(files_with(KEY, *folders))
    assert {each.what for each in receipt.findings} == {"tombstone"}
    (sent,) = (each for each in consume_all(deployment.bootstrap, deployment.topic) if each.value is None)
    assert (sent.key, sent.partition, sent.offset) == (KEY, 0, receipt.tombstones[0].offset)
    assert {each.what for each in receipt.elsewhere} == {"source", "output", "readers", "copies"}
    assert _verified(deployment, done) == (6, PENDING)


@pytest.mark.long  # test_a_live_worker_erases has Delta and a worker
@pytest.mark.parametrize("by", ["none", "address"])
def test_no_worker_is_needed(spark: SparkSession, deployment: Deployment, folders: Places, by: str) -> None:
    """With Iceberg, and without a time for tombstones: the key goes too, and what comes later stays."""
    _set(deployment, "delta" if chosen() else "iceberg", 0, by)  # a catalog of Iceberg's own lies in a folder
    for value in (OLDER, SECRET):
        _fill(deployment, value)
        deployment.run_once(spark)
    done = _eraser(deployment, spark).run()
    assert _is_gone(folders)
    again = _eraser(deployment, spark).run()
    assert (again.signed.receipt.state, files_with(KEY, *folders)) == (COMPLETE, [])
    assert _verified(deployment, done) == (0, COMPLETE)
    produce(deployment.bootstrap, deployment.topic, [(0, KEY, _json("another street"))])
    deployment.run_once(spark)
    assert _verified(deployment, done) == (0, COMPLETE)  # a new value is no matter of the erasure


@pytest.mark.long  # test_a_live_worker_erases has keys that are bytes, in a partition each
@pytest.mark.parametrize("kind", ["scope=topic", "identity", "Avro"])
def test_keys_of_any_kind_are_erased(
    spark: SparkSession, deployment: Deployment, folders: Places, registry: Registry, kind: str
) -> None:
    """Neither value nor key is left of one in several partitions, in several forms, or in Avro, as a typed column."""
    _set(deployment, "delta", 0)
    name = KEY.decode()
    schema = {"type": "record", "name": "K", "fields": [{"name": "id", "type": "string"}]}
    keys = [b'{"id":"%s"}' % KEY, b'{ "id": "%s" }' % KEY] if kind == "identity" else [KEY, KEY]
    keys = [registry.avro(schema, {"id": name})] * 2 if kind == "Avro" else keys
    other = registry.avro(schema, {"id": "bob"}) if kind == "Avro" else b'"bob"'
    deployment.settings |= {
        "scope=topic": {"compaction.scope": "topic", "state.index": "always", "compaction.order": "timestamp"},
        "identity": {"compaction.key.identity": "json"},
        "Avro": {**registry.settings(side="key"), "snapshot.key.format": "typed"},
    }[kind]
    for value, partition, key in ((OLDER, 0, keys[0]), (SECRET, 1, keys[1]), (SECRET, 0, keys[1])):
        produce(deployment.bootstrap, deployment.topic, [(partition, key, _json(value)), (1, other, _json("nearby"))])
        deployment.run_once(spark)
    assert files_with(SECRET.encode(), folders[0])
    assert files_with(SECRET.encode(), folders[1])
    done = _eraser(deployment, spark, keys[0]).run()
    again = _eraser(deployment, spark, keys[0]).run()
    assert (_is_gone(folders), files_with(KEY, *folders)) == (True, [])
    # Keys of Avro in a table cannot be compared. Once no tombstone is kept, nothing tells that its version came later.
    states = (done.signed.receipt.state, again.signed.receipt.state)
    assert states[1] == (INCOMPLETE if kind == "Avro" else COMPLETE), states
    assert states[0] != INCOMPLETE


@pytest.mark.long  # test_a_live_worker_erases has what needs no delete event
@pytest.mark.parametrize("order", ["offset", "field:source.lsn"])
def test_change_events_are_erased(spark: SparkSession, deployment: Deployment, folders: Places, order: str) -> None:
    """A delete event is sent under the source's key; it says nothing of the row, and deletes it in its order."""
    _set(deployment, "none", 0)
    deployment.settings |= {**JSON, **UNWRAP, **PLAIN_KEY, "compaction.order": order}
    for lsn, street in enumerate((OLDER, SECRET)):
        rows = [(0, key_of(name), change(name, at, lsn)) for name, at in ((KEY.decode(), street), ("bob", "nearby"))]
        produce(deployment.bootstrap, deployment.topic, rows)
        deployment.run_once(spark)
    done = _eraser(deployment, spark, b'{"id":"%s"}' % KEY).run()
    assert (_is_gone(folders), len(done.signed.receipt.tombstones)) == (True, 1)
    kept = {record.key: record.value for record in consume_all(deployment.bootstrap, deployment.output)}
    assert [key for key, value in kept.items() if value is not None] == [b'{"id":"bob"}']
    deleted, tombstone = list(consume_all(deployment.bootstrap, deployment.topic))[-2:]
    assert (deleted.key, tombstone.key, tombstone.value) == (key_of(KEY.decode()), deleted.key, None)
    assert SECRET.encode() not in (deleted.value or b"")


@pytest.mark.long  # each case starts Spark twice
@pytest.mark.parametrize(
    "step", [f"erase.{name}" for name in ("begun", "sent", "published", "dropped", "table", "purge", "searched")]
)
def test_a_run_that_is_killed_is_gone_on_with(
    spark: SparkSession, deployment: Deployment, folders: Places, step: str
) -> None:
    """Killed at any step, the same command ends the erasure: one receipt, signed, and no value is left."""
    _set(deployment, "delta", HOUR_MS)
    _fill(deployment, OLDER)
    deployment.run_once(spark)
    connector, worker = deployment.write()
    words = ["erase", str(connector), "--key", KEY.decode(), "--worker", str(worker)]
    log = deployment.folder / "erase.log"
    with Process(words, log, {"KEYFOLD_FAILPOINTS": f"{step}=kill"}) as killed:
        assert killed.wait() < 0, killed.tail()
    with Process(words, log, {}) as erasing:
        assert erasing.wait() == 0, erasing.tail()
    assert _is_gone(folders)
    (kept,) = deployment.storage.list("erasures")
    receipt = _read(deployment, kept)
    assert (receipt.state, bool(receipt.tombstones)) == (PENDING, True)


def _read(deployment: Deployment, name: str) -> Receipt:
    return decoded(deployment.storage.read(f"erasures/{name}"), name).receipt
