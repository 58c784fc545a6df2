"""What a worker knows of its connectors after a restart: files that are there whole or not at all, and one owner."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import stat
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

import pytest
import structlog

from compactor.catalog.owner_lock import this_process
from compactor.errors import StorageError
from compactor.storage.local import LocalStorage
from connectors.config.files import load_worker
from connectors.config.stores import worker_storage
from connectors.errors import SupersededError
from connectors.runtime.lifecycle import TargetState
from connectors.runtime.specs.connector_store import FOLDER, ConnectorStore, StoredConnector
from tests.support.cli import worker_file
from tests.support.stores.running import RunningStore

CONFIG: Final = {"name": "a", "connector.class": "keyfold.CompactedTopic", "topics": "t"}
START_S: Final = 30.0
NO_NAMES: Final = (
    "",
    ".",
    "..",
    "../a",
    "a/../../b",
    "/a",
    "a/b",
    "a\\b",
    ".a",
    "a.",
    "a b",
    "a\n",
    "a\0",
    "ä",
    "a" * 201,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / FOLDER


@pytest.fixture
def store(folder: Path) -> ConnectorStore:
    return opened(folder)


def opened(folder: Path) -> ConnectorStore:
    """The store as a worker's next start opens it."""
    return ConnectorStore(LocalStorage(str(folder)))


def connector(name: str = "a", state: TargetState = TargetState.RUNNING, /, **more: str) -> StoredConnector:
    return StoredConnector(name=name, target_state=state, config={**CONFIG, "name": name, **more})


def target(store: ConnectorStore, name: str) -> TargetState:
    return store.targets([name])[name]


def version(name: str, number: int) -> str:
    """The name of the file that holds a version."""
    return f"{name}@{number:020d}.json"


def written(folder: Path, path: str, text: str | bytes) -> Path:
    """Writes a file of the store as a hand, or another version, would."""
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def test_a_new_store_is_empty(folder: Path, store: ConnectorStore) -> None:
    """There is nothing in it, nobody has it, deleting changes nothing, and asking makes no folder."""
    assert list(store.connectors()) == []
    assert target(store, "a") is TargetState.RUNNING
    assert store.owner() is None
    store.delete("a")
    store.put_target("a", TargetState.RUNNING)
    store.release()
    assert not folder.exists()


def test_it_lies_in_the_workers_storage(tmp_path: Path) -> None:
    """Connectors are kept in .worker/connectors of storage.location, by version, target states of files beside them."""
    worker = load_worker(worker_file(tmp_path))
    store = ConnectorStore.of(worker)
    store.put(connector("a", TargetState.PAUSED))
    store.put_target("b", TargetState.STOPPED)
    folder = tmp_path / "store" / ".worker"
    assert store.location == str(folder)
    assert json.loads((folder / "connectors" / version("a", 1)).read_text()) == {
        "format_version": 1,
        "name": "a",
        "target_state": "PAUSED",
        "config": CONFIG,
    }
    assert json.loads((folder / "targets" / version("b", 1)).read_text()) == {"target_state": "STOPPED"}


@pytest.mark.parametrize("state", TargetState)
def test_what_is_put_is_read_by_a_new_store(folder: Path, store: ConnectorStore, state: TargetState) -> None:
    """Name, config and what it is to be are as they were put, by name; a second put replaces the first."""
    put = [
        connector("b", state, topics="ünïcode, “x”\n"),
        connector("a", **{"tasks.max": "3"}),
        connector("a-2", state),
    ]
    for one in (connector("b"), *put):
        store.put(one)
    assert list(opened(folder).connectors()) == sorted(put, key=lambda one: one.name)


def test_a_placeholder_is_kept_as_one(folder: Path, store: ConnectorStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret is not resolved when it is kept, and only this account may read the file."""
    monkeypatch.setenv("TEST_SECRET", "geheim-4711")
    store.put(connector(**{"consumer.override.sasl.password": "${env:TEST_SECRET}"}))
    file = folder / "connectors" / version("a", 1)
    assert "${env:TEST_SECRET}" in file.read_text()
    assert "geheim" not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_connector_that_cannot_be_written_is_what_it_was(
    folder: Path, store: ConnectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk that is full nothing changes, and nothing is left behind."""
    store.put(connector())

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        changes: tuple[Callable[[], Any], ...] = (
            lambda: store.put(connector(topics="other")),
            lambda: store.put(connector("b")),
            lambda: store.put_target("c", TargetState.STOPPED),
        )
        for change in changes:
            with pytest.raises(StorageError, match="No space left on device"):
                change()
    assert list(opened(folder).connectors()) == [connector()]
    assert target(opened(folder), "c") is TargetState.RUNNING
    assert [path.name for path in folder.rglob("*") if path.is_file()] == [version("a", 1)]


def _die_while_writing(folder: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: os.kill(os.getpid(), signal.SIGKILL))
        ConnectorStore(LocalStorage(folder)).put(connector(topics="other"))


def test_a_writer_that_is_killed_leaves_no_half_connector(folder: Path, store: ConnectorStore) -> None:
    """What was being written lies under a temporary name, which counts as no connector."""
    store.put(connector())
    writer = multiprocessing.get_context("spawn").Process(target=_die_while_writing, args=(str(folder),))
    writer.start()
    writer.join(START_S)
    assert writer.exitcode == -signal.SIGKILL
    written(folder, "connectors/.tmp-1-a.json", '{"name": "tmp", "config": {}}')
    assert len(LocalStorage(str(folder)).unfinished("")) == 2
    with structlog.testing.capture_logs() as logged:
        assert list(opened(folder).connectors()) == [connector()]
    assert logged == []


@pytest.mark.parametrize("name", ["a.json.bak", "a.txt", "a", "a b.json", ".json", "-a.json", "a..json"])
def test_other_files_are_no_connectors(folder: Path, store: ConnectorStore, name: str) -> None:
    """A file counts by its name, which is a connector's."""
    store.put(connector("b"))
    written(folder, f"connectors/{name}", json.dumps({"name": name.removesuffix(".json"), "config": CONFIG}))
    assert [one.name for one in store.connectors()] == ["b"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "truncated"),
        ('{"name": "b", "config"', "truncated"),
        (b'{"name": "\xff", "config": {}}', "utf-8"),
        ("[]", "Expected `object`"),
        ('{"name": "b"}', "missing required field `config`"),
        ('{"config": {}}', "missing required field `name`"),
        ('{"name": "b", "config": {"tasks.max": 1}}', "Expected `str`, got `int`"),
        ('{"name": "b", "config": {}, "target_state": "DONE"}', "Invalid enum value - at `$.target_state`"),
        ('{"name": "a", "config": {}}', "it holds another connector"),
        ('{"format_version": 2, "name": "b", "config": {}}', "it has format 2, this keyfold reads 1"),
    ],
)
def test_a_damaged_connector_is_left_out(folder: Path, store: ConnectorStore, content: str | bytes, said: str) -> None:
    """The log names its file and what is wrong; the others are read, and the file stays as it is."""
    store.put(connector("a"))
    store.put(connector("c"))
    file = written(folder, "connectors/b.json", content)
    before = file.read_bytes()
    with structlog.testing.capture_logs() as logged:
        assert [one.name for one in store.connectors()] == ["a", "c"]
    assert [(line["event"], line["file"]) for line in logged] == [("stored connector cannot be read", str(file))]
    assert said.lower() in logged[0]["error"].lower()
    assert file.read_bytes() == before


def test_a_connector_of_the_first_version_is_read(folder: Path, store: ConnectorStore) -> None:
    """Fields that are left out have their defaults, those of later versions are passed over."""
    written(folder, "connectors/a.json", '{"name": "a", "config": {"topics": "t"}, "later": [1]}')
    assert list(store.connectors()) == [StoredConnector(name="a", config={"topics": "t"})]


def test_target_states_of_files(folder: Path, store: ConnectorStore) -> None:
    """Each is read by a new store; RUNNING is that of a connector without a file, and nothing is kept for it."""
    for state in (TargetState.PAUSED, TargetState.STOPPED, TargetState.RUNNING):
        store.put_target("a", state)
        assert target(opened(folder), "a") is state
    assert target(opened(folder), "b") is TargetState.RUNNING
    assert list(store.connectors()) == []


@pytest.mark.parametrize(
    "content", ["", "{", b"\xff", "[]", "{}", '{"target_state": "DONE"}', '{"target_state": null}']
)
def test_a_damaged_target_state_is_running(folder: Path, store: ConnectorStore, content: str | bytes) -> None:
    """The log names its file, and the connector runs."""
    file = written(folder, "targets/a.json", content)
    with structlog.testing.capture_logs() as logged:
        assert target(store, "a") is TargetState.RUNNING
    assert [(line["event"], line["file"]) for line in logged] == [("stored target state cannot be read", str(file))]


def test_deleting_forgets_all_of_a_connector(folder: Path, store: ConnectorStore) -> None:
    """Its config and its target state are gone, those of others stay."""
    for name in ("a", "b"):
        store.put(connector(name))
        store.put_target(name, TargetState.STOPPED)
    store.delete("a")
    assert [one.name for one in opened(folder).connectors()] == ["b"]
    assert (target(store, "a"), target(store, "b")) == (TargetState.RUNNING, TargetState.STOPPED)


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_is_no_name_leads_nowhere(tmp_path: Path, store: ConnectorStore, name: str) -> None:
    """A name becomes a part of a path, so every way in refuses one that is none, and touches no file."""
    outside = written(tmp_path, "a.json", "{}")
    calls: tuple[Callable[[], Any], ...] = (
        lambda: store.put(connector(name)),
        lambda: store.put_target(name, TargetState.STOPPED),
        lambda: store.put_target(name, TargetState.RUNNING),
        lambda: target(store, name),
        lambda: store.delete(name),
    )
    for call in calls:
        with pytest.raises(StorageError, match="is no connector's name"):
            call()
    assert list(tmp_path.rglob("*")) == [outside]


def test_storage_that_refuses_is_an_error(tmp_path: Path) -> None:
    """Where a file stands in the folder's place every method says so."""
    store = opened(written(tmp_path, "here", "no folder"))
    calls: tuple[Callable[[], Any], ...] = (
        store.claim,
        store.owner,
        lambda: list(store.connectors()),
        lambda: store.put(connector()),
        lambda: store.delete("a"),
        lambda: store.put_target("a", TargetState.STOPPED),
    )
    for call in calls:
        with pytest.raises(StorageError, match="A file stands where a folder should be"):
            call()


def test_one_store_has_it_at_a_time(folder: Path, store: ConnectorStore) -> None:
    """Claiming again keeps it, another one gets it when it was given back, and giving back twice is nothing."""
    other = opened(folder)
    assert store.claim()
    assert store.claim()
    assert not other.claim()
    other.release()
    assert other.owner() == store.owner() == this_process()
    store.release()
    store.release()
    assert store.owner() is None
    assert other.claim()
    other.release()


def _hold(folder: str, held: Event) -> None:
    assert ConnectorStore(LocalStorage(folder)).claim()
    held.set()
    signal.pause()


def test_a_second_worker_gets_it_when_the_first_has_ended(folder: Path, store: ConnectorStore) -> None:
    """A worker that lives keeps it and is named; one that was killed has it no more."""
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    worker = context.Process(target=_hold, args=(str(folder), held))
    worker.start()
    assert held.wait(START_S)
    owner = store.owner()
    assert owner is not None
    assert owner.pid == worker.pid
    assert not store.claim()
    assert store.owner() == owner
    worker.kill()
    worker.join(START_S)
    assert store.owner() is None
    assert store.claim()
    assert store.owner() == this_process()
    store.release()


def test_it_lies_in_a_bucket(tmp_path: Path, moto: RunningStore) -> None:
    """By the same names; the lock is a lease there."""
    worker = load_worker(
        worker_file(tmp_path, **{"storage.location": f"{moto.location}/{tmp_path.name}", **moto.worker_keys()})
    )
    store, other = ConnectorStore.of(worker), ConnectorStore.of(worker)
    assert store.claim()
    assert not other.claim()
    for one in (connector("a"), connector("b"), connector("b", TargetState.PAUSED)):
        store.put(one)
    store.delete("a")
    store.put_target("c", TargetState.STOPPED)
    assert list(other.connectors()) == [connector("b", TargetState.PAUSED)]
    assert target(other, "c") is TargetState.STOPPED
    assert worker_storage(worker).list(f"{FOLDER}/connectors") == [version("a", 2), version("b", 2)]
    store.put(connector("a"))
    with pytest.raises(SupersededError):
        other.put(connector("a", TargetState.STOPPED))
    store.release()
    assert other.claim()
    other.release()
