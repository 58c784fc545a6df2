"""Removes files that nothing names any more: step 18 of docs/protocol.md.

A file of `runs/` is removed when no log names it, and

- it was named once, and was dropped longer than the grace ago: what was planned with it before that is done by now;
- or its job never committed, and the whole job has been silent for longer than the grace: the youngest of its
  files counts, and a job that the caller says is running is never touched.

Files of epochs above ours are never touched. That makes it safe to sleep anywhere in here: a file of our epoch or a
lower one that is not named at a version of our epoch can never be named again, because only we commit our files, and
the jobs of lower epochs have committed nothing since we took over. A newer owner neither needs nor names them.

An erasure (`purge_runs`) removes the same files without the grace. Who still reads one finds it gone, and asks the
catalog again: a look-up by itself, a publish when it is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final

import structlog
from msgspec import Struct

from compactor.catalog import requests
from compactor.catalog.catalog import Catalog
from compactor.errors import CatalogError
from compactor.failpoints import hit
from compactor.index.reader import damaged_indexes
from compactor.model.state import CatalogState
from compactor.runs.paths import RUNS, is_index, job_of
from compactor.storage.base import FileInfo, Storage

CLOCKS_MS: Final = 60_000
"""How far the clock of an object store may be ahead of this machine's: a file of now may look younger than now."""

_log = structlog.get_logger()


class Vacuumed(Struct, frozen=True):
    """The number of files that were removed, their bytes, and the paths of indexes that are named, and lost or damaged.

    Damaged are those that this process has met as such.
    """

    files: int
    bytes: int
    lost_indexes: frozenset[str] = frozenset()


def vacuum(
    storage: Storage, catalog: Catalog, now_ms: int, grace_ms: int, running: Callable[[], Container[str]] = tuple
) -> Vacuumed:
    """Removes unneeded files of the connector's folder `storage`, which `catalog` owns.

    `running` gives the jobs (`<job>` of `runs/<epoch>-<job>-…`) that may still commit. Raises CatalogError,
    FencedError and StorageError before anything is removed; StorageError also in the middle, which harms nothing.
    """
    files, gone = _unneeded(storage, catalog, now_ms - grace_ms, running)
    gone += _abandoned(storage, now_ms - grace_ms)
    hit("vacuum.delete")
    return _removed(storage, catalog, files, gone, now_ms)


def purge_runs(
    storage: Storage, catalog: Catalog, now_ms: int, running: Callable[[], Container[str]] = tuple
) -> Vacuumed:
    """Removes run files that no log names at once: for an erasure, in the thread that alone replaces run files.

    Temporary files stay for the next vacuum, as a task may be writing them. `running` and errors are those of `vacuum`.
    """
    files, gone = _unneeded(storage, catalog, now_ms + CLOCKS_MS, running)
    hit("erase.purge")
    return _removed(storage, catalog, files, gone, now_ms)


def _unneeded(
    storage: Storage, catalog: Catalog, before_ms: int, running: Callable[[], Container[str]]
) -> tuple[list[FileInfo], list[FileInfo]]:
    """Returns all run files, and those of them that nothing has named since before `before_ms`."""
    # The order matters: a job of a file in the list is running when `running` is called, or its commit is in the
    # version that is read after that.
    files = storage.walk(RUNS)
    jobs = running()
    state = catalog.refresh()
    if not catalog.epoch:
        raise CatalogError(f"{storage.location}: only its owner removes files.", "Call take_over first.")
    return files, removable(files, state, catalog.unreferenced_since, before_ms, jobs)


def _removed(
    storage: Storage, catalog: Catalog, files: Sequence[FileInfo], gone: Sequence[FileInfo], now_ms: int
) -> Vacuumed:
    """Removes the files `gone` and old commits; `files` are all run files that were listed before."""
    storage.delete_all([info.path for info in gone])
    for info in gone:
        catalog.forget(info.path)
    catalog.trim(now_ms)
    done = Vacuumed(len(gone), sum(info.bytes for info in gone), _lost_indexes(storage, files, catalog.state))
    _log.info("vacuumed", connector=catalog.state.connector, files=done.files, bytes=done.bytes)
    return done


def removable(
    files: Sequence[FileInfo],
    state: CatalogState,
    unreferenced_since: Callable[[str], int],
    before_ms: int,
    running: Container[str],
) -> list[FileInfo]:
    """Returns the run files that may go: unreferenced since before `before_ms`, of silent jobs up to our epoch."""
    quiet_since = _quiet_since(files)
    needed = state.paths

    def goes(info: FileInfo) -> bool:
        job = job_of(info.path)
        if job is None or job[0] > state.epoch or info.path in needed:
            return False
        if job[0] == state.epoch and job[1] in running:
            return False
        return max(quiet_since[job], unreferenced_since(info.path)) < before_ms

    return [info for info in files if goes(info)]


def _lost_indexes(storage: Storage, files: Sequence[FileInfo], state: CatalogState) -> frozenset[str]:
    """Returns the paths of index files that `state` names, and that are gone or damaged; `files` were listed before."""
    named = {path for path in state.paths if is_index(path)}
    unlisted = named - {info.path for info in files}
    return damaged_indexes(storage, named).union(path for path in unlisted if not storage.exists(path))


def _quiet_since(files: Sequence[FileInfo]) -> dict[tuple[int, str], int]:
    """Returns when each job finished its latest file, in ms: a long job's first files are old before it commits."""
    latest_ms: dict[tuple[int, str], int] = {}
    for info in files:
        if job := job_of(info.path):
            latest_ms[job] = max(latest_ms.get(job, 0), info.modified_ms)
    return latest_ms


def _abandoned(storage: Storage, before_ms: int) -> list[FileInfo]:
    """Lists temporary files that were last written to, and requests that were answered, before `before_ms`."""
    unfinished = [info for info in storage.unfinished("") if info.modified_ms < before_ms]
    return unfinished + requests.answered_before(storage, before_ms)
