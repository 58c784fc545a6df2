"""Removes files that nothing names any more: step 18 of docs/protocol.md.

A file of `runs/` is removed when no log names it, and

- it was named once, and was dropped longer than the grace ago: what was planned with it before that is done by now;
- or its job never committed, and the whole job has been silent for longer than the grace: the youngest of its
  files counts, and a job that the caller says is running is never touched.

Files of epochs above ours are never touched. That makes it safe to sleep anywhere in here: a file of our epoch or a
lower one that is not named at a version of our epoch can never be named again, because only we commit our files, and
the jobs of lower epochs have committed nothing since we took over. A newer owner neither needs nor names them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

import structlog
from msgspec import Struct

from compactor.catalog import requests
from compactor.catalog.catalog import Catalog
from compactor.errors import CatalogError
from compactor.failpoints import hit
from compactor.model.state import CatalogState
from compactor.runs.paths import RUNS, is_index, job_of
from compactor.storage.base import FileInfo, Storage

_log = structlog.get_logger()


class Vacuumed(Struct, frozen=True):
    """The number of files that were removed, their bytes, and the paths of indexes that are named and not there."""

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
    # The order matters: a job of a file in the list is running when `running` is called, or its commit is in the
    # version that is read after that.
    files = storage.walk(RUNS)
    jobs = running()
    state = catalog.refresh()
    if not catalog.epoch:
        raise CatalogError(f"{storage.location}: only its owner removes files.", "Call take_over first.")
    since = catalog.unreferenced_since
    gone = [*removable(files, state, since, now_ms - grace_ms, jobs), *_abandoned(storage, now_ms - grace_ms)]
    hit("vacuum.delete")
    storage.delete_all([info.path for info in gone])
    for info in gone:
        catalog.forget(info.path)
    catalog.trim(now_ms)
    done = Vacuumed(len(gone), sum(info.bytes for info in gone), _lost_indexes(storage, files, state))
    _log.info("vacuumed", connector=state.connector, files=done.files, bytes=done.bytes)
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
    """Returns the paths of index files that `state` names and that are gone; `files` were listed before."""
    unlisted = {path for path in state.paths if is_index(path)} - {info.path for info in files}
    return frozenset(path for path in unlisted if not storage.exists(path))


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
