"""The snapshot location may be full, denied or away: snapshots wait for it, and nothing else does; without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from compactor.errors import DamagedFileError, SnapshotError, SnapshotHiddenError, SnapshotStorageError, StorageError
from compactor.runs.parquet_file import ParquetFile
from compactor.snapshot import listing, location, manifest
from compactor.snapshot.location import SnapshotBackoff, SnapshotFailure, snapshot_storage
from compactor.storage.local import LocalStorage
from tests.support.memory.storage import FailingStorage, lose_answer
from tests.support.snapshot_connectors import HOUR, SnapshotConnector


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> SnapshotConnector:
    return SnapshotConnector(monkeypatch)


def full() -> None:
    raise StorageError("Could not write: No space left on device.", "Free space, or move storage.location.")


def test_snapshots_wait_longer_each_time_until_one_succeeds(world: SnapshotConnector) -> None:
    """A minute, two, four; only the mark is left of each; the trouble is noted. Both go afterwards."""
    tries = []
    for minute in range(9):
        world.place.before("write", full, manifest.NAME)
        before = len(world.place.plan)
        world.take(minute * 60_000)
        if len(world.place.plan) < before:
            tries.append(minute)
        world.place.plan.clear()
    assert tries == [0, 1, 3, 7]
    found = location.read_note(world.storage)
    assert found is not None
    assert (found.failures, found.since_ms, found.retry_ms) == (4, 0, 15 * 60_000)
    assert "No space left on device. Free space, or move snapshot.location." in found.error
    assert {info.path.rpartition("/")[2] for info in world.place.walk("")} == {location.MARK}
    assert not world.take(14 * 60_000)
    assert world.take(15 * 60_000)
    assert location.read_note(world.storage) is None
    assert world.latest() == world.complete()[0]
    assert list(listing.list_ids(world.place, world.catalog.state, "t")) == [world.latest()]


def test_a_clock_that_is_set_back_lets_no_snapshot_wait_for_ever() -> None:
    """The longest wait is an hour, by whatever clock."""
    waiting = SnapshotBackoff().failed(SnapshotStorageError("Full."), 100 * HOUR)
    assert waiting.due(["t"], ["t"], 100 * HOUR) == []
    assert waiting.due(["t"], ["t"], 0) == ["t"]
    for _ in range(20):
        waiting = waiting.failed(SnapshotStorageError("Full."), 100 * HOUR)
    assert waiting.failure is not None
    assert waiting.failure.retry_ms == 101 * HOUR


def test_a_topic_that_failed_alone_holds_up_no_other() -> None:
    """It waits by itself, also past the others' success, and is over once it has succeeded or is not open any more."""
    waiting = SnapshotBackoff().failed(SnapshotError("No text.", topics=frozenset({"a"})), 0)
    assert waiting.due("ab", "ab", 1) == ["b"]
    assert waiting.due("ab", "a", 1) == []
    assert waiting.due("ab", "ab", 60_000) == ["a", "b"]
    assert waiting.succeeded(["b"], ["a", "b"]) == waiting
    assert waiting.succeeded(["a"], ["a", "b"]) == waiting.succeeded(["b"], ["b"]) == SnapshotBackoff()
    everything = waiting.failed(SnapshotStorageError("Full."), 0)
    assert (everything.topics, everything.due("ab", "ab", 1)) == (None, [])
    assert everything.succeeded(["b"], ["a", "b"]) == SnapshotBackoff()


def test_a_snapshot_waits_until_readers_see_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic whose output lacks its markers is left out and due again a minute later; the others' are taken."""
    world = SnapshotConnector(monkeypatch, topics=("t", "u"))
    world.broker.late = {"t"}
    with pytest.raises(SnapshotHiddenError, match="topic t is taken: t has no markers yet"):
        world.snapshots.take(0)
    assert [one.topic for one in world.catalog.state.snapshots] == ["u"]
    assert not world.place.exists("c/t")
    assert not world.take(0)
    note = location.read_note(world.storage)
    assert note is not None
    assert note.retry_ms == 60_000
    world.broker.late.clear()
    assert world.take(60_000)
    assert [one.topic for one in world.catalog.state.snapshots] == ["u", "t"]


def test_a_snapshot_that_is_in_the_catalog_is_taken(world: SnapshotConnector) -> None:
    """Where LATEST cannot be written, or what is dropped not removed, the next vacuum and snapshot make up for it."""
    assert world.take(0)
    first = world.latest()
    world.place.before("write", full, listing.LATEST)
    assert world.take(HOUR)
    assert world.latest() == first
    world.snapshots.repair()
    assert world.latest() != first
    world.place.before("delete", full, manifest.NAME)
    assert world.take(2 * HOUR)
    assert len(world.complete()) == 3
    assert world.take(3 * HOUR)
    assert world.complete() == [world.latest()]


def test_a_life_begins_beside_a_location_that_is_away(world: SnapshotConnector) -> None:
    """What an earlier life left undone waits as well; what it noted is forgotten."""
    world.take(0)
    world.place.before("exists", lose_answer)
    location.write_note(world.storage, SnapshotFailure(since_ms=0, retry_ms=1, failures=1, error="x"))
    world.begin()
    assert location.read_note(world.storage) is None


def test_latest_never_names_what_is_not_there(world: SnapshotConnector) -> None:
    """A catalog that was restored may name a snapshot that a later one has dropped: LATEST stays what it is."""
    world.take(0)
    (taken,) = world.catalog.state.snapshots
    listing.delete(world.place, taken.path)
    world.place.write("c/t/LATEST", b"20261121T023000Z-later\n")
    listing.repair_latest(world.place, world.catalog.state)
    assert world.latest() == "20261121T023000Z-later"
    world.place.write(f"{taken.path}/{manifest.NAME}", b"{}")
    listing.repair_latest(world.place, world.catalog.state)
    assert world.latest() == taken.id
    world.place.write("c/t/LATEST", b"an older one, of an owner that slept\n")
    listing.repair_latest(world.place, replace(world.catalog.state))
    assert world.latest() == taken.id


def test_a_note_that_is_no_note_is_nothing(world: SnapshotConnector) -> None:
    """Describe shows the rest."""
    world.storage.write(location.NOTE, b"{")
    assert location.read_note(world.storage) is None


def test_every_refusal_of_the_location_is_told_from_the_stores_own(tmp_path: Path) -> None:
    """Whatever method refuses; and an error of what is being written stays what it is."""
    inner = FailingStorage(LocalStorage(str(tmp_path)))
    place = pickle.loads(pickle.dumps(snapshot_storage(LocalStorage(str(tmp_path))))).sub("deeper")
    place.write("a", b"1")
    assert (place.read("a"), place.list(""), place.location) == (b"1", ["a"], f"{tmp_path}/deeper")
    failing = snapshot_storage(inner)
    calls: dict[str, Callable[[], object]] = {
        "read": lambda: failing.read("a"),
        "create": lambda: failing.create("a", b""),
        "write": lambda: failing.write("a", b""),
        "copy": lambda: failing.copy("a", "b"),
        "link": lambda: failing.link("a", "b"),
        "list": lambda: failing.list(""),
        "walk": lambda: failing.walk(""),
        "unfinished": lambda: failing.unfinished(""),
        "delete": lambda: failing.delete("a"),
        "delete_folder": lambda: failing.delete_folder("a"),
        "exists": lambda: failing.exists("a"),
        "open_input": lambda: failing.open_input("a"),
        "open_output": lambda: ParquetFile(failing, "a", pa.schema([])),
        "lock": lambda: failing.lock("a"),
        "locked_by": lambda: failing.locked_by("a"),
    }
    for method, call in calls.items():
        inner.before(method, full)
        with pytest.raises(SnapshotStorageError, match=r"No space left on device.*snapshot\.location"):
            call()
    with pytest.raises(DamagedFileError), failing.open_output("b"):
        raise DamagedFileError("Of a run.")
    (tmp_path / "c").write_bytes(b"")
    with pytest.raises(SnapshotStorageError, match="exists already"), failing.open_output("c"):
        pass
