"""What is removed, and what never is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from compactor import failpoints
from compactor.catalog import requests
from compactor.catalog.catalog import Catalog
from compactor.catalog.commits import FOLDER, commit_path
from compactor.catalog.requests import Answer
from compactor.clean.vacuum import Vacuumed, purge_runs, removable, vacuum
from compactor.errors import CatalogError, FailpointError, FencedError, StorageError
from compactor.model.actions import PlanFold
from compactor.model.state import CatalogState
from compactor.storage.base import FileInfo
from compactor.storage.local import LocalStorage
from tests.support.catalogs import NOW, append, clean, deciding, end, owned, publish
from tests.support.clocks import ManualClock
from tests.support.memory.storage import FailingStorage, MemoryStorage, lose_answer
from tests.support.requests import leave

GRACE = 60_000

STATE = CatalogState(epoch=5)


def dropped_at(path: str) -> int:
    """One file was dropped at 50, no commit ever named any other."""
    return 50 if path == "runs/5-aa-dropped.parquet" else 0


@pytest.mark.parametrize(
    ("path", "modified_ms", "before_ms", "goes", "why"),
    [
        ("runs/5-aa-dropped.parquet", 10, 51, True, "dropped longer than the grace ago"),
        ("runs/5-aa-dropped.parquet", 10, 50, False, "old, but dropped just now"),
        ("runs/5-bb-failed.parquet", 10, 11, True, "its job has been silent for longer than the grace"),
        ("runs/5-bb-failed.parquet", 10, 10, False, "its job may still commit"),
        ("runs/5-cc-first.parquet", 10, 99, False, "old itself, but its job has just written another"),
        ("runs/5-dd-slow.parquet", 10, 999, False, "its job is said to be running"),
        ("runs/4-dd-old.parquet", 10, 999, True, "of a lower epoch: the name of its job says nothing"),
        ("runs/4-ee-old.parquet", 99, 50, False, "of a lower epoch, but young"),
        ("runs/6-ff-newer.parquet", 10, 999, False, "a newer owner's"),
        ("runs/notes.txt", 10, 999, False, "not ours"),
        ("runs/5-aa/x.parquet", 10, 999, False, "not ours"),
    ],
)
def test_removable(path: str, modified_ms: int, before_ms: int, goes: bool, why: str) -> None:
    """A run file goes when it was dropped, or its job is dead, for longer than the grace, and is not newer than us."""
    files = [FileInfo(path, 1, modified_ms), FileInfo("runs/5-cc-second.parquet", 1, 99)]
    gone = removable(files, STATE, dropped_at, before_ms, {"dd"})
    assert (path in [info.path for info in gone]) is goes, why


def _store() -> tuple[ManualClock, MemoryStorage]:
    clock = ManualClock(NOW)
    return clock, MemoryStorage(clock)


def _ingested(storage: MemoryStorage, clock: ManualClock) -> Catalog:
    """Two runs, both published."""
    catalog = owned(storage)
    for number in (1, 2):
        storage.create(f"runs/1-{number:08x}-x.parquet", b"1234")
        catalog.commit(deciding(append(number, f"runs/1-{number:08x}-x.parquet")), clock.now_ms())
    catalog.commit(lambda state: [publish(2)], clock.now_ms())
    return catalog


def test_an_erasure_waits_for_no_grace() -> None:
    """What no log names goes at once, also if the store's clock is ahead; what a job may still commit stays."""
    clock, storage = _store()
    catalog = _ingested(storage, clock)
    storage.create("runs/1-base-x.parquet", b"1234")
    catalog.commit(lambda state: [clean(2, "runs/1-base-x.parquet")], clock.now_ms())
    clock.advance(GRACE // 2)
    for name in ("running", "dead"):
        storage.create(f"runs/1-{name}-x.parquet", b"1234")
    clock.advance(-GRACE // 2)
    assert purge_runs(storage, catalog, clock.now_ms(), lambda: {"running"}).files == 3
    assert storage.list("runs") == ["1-base-x.parquet", "1-running-x.parquet"]


def test_dropped_files_go_after_the_grace() -> None:
    """Files that a base run replaced stay for the grace, counted from the commit that dropped them."""
    clock, storage = _store()
    catalog = _ingested(storage, clock)
    clock.advance(10 * GRACE)
    assert vacuum(storage, catalog, clock.now_ms(), GRACE).files == 0
    storage.create("runs/1-base-x.parquet", b"12345678")
    catalog.commit(lambda state: [clean(2, "runs/1-base-x.parquet")], clock.now_ms())
    assert vacuum(storage, catalog, clock.advance(GRACE), GRACE).files == 0
    done = vacuum(storage, catalog, clock.advance(1), GRACE)
    assert (done.files, done.bytes) == (2, 8)
    assert storage.list("runs") == ["1-base-x.parquet"]


def test_new_owner_removes_what_the_old_one_dropped() -> None:
    """A process that lives for one run only removes what earlier ones dropped, after the grace."""
    clock, storage = _store()
    catalog = _ingested(storage, clock)
    storage.create("runs/1-base-x.parquet", b"")
    catalog.commit(lambda state: [clean(2, "runs/1-base-x.parquet")], clock.advance(10 * GRACE))
    assert vacuum(storage, owned(storage, clock.now_ms()), clock.advance(GRACE), GRACE).files == 0
    assert vacuum(storage, owned(storage, clock.now_ms()), clock.advance(1), GRACE).files == 2


def test_uncommitted_files_go_after_the_grace() -> None:
    """Files of a job that died go once it has been silent for the grace; referenced ones never."""
    clock, storage = _store()
    catalog = _ingested(storage, clock)
    storage.create("runs/1-dead-x.parquet", b"")
    assert vacuum(storage, catalog, clock.advance(GRACE), GRACE).files == 0
    assert vacuum(storage, catalog, clock.advance(1), GRACE, running=lambda: {"dead"}).files == 0
    assert vacuum(storage, catalog, clock.now_ms(), GRACE).files == 1
    assert storage.list("runs") == ["1-00000001-x.parquet", "1-00000002-x.parquet"]


def test_commit_that_the_walk_did_not_know_is_seen() -> None:
    """A file that its own epoch commits between the listing and the deciding stays."""
    clock, inner = _store()
    catalog = _ingested(inner, clock)
    inner.create("runs/1-late-x.parquet", b"")
    storage = FailingStorage(inner)
    late = [append(3, "runs/1-late-x.parquet")]
    storage.after("walk", lambda: catalog.commit(lambda state: late, clock.now_ms()), "runs")
    assert vacuum(storage, catalog, clock.advance(10 * GRACE), GRACE).files == 0
    assert inner.exists("runs/1-late-x.parquet")


def test_a_job_that_begins_while_files_are_listed_is_known() -> None:
    """Whatever the clocks say of its files: it is running when that is asked, which is after they were listed."""
    clock, inner = _store()
    catalog = _ingested(inner, clock)
    storage = FailingStorage(inner)
    jobs: list[str] = []

    def begins() -> None:
        jobs.append("young")
        inner.create("runs/1-young-x.parquet", b"")

    storage.before("walk", begins, "runs")
    assert vacuum(storage, catalog, clock.now_ms() + 10 * GRACE, GRACE, running=lambda: tuple(jobs)).files == 0
    assert inner.exists("runs/1-young-x.parquet")


def _untouched(storage: MemoryStorage) -> list[str]:
    return [info.path for info in storage.walk("")]


def test_fenced_owner_removes_nothing() -> None:
    """An owner that was taken over from removes nothing."""
    clock, storage = _store()
    catalog = _ingested(storage, clock)
    storage.create("runs/1-dead-x.parquet", b"")
    owned(storage, clock.now_ms())
    files = _untouched(storage)
    with pytest.raises(FencedError):
        vacuum(storage, catalog, clock.advance(10 * GRACE), GRACE)
    assert _untouched(storage) == files


def test_stranger_removes_nothing() -> None:
    """An instance that owns nothing removes nothing."""
    clock, storage = _store()
    _ingested(storage, clock)
    storage.create("runs/1-dead-x.parquet", b"")
    files = _untouched(storage)
    with pytest.raises(CatalogError, match="only its owner"):
        vacuum(storage, Catalog.open(storage, "c"), clock.advance(10 * GRACE), GRACE)
    assert _untouched(storage) == files


def test_unreadable_catalog_removes_nothing() -> None:
    """Where the newest version cannot be read, nothing is removed."""
    clock, inner = _store()
    storage = FailingStorage(inner)
    _ingested(inner, clock)
    catalog = owned(storage, clock.now_ms())
    inner.create("runs/1-dead-x.parquet", b"")
    files = _untouched(inner)
    storage.before("list", lose_answer, FOLDER)
    with pytest.raises(StorageError):
        vacuum(storage, catalog, clock.advance(10 * GRACE), GRACE)
    inner.create(commit_path(catalog.version + 1), b"{")
    with pytest.raises(CatalogError):
        vacuum(storage, catalog, clock.now_ms(), GRACE)
    inner.delete(commit_path(catalog.version + 1))
    assert _untouched(inner) == files


def test_vacuum_that_slept_removes_nothing_of_a_newer_owner() -> None:
    """Between deciding and removing a new owner may come and go on: what it names is still there."""
    clock, inner = _store()
    storage = FailingStorage(inner)
    catalog = _ingested(inner, clock)
    inner.create("runs/1-dead-x.parquet", b"")
    kept: list[CatalogState] = []

    def another() -> None:
        new = owned(inner, clock.now_ms())
        inner.create("runs/2-new-x.parquet", b"")
        kept.append(new.commit(lambda state: [append(end(state) + 1, "runs/2-new-x.parquet")], clock.now_ms()))

    storage.before("delete", another)
    assert vacuum(storage, catalog, clock.advance(10 * GRACE), GRACE).files == 1
    assert all(inner.exists(path) for path in kept[0].paths)


def test_answered_requests_go() -> None:
    """Requests go the grace after their answer; unanswered ones stay."""
    clock, storage = _store()
    catalog = owned(storage)
    done, waiting = (leave(storage, "clean", NOW).id for _ in range(2))
    requests.begin(storage, done)
    requests.answer(storage, done, Answer(ok=True))
    vacuum(storage, catalog, clock.advance(GRACE + 1), GRACE)
    assert storage.list("requests") == [f"{waiting}.json"]


def test_temporary_files_go(tmp_path: Path) -> None:
    """What a dead writer left half made goes after the grace, a file that is being written stays."""
    storage = LocalStorage(str(tmp_path))
    catalog = owned(storage)
    for name, modified in ((".tmp-1-old", NOW - GRACE - 1), (".tmp-2-young", NOW)):
        (tmp_path / "runs").mkdir(exist_ok=True)
        (tmp_path / "runs" / name).write_bytes(b"")
        os.utime(tmp_path / "runs" / name, (modified / 1000, modified / 1000))
    vacuum(storage, catalog, NOW, GRACE)
    assert [file.name for file in (tmp_path / "runs").iterdir()] == [".tmp-2-young"]


def test_failpoint_stands_before_the_first_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    """vacuum.delete fires when everything is decided and nothing is removed."""
    clock, storage = _store()
    catalog = _ingested(storage, clock)
    storage.create("runs/1-dead-x.parquet", b"")
    files = _untouched(storage)
    monkeypatch.setenv(failpoints.VARIABLE, "vacuum.delete=error")
    with pytest.raises(FailpointError):
        vacuum(storage, catalog, clock.advance(10 * GRACE), GRACE)
    assert _untouched(storage) == files


def test_file_dropped_twice_counts_from_the_last_time() -> None:
    """A file shared by two partitions is dropped when the second lets it go."""
    clock, storage = _store()
    catalog = owned(storage)
    catalog.commit(lambda state: [append(2, "runs/1-a-x.parquet", start=0)], NOW)
    catalog.commit(lambda state: [PlanFold(topic="t", partition=0, end=1)], NOW)
    catalog.commit(lambda state: [publish(1)], NOW)
    catalog.commit(lambda state: [clean(1, "runs/1-b-x.parquet")], NOW + 1)
    assert "runs/1-a-x.parquet" in catalog.state.paths
    assert catalog.unreferenced_since("runs/1-a-x.parquet") == 0
    catalog.commit(lambda state: [publish(2)], NOW + 2)
    catalog.commit(lambda state: [clean(2, "runs/1-c-x.parquet")], clock.advance(GRACE))
    assert catalog.unreferenced_since("runs/1-a-x.parquet") == NOW + GRACE


def test_an_index_stays_while_a_log_names_it_and_is_missed_if_it_is_gone() -> None:
    """Its path is no file of records; a vacuum says which indexes are gone, so that they are made again."""
    clock, storage = _store()
    catalog = owned(storage)
    for path in ("runs/1-aa-x.parquet", "runs/1-aa-x.index", "runs/1-bb-x.index"):
        storage.create(path, b"1234")
    appended = append(1, "runs/1-aa-x.parquet")
    assert appended.run is not None
    files = tuple(replace(file, index="runs/1-aa-x.index:4:4:ab:0:0") for file in appended.run.files)
    catalog.commit(deciding(replace(appended, run=replace(appended.run, files=files))), clock.now_ms())
    clock.advance(10 * GRACE)
    assert vacuum(storage, catalog, clock.now_ms(), GRACE) == Vacuumed(1, 4)
    assert storage.exists("runs/1-aa-x.index")
    storage.delete("runs/1-aa-x.index")
    assert vacuum(storage, catalog, clock.now_ms(), GRACE) == Vacuumed(0, 0, frozenset({"runs/1-aa-x.index"}))
