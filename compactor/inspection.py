"""Whom a damaged store concerns: reads what logs need, without Spark, against the checksums of files and pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from compactor import footers
from compactor.commits import commit_path, listing
from compactor.errors import KeyfoldError, StorageError
from compactor.footers import RESTORE, DamagedFileError, UnreadableFileError
from compactor.log import PartitionLog
from compactor.reading import Extent, Slice, between, read_extent
from compactor.storage import Storage


class StoppedError(KeyfoldError):
    """A stop came before all files were read: nothing is known of the rest."""

    retriable = True


def never() -> bool:
    """Nobody stops."""
    return False


def damage(
    storage: Storage, part: Slice, known: dict[str, bool] | None = None, stopping: Callable[[], bool] = never
) -> StorageError | None:
    """The first trouble with what `part` needs of its files; None where every record of it can be read.

    `known` keeps which files are what was written, for callers that ask about many logs which share files. `stopping`
    is asked before each file; StoppedError where it says so.

    A page that is damaged concerns the partitions of its row group, a missing file or a damaged footer all that the
    file holds; so does one that the disk cannot read, while the store answers for others. Raises StorageError where it
    does not: that says nothing about a file.
    """
    return next(_troubles(storage, part, {} if known is None else known, stopping), None)


def _troubles(
    storage: Storage, part: Slice, known: dict[str, bool], stopping: Callable[[], bool]
) -> Iterator[StorageError]:
    for extent in part.extents:
        if stopping():
            raise StoppedError(
                f"{part.tp}: a stop came while its files were read.", "They are read again after the next start."
            )
        try:
            footers.check(storage, extent.file)
            if extent.file.path not in known:
                known[extent.file.path] = footers.whole(storage, extent.file)
        except StorageError as error:
            if not footers.is_damage(error) and not (isinstance(error, UnreadableFileError) and _answers(storage)):
                raise
            yield error
            continue
        if not known[extent.file.path] and (why := _unreadable(storage, extent)):
            where = f"{extent.tp}, offsets [{extent.start}, {extent.end}): {storage.location}/{extent.file.path}"
            yield DamagedFileError(f"{where} is damaged: {why}.", RESTORE)


def _answers(storage: Storage) -> bool:
    """Whether the store reads a file that is there: the newest of the catalog."""
    try:
        newest = listing(storage)
        storage.read(commit_path(newest.commits[-1]))
    except (StorageError, IndexError):
        return False
    return True


def _unreadable(storage: Storage, extent: Extent) -> str | None:
    """Why what is needed of a damaged file cannot be read; None where the damage lies elsewhere in it.

    In a process of its own: what reads Parquet may end the process that it is in where a page's header is damaged.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(_read, storage, extent).result()
        except BrokenProcessPool:
            return "reading it ends the reader"


def _read(storage: Storage, extent: Extent) -> str | None:
    try:
        records = sum(batch.num_rows for batch in read_extent(storage, extent))
    except Exception as error:  # noqa: BLE001  # a damaged page can be misread in any way
        return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
    whole = extent.start <= extent.file.first and extent.file.last < extent.end
    if whole and records != extent.file.records:
        return f"it has {records} of {extent.file.records} records"
    return None


def kept(log: PartitionLog) -> Slice:
    """What a full fold of `log` reads."""
    return between(log, log.start, log.published)


def unpublished(log: PartitionLog) -> Slice:
    """What publishing of `log` still has to read."""
    return between(log, log.published, log.end)
