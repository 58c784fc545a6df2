"""`keyfold erase` on the command line, without a broker: what it would do, what it refuses, what it finds again."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from compactor.model.actions import CloseTopic, Publish
from compactor.snapshot import pins
from compactor.storage.locations import open_storage
from connectors.cli.views.erasure import erased_text, next_step
from connectors.operations.erase import signing
from connectors.operations.erase.receipt import Finding, Receipt, Tombstone, decoded, encoded, erased_keys
from connectors.operations.erase.run import Erasure
from tests.support.cli import connector_file, invoke, keep, row, storage_of, worker_file
from tests.support.engine import row as engine_row
from tests.support.kept_snapshots import KeptSnapshots
from tests.support.live_worker import live_worker
from tests.support.served_registry import Registry, served_registry
from tests.support.stores.running import RunningStore

registry = pytest.fixture(served_registry)
KEY = "alice-of-long-name"
ROWS = [row(0, KEY.encode(), b"old"), row(1, b"bob", b"x"), row(2, KEY.encode(), b"new"), row(3, b"gone", None)]


def _erase(folder: Path, *more: object, **settings: str) -> Any:
    files = connector_file(folder, **settings), "--worker", worker_file(folder)
    return invoke("erase", *files, *more)


def test_a_dry_run_says_what_would_be_done(tmp_path: Path) -> None:
    """Values, tombstones that are there, and keys of which nothing is kept; nothing is written."""
    keep(tmp_path, ROWS, [Publish(topic="orders", partition=0, end=4)])
    listed = tmp_path / "keys"
    listed.write_text(f"{KEY}\ngone\nabsent\n\n")
    shown = json.loads(_erase(tmp_path, "--keys-from", listed, "--dry-run", "--json").stdout)
    assert [(each["partition"], each["offset"]) for each in shown["values"]] == [(0, 2)]
    assert [each["offset"] for each in shown["tombstones"]] == [3]
    assert ([base64.b64decode(key) for key in shown["absent"]], shown["snapshots"]) == ([b"absent"], [])
    assert "Of this key: absent" in _erase(tmp_path, "--keys-from", listed, "--dry-run").stdout
    assert "orders-0: a value at offset 2" in _erase(tmp_path, "--key", KEY, "--dry-run").stdout
    assert not storage_of(tmp_path).exists("erasures")


def test_keys_may_come_from_any_editor(tmp_path: Path) -> None:
    """With a byte order mark before them, and CR LF at the ends of lines, they are the same keys."""
    keep(tmp_path, ROWS, [Publish(topic="orders", partition=0, end=4)])
    listed = tmp_path / "keys"
    listed.write_bytes(f"\ufeff{KEY}\r\ngone\r\n\r\n".encode())
    shown = json.loads(_erase(tmp_path, "--keys-from", listed, "--dry-run", "--json").stdout)
    assert (len(shown["values"]), len(shown["tombstones"]), shown["absent"]) == (1, 1, [])


def test_keys_of_which_no_log_has_anything_are_counted(tmp_path: Path) -> None:
    """One that is misspelt would else look as if it were erased."""
    tombstone = Tombstone(key=0, topic="orders", partition=0, offset=9, timestamp_ms=1, sent=True)
    receipt = decoded(_receipt(tmp_path, tombstone)[0].read_bytes(), "it")
    misspelt = replace(receipt, receipt=replace(receipt.receipt, tombstones=(), absent=(0,)))
    assert "No log had anything" not in erased_text(Erasure("receipt.json", receipt))
    assert "No log had anything of 1 key: check how it is written." in erased_text(Erasure("receipt.json", misspelt))


def test_of_a_single_thing_no_plural_is_said(tmp_path: Path) -> None:
    """In what an erasure would do and has done, and in what is there later; of two things it is the plural."""
    tombstone = Tombstone(key=0, topic="orders", partition=0, offset=9, timestamp_ms=1, sent=True)
    kept = Finding(file="a", level="runs", what="tombstone", until_ms=0)
    receipt = decoded(_receipt(tmp_path, tombstone)[0].read_bytes(), "it")
    plan = _erase(tmp_path, "--key", KEY, "--dry-run").stdout
    later = [
        erased_text(Erasure("a", replace(receipt, receipt=replace(receipt.receipt, searched={"runs": n}, findings=f))))
        for n, f in ((1, (kept,)), (2, (kept, kept)))
    ]
    assert "1 value would get a tombstone, 0 keys have one in a partition." in plan
    assert "1 key, 1 tombstone sent, 0 snapshots and 0 run files removed, 1 file searched." in later[0]
    assert "1 tombstone is kept, until 1970-01-01" in later[0]
    assert "2 files searched." in later[1]
    assert "2 tombstones are kept, the last until 1970-01-01" in later[1]


def test_an_erasure_says_what_comes_next(tmp_path: Path) -> None:
    """One that waits for tombstones names the command that looks again, with its receipt."""
    tombstone = Tombstone(key=0, topic="orders", partition=0, offset=9, timestamp_ms=1, sent=True)
    signed = decoded(_receipt(tmp_path, tombstone)[0].read_bytes(), "it")

    def after(state: str) -> str | None:
        return next_step(Erasure("receipt.json", replace(signed, receipt=replace(signed.receipt, state=state))))

    assert "keyfold erase verify receipt.json" in (after("pending") or "")
    assert "Run the same command again" in (after("incomplete") or "")
    assert after("complete") is None


@pytest.mark.parametrize(
    ("words", "settings", "code", "said"),
    [
        ((), {}, 2, "No key is named"),
        (("--keys-from", "/nowhere/keys"), {}, 2, "cannot be read"),
        (("--key", KEY, "--topic", "other"), {}, 2, "keeps no topic other"),
        (("--key", "zz", "--hex"), {}, 2, "hexadecimal"),
        (("--key", KEY), {"cleanup.policy": "delete", "output.topic": "none"}, 3, "not folded by key"),
    ],
)
def test_what_cannot_be_erased_is_refused(
    words: tuple[str, ...], settings: dict[str, str], code: int, said: str, tmp_path: Path
) -> None:
    """Before anything is sent, with what to do instead."""
    keep(tmp_path, ROWS)
    result = _erase(tmp_path, *words, "--dry-run", **settings)
    assert (result.exit_code, said in result.stderr) == (code, True), result.stderr


def test_a_closed_topic_is_refused(tmp_path: Path) -> None:
    """Nothing reads a tombstone there."""
    keep(tmp_path, ROWS, [CloseTopic(topic="orders", reason="it was deleted")])
    result = _erase(tmp_path, "--key", KEY)
    assert (result.exit_code, "topic orders is closed" in result.stderr) == (2, True), result.stderr


def test_a_pinned_snapshot_is_named_and_refused(tmp_path: Path) -> None:
    """Nothing was done then; one without the key stands in no one's way."""
    kept = KeptSnapshots(tmp_path, snapshot_retention_count=9)
    with_key = kept.keep([engine_row(0, 0, KEY.encode(), b"v")])
    without = kept.keep([engine_row(0, 1, KEY.encode(), None), engine_row(0, 2, b"bob", b"v")])
    for name in (with_key, without):
        assert pins.pin(kept.shelf, f"c/t/{name}", 1)
    stored = tmp_path / "stores" / "c"  # as a worker has it
    stored.parent.mkdir()
    (tmp_path / "store").rename(stored)
    settings = {"erasure.key.file": str(tmp_path / "key.pem"), "storage.location": str(stored.parent)}
    worker = worker_file(tmp_path, **settings)
    result = invoke("erase", kept.connector, "--key", KEY, "--worker", worker)
    assert (result.exit_code, with_key in result.stderr, without in result.stderr) == (2, True, False), result.stderr
    shown = json.loads(invoke("erase", kept.connector, "--key", KEY, "--dry-run", "--json", "--worker", worker).stdout)
    assert shown["snapshots"] == [{"topic": "t", "id": with_key, "pinned": True, "why": "value"}]
    assert not (stored / "erasures").exists()


def test_a_misspelt_key_removes_no_snapshot(tmp_path: Path) -> None:
    """One of numbers cannot be compared with it: that goes only for a key that a log of its topic has."""
    keep(tmp_path, ROWS, [Publish(topic="orders", partition=0, end=4)])
    place = tmp_path / "snapshots"
    snapshot = place / "orders-keeper" / "orders" / "20260101T000000Z-00aa11"
    (snapshot / "data").mkdir(parents=True)
    pq.write_table(pa.table({"_key": [7], "_offset": [3]}), snapshot / "data" / "part.parquet")
    expected = {"topic": "orders", "id": snapshot.name, "pinned": False, "why": "unsearched"}
    settings = {"snapshot.location": str(place)}
    for key, goes in ((KEY, True), (f"{KEY}x", False), ("gone", True)):
        shown = json.loads(_erase(tmp_path, "--key", key, "--dry-run", "--json", **settings).stdout)
        assert (shown["snapshots"], shown["unsearched"]) == (([expected], []) if goes else ([], [expected])), key
    assert "would stay: its keys cannot" in _erase(tmp_path, "--key", f"{KEY}x", "--dry-run", **settings).stdout
    worker = worker_file(tmp_path, **{"erasure.key.file": str(tmp_path / "key.pem")})
    result = invoke("erase", connector_file(tmp_path, **settings), "--key", f"{KEY}x", "--json", "--worker", worker)
    receipt = json.loads(result.stdout)["signed"]["receipt"]
    assert (receipt["absent"], receipt["snapshots_removed"], receipt["state"]) == ([0], [], "incomplete")
    assert (result.exit_code, snapshot.exists()) == (1, True)
    table = snapshot.parent / "delta"
    table.mkdir()
    pq.write_table(pa.table({"_key": [7], "_offset": [3]}), table / "part.parquet")
    for key, tables in ((KEY, ["orders"]), (f"{KEY}x", []), ("gone", ["orders"])):
        shown = json.loads(_erase(tmp_path, "--key", key, "--dry-run", "--json", **settings).stdout)
        assert shown["tables"] == tables, key


def test_a_receipt_has_no_value_of_a_partition(tmp_path: Path) -> None:
    """It may be that of a key which is erased later: the folder is named without it."""
    keep(tmp_path, ROWS, [Publish(topic="orders", partition=0, end=4)])
    folder = tmp_path / "snapshots" / "orders-keeper" / "orders" / "20260101T000000Z-00aa11" / "data" / "name=bob of it"
    folder.mkdir(parents=True)
    for name, keys in (("a", [b"bob"]), ("b", [7])):
        pq.write_table(pa.table({"_key": keys, "_partition": [0], "_offset": [1]}), folder / f"{name}.parquet")
    worker = worker_file(tmp_path, **{"erasure.key.file": str(tmp_path / "key.pem")})
    connector = connector_file(tmp_path, **{"snapshot.location": str(tmp_path / "snapshots")})
    shown = invoke("erase", connector, "--key", "nobody", "--json", "--worker", worker).stdout
    assert "bob of it" not in shown
    receipt = json.loads(shown)["signed"]["receipt"]
    for files in (receipt["files"], [each["file"] for each in receipt["findings"]]):
        assert f"{folder.parent}/name=…/b.parquet" in files


def test_a_tombstone_that_is_not_published_is_waited_for(tmp_path: Path) -> None:
    """Not for ever: exit code 4, nothing is removed, and a further run goes on with the same receipt."""
    keep(tmp_path, ROWS)
    words = "erase", connector_file(tmp_path), "--key", "gone", "--timeout", "1"
    worker = worker_file(tmp_path, **{"erasure.key.file": str(tmp_path / "key.pem")})
    with live_worker(storage_of(tmp_path), {}) as asked:
        for _ in range(2):
            result = invoke(*words, "--worker", worker)
            assert (result.exit_code, "orders-0 at offset 3" in result.stderr) == (4, True), result.stderr
    assert (asked, len(storage_of(tmp_path).list("erasures"))) == ([], 1)


def test_a_key_that_is_kept_under_other_bytes_is_refused(tmp_path: Path) -> None:
    """A typed snapshot has its row: that would be removed, and come again with the next snapshot."""
    schema = b'{"schema": {"type": "struct"}, "payload": {"id": 1}}'
    keep(tmp_path, [row(0, schema, b"v")], [Publish(topic="orders", partition=0, end=1)])
    snapshot = tmp_path / "snapshots" / "orders-keeper" / "orders" / "20260101T000000Z-00aa11" / "data"
    snapshot.mkdir(parents=True)
    table = pa.table({"_key": [{"id": 1}], "_partition": [0], "_offset": [0]})
    pq.write_table(table, snapshot / "part.parquet")
    settings = {"snapshot.location": str(tmp_path / "snapshots")}
    for words in ((), ("--dry-run",)):
        refused = _erase(tmp_path, "--key", '{"id":1}', *words, **settings)
        assert (refused.exit_code, "orders-0 at offset 0. Nothing was done." in refused.stderr) == (2, True)
        assert f"--hex --key {schema.hex()}" in refused.stderr
    shown = json.loads(_erase(tmp_path, "--key", schema.decode(), "--dry-run", "--json", **settings).stdout)
    assert [each["offset"] for each in shown["values"]] == [0]
    absent = _erase(tmp_path, "--key", '{"id":2}', "--dry-run", **settings)
    assert (absent.exit_code, "keyfold dump" in absent.stderr) == (0, True)


def test_a_typed_key_that_is_given_as_json_is_refused(tmp_path: Path, registry: Registry) -> None:
    """Its bytes of Avro are named; a record of another key, of a generation with the same offsets, refuses nothing."""
    schema = {"type": "record", "name": "K", "fields": [{"name": "id", "type": "long"}]}
    keys = [registry.avro(schema, {"id": number}) for number in (1, 2)]
    keep(tmp_path, [row(at, key, b"v") for at, key in enumerate(keys)], [Publish(topic="orders", partition=0, end=2)])
    snapshot = tmp_path / "snapshots" / "orders-keeper" / "orders" / "20260101T000000Z-00aa11" / "data"
    snapshot.mkdir(parents=True)
    table = pa.table({"_key": [{"id": 1}, {"id": 3}], "_partition": [0, 0], "_offset": [0, 1]})
    pq.write_table(table, snapshot / "part.parquet")
    settings = {"snapshot.location": str(tmp_path / "snapshots"), **registry.settings(side="key")}
    refused = _erase(tmp_path, "--key", '{"id":1}', "--dry-run", **settings)
    assert (refused.exit_code, f"--hex --key {keys[0].hex()}" in refused.stderr) == (2, True), refused.stderr
    shown = json.loads(_erase(tmp_path, "--hex", "--key", keys[0].hex(), "--dry-run", "--json", **settings).stdout)
    assert [each["offset"] for each in shown["values"]] == [0]
    assert _erase(tmp_path, "--key", '{"id":3}', "--dry-run", **settings).exit_code == 0


def _receipt(folder: Path, *tombstones: Tombstone, **changes: Any) -> tuple[Path, Path]:
    """A signed receipt of the key, and the worker file to verify it with."""
    catalog = keep(folder, ROWS)
    receipt = Receipt(
        id="1",
        connector=catalog.state.connector,
        catalog_id=catalog.state.catalog_id,
        storage=str(folder / "store"),
        snapshot_location=None,
        table="none",
        salt="0a" * 16,
        keys=erased_keys(bytes.fromhex("0a" * 16), [KEY.encode()]),
        began_ms=1,
        ended_ms=2,
        state="complete",
        tombstones=tombstones,
    )
    file, key = folder / "receipt.json", folder / "key.pem"
    file.write_bytes(encoded(signing.sign(replace(receipt, **changes), signing.private_key(key))))
    return file, worker_file(folder, **{"erasure.key.file": str(key)})


@pytest.mark.parametrize("words", [(), ("--key", KEY)])
def test_verify_finds_a_value_that_a_receipt_denies(words: tuple[str, ...], tmp_path: Path) -> None:
    """By the hashes or by the keys: file, partition, offset, and exit code 1."""
    end = Tombstone(key=0, topic="orders", partition=0, offset=9, timestamp_ms=1, sent=True)
    file, worker = _receipt(tmp_path, end)
    result = invoke("erase", "verify", file, *words, "--worker", worker, "--json")
    shown = json.loads(result.stdout)
    assert (result.exit_code, shown["fault"], shown["state"]) == (1, None, "incomplete")
    assert [(each["what"], each["offset"]) for each in shown["findings"]] == [("value", 0), ("value", 2)]
    assert shown["searches_bytes"] is bool(words)
    text = invoke("erase", "verify", file, *words, "--worker", worker).stdout
    assert "The signature is valid." in text
    assert "runs/1-test.parquet: a value, orders-0 at offset 2" in text


def test_verify_tells_what_came_after_the_tombstone(tmp_path: Path) -> None:
    """A key that is written again lives: that is no fault of the erasure."""
    before = Tombstone(key=0, topic="orders", partition=0, offset=-1, timestamp_ms=1, sent=True)
    file, worker = _receipt(tmp_path, before)
    result = invoke("erase", "verify", file, "--worker", worker, "--json")
    shown = json.loads(result.stdout)
    assert (result.exit_code, {each["what"] for each in shown["findings"]}) == (0, {"rewritten"})


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="a file that the system cannot read from its start")
def test_verify_names_a_file_that_the_system_cannot_read(tmp_path: Path) -> None:
    """Exit code 1: nobody has looked whether it has a key. All others are searched."""
    before = Tombstone(key=0, topic="orders", partition=0, offset=-1, timestamp_ms=1, sent=True)
    file, worker = _receipt(tmp_path, before)
    (Path(storage_of(tmp_path).location) / "a.json").symlink_to("/proc/self/mem")
    result = invoke("erase", "verify", file, "--key", KEY, "--worker", worker, "--json")
    shown = json.loads(result.stdout)
    named = [Path(each["file"]).name for each in shown["findings"] if each["what"] == "unsearched"]
    assert (result.exit_code, shown["state"], named) == (1, "incomplete", ["a.json"])


def test_verify_finds_bytes_in_any_file(tmp_path: Path) -> None:
    """Whatever has written them there, if the keys are given."""
    before = Tombstone(key=0, topic="orders", partition=0, offset=-1, timestamp_ms=1, sent=True)
    file, worker = _receipt(tmp_path, before)
    storage_of(tmp_path).write("status.json", json.dumps({"error": f"of {KEY}"}).encode())
    words = "erase", "verify", file, "--worker", worker, "--json"
    assert invoke(*words).exit_code == 0
    result = invoke(*words, "--key", KEY)
    found = [each["file"] for each in json.loads(result.stdout)["findings"] if each["what"] == "bytes"]
    assert (result.exit_code, [Path(each).name for each in found]) == (1, ["status.json"])


@pytest.mark.parametrize(
    ("changes", "words", "said"),
    [
        ({"catalog_id": "another"}, (), "has not that one"),
        ({"salt": "zz"}, (), "is no receipt"),
        ({}, ("--key", "bob"), "are not the 1 of the receipt"),
    ],
)
def test_verify_refuses_what_is_not_of_this_storage(
    changes: dict[str, Any], words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """An empty folder would say that all is well."""
    file, worker = _receipt(tmp_path, **changes)
    result = invoke("erase", "verify", file, *words, "--worker", worker)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


def test_verify_reads_a_receipt_where_it_lies_in_a_store(tmp_path: Path, moto: RunningStore) -> None:
    """By its URL, as `erase` has named it, and with what the worker file says of the store."""
    before = Tombstone(key=0, topic="orders", partition=0, offset=-1, timestamp_ms=1, sent=True)
    file, _ = _receipt(tmp_path, before)
    worker = worker_file(tmp_path, **{"erasure.key.file": str(tmp_path / "key.pem")}, **moto.keys(moto.url))
    bucket = open_storage(f"{moto.location}/{tmp_path.name}", moto.options())
    bucket.write("erasures/1.json", file.read_bytes())
    result = invoke("erase", "verify", f"{bucket.location}/erasures/1.json", "--worker", worker, "--json")
    assert (result.exit_code, json.loads(result.stdout)["fault"]) == (0, None), result.stderr
    absent = invoke("erase", "verify", f"{bucket.location}/erasures/2.json", "--worker", worker)
    assert (absent.exit_code, "there is no such object" in absent.stderr) == (2, True), absent.stderr


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("nowhere.json", "No such file"),
        ("ftp://host/1.json", "no stores of the scheme ftp"),
        ("s3://bucket", "it is a whole store"),
        ("s3://bucket/", "it is a whole store"),
    ],
)
def test_verify_names_a_receipt_that_cannot_be_read(file: str, said: str, tmp_path: Path) -> None:
    """Exit code 2, with the reason."""
    result = invoke("erase", "verify", file, "--worker", worker_file(tmp_path))
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


def test_keys_that_cannot_be_compared_hold_up_no_table(tmp_path: Path) -> None:
    """A table's newest version is from after the tombstones; a snapshot says by its offsets from when it is."""
    place = tmp_path / "snapshots"
    snapshot = place / "orders-keeper" / "orders" / "20260101T000000Z-00aa11" / "data"
    table = place / "orders-keeper" / "orders" / "delta"
    for folder in (snapshot, table):
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"_key": [7], "_offset": [3]}), folder / "part.parquet")
    end = Tombstone(key=0, topic="orders", partition=0, offset=-1, timestamp_ms=1, sent=True)
    file, worker = _receipt(tmp_path, end, snapshot_location=str(place))
    words = "erase", "verify", file, "--worker", worker, "--json"
    shown = json.loads(invoke(*words).stdout)
    assert {each["what"] for each in shown["findings"]} == {"rewritten", "uncompared", "unsearched"}
    assert shown["state"] == "incomplete"
    shutil.rmtree(snapshot)
    shown = json.loads(invoke(*words).stdout)
    assert ({each["what"] for each in shown["findings"]}, shown["state"]) == ({"rewritten", "uncompared"}, "complete")


def test_verify_refuses_a_receipt_that_was_changed(tmp_path: Path) -> None:
    """It searches all the same, and ends with exit code 1."""
    file, worker = _receipt(tmp_path, keys=erased_keys(bytes.fromhex("0a" * 16), [b"nobody"]))
    file.write_text(file.read_text().replace('"state": "complete"', '"state": "pending"'))
    result = invoke("erase", "verify", file, "--worker", worker)
    assert (result.exit_code, "was changed" in result.stdout) == (1, True), result.stdout
