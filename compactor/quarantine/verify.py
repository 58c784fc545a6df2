"""Finds the offset ranges that damaged files concern: reads files against their checksums, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from multiprocessing import get_context
from typing import Final, Self, TypeVar

import pyarrow.parquet as pq

from compactor.catalog.commits import commit_path, list_versions
from compactor.decode_errors import why
from compactor.errors import DamagedFileError, StoppedError, StorageError, UnreadableFileError
from compactor.model.log import PartitionLog, RunFile
from compactor.model.record import TopicPartition, partition_spans
from compactor.runs import checksums
from compactor.runs.checksums import RESTORE
from compactor.runs.reader import Bounds, bounds_of
from compactor.runs.scan import FileRange, OffsetRange, between
from compactor.storage.base import Storage
from compactor.storage.limits import MOST_BYTES

T = TypeVar("T")
Rows = dict[TopicPartition, int]

MAX_ENDED_READERS: Final = 8
"""How many processes may end while they read one file; after that, what was not read of it counts as damaged."""

ENDS: Final = "reading it ends the reader"


def find_damage(
    storage: Storage, ranges: Iterable[OffsetRange], stopped: Callable[[], bool] = lambda: False
) -> list[StorageError | None]:
    """Returns for each of `ranges` the first damage of the files that it needs; None if every record can be read.

    A damaged page concerns the partitions of its row group. A missing file, or one with a damaged footer, concerns
    all partitions in the file; so does one that the disk cannot read while the storage answers for other files.

    Raises StoppedError as soon as `stopped` is true, which is asked before each file and row group; StorageError if
    the storage does not answer, which says nothing about a file.
    """
    with _Verifier(storage, stopped) as verifier:
        return [next(verifier.damages(offset_range), None) for offset_range in ranges]


class _Verifier:
    """Reads each file and row group at most once, however many partitions need it, as publishing waits meanwhile.

    A damaged page header may end the process that reads it. So pages are read in a child process, and after its end in
    a new one.
    """

    def __init__(self, storage: Storage, stopped: Callable[[], bool]) -> None:
        self._storage = storage
        self._stopped = stopped
        # By path: True if the file is what was written, False if it is damaged, an error if it cannot be opened. Then
        # what was read of damaged files, or a text that says why it cannot be read.
        self._files: dict[str, StorageError | bool] = {}
        self._groups: dict[str, list[Bounds] | str] = {}
        self._read: dict[tuple[str, int], Rows | str] = {}
        # By path: how often a child process ended while it read the file.
        self._ended: Counter[str] = Counter()
        # The child process; None before the first read and after its end.
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def damages(self, offsets: OffsetRange) -> Iterator[StorageError]:
        """Yields the damage of each file that `offsets` need."""
        for file_range in offsets.file_ranges:
            self._check_not_stopped(offsets.tp)
            checked = self._whole(file_range.file)
            if isinstance(checked, StorageError):
                yield checked
            elif not checked and (why := self._unreadable(file_range)):
                where = f"{file_range.tp}, offsets [{file_range.start}, {file_range.end}): {self._storage.location}"
                yield DamagedFileError(f"{where}/{file_range.file.path} is damaged: {why}.", RESTORE)

    def _check_not_stopped(self, tp: TopicPartition) -> None:
        if self._stopped():
            raise StoppedError(f"{tp}: a stop came while its files were read.", "They are read again after a start.")

    def _whole(self, file: RunFile) -> StorageError | bool:
        """Returns whether `file` is what was written, or the error if it or its footer is gone or damaged."""
        if file.path not in self._files:
            try:
                checksums.verify_footer(self._storage, file)
                self._files[file.path] = checksums.verify_file(self._storage, file)
            except StorageError as error:
                unreadable = isinstance(error, UnreadableFileError) and _answers(self._storage)
                if not checksums.is_damage(error) and not unreadable:
                    raise
                self._files[file.path] = error
        return self._files[file.path]

    def _unreadable(self, file_range: FileRange) -> str | None:
        """Returns why this range of a damaged file cannot be read; None if the damage lies elsewhere in the file."""
        path, records = file_range.file.path, 0
        groups = self._bounds(path)
        if isinstance(groups, str):
            return groups
        for number, bounds in enumerate(groups):
            if bounds.overlap(file_range.tp, file_range.start, file_range.end):
                rows = self._rows(path, number, file_range.tp)
                if isinstance(rows, str):
                    return rows
                records += rows.get(file_range.tp, 0)
        within = file_range.start <= file_range.file.first and file_range.file.last < file_range.end
        if file_range.file.entire and within and records != file_range.file.records:
            return f"it has {records} of {file_range.file.records} records"
        return None

    def _bounds(self, path: str) -> list[Bounds] | str:
        if path not in self._groups:
            self._groups[path] = self._asked(path, _bounds, path)
        return self._groups[path]

    def _rows(self, path: str, group: int, tp: TopicPartition) -> Rows | str:
        if (path, group) not in self._read:
            self._check_not_stopped(tp)
            self._read[path, group] = self._asked(path, _rows, path, group)
        return self._read[path, group]

    def _asked(self, path: str, ask: Callable[..., T], *args: object) -> T | str:
        """Returns what the child process answers to `ask`, or the reason why it does not."""
        if self._ended[path] >= MAX_ENDED_READERS:
            return ENDS
        if self._pool is None:
            context, storage = get_context("spawn"), self._storage
            self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=_read_from, initargs=(storage,))
        try:
            return self._pool.submit(ask, *args).result()
        except BrokenProcessPool:
            self._ended[path] += 1
            self._close()
            return ENDS
        except Exception as error:  # noqa: BLE001  # a damaged page can be misread in any way
            return why(error)

    def _close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def _answers(storage: Storage) -> bool:
    """Returns whether the storage reads a file that is there: the newest commit of the catalog."""
    try:
        newest = list_versions(storage)
        storage.read(commit_path(newest.commits[-1]), MOST_BYTES)
    except (StorageError, IndexError):
        return False
    return True


_STORE: Final[list[Storage]] = []
"""The storage of the child process that reads."""


def _read_from(storage: Storage) -> None:
    _STORE[:] = [storage]


@lru_cache(maxsize=1)
def _opened(path: str) -> pq.ParquetFile:
    """Opens a file, which stays open until the next one: parsing a footer of a thousand row groups takes long."""
    return pq.ParquetFile(_STORE[0].open_input(path), page_checksum_verification=True)


def _bounds(path: str) -> list[Bounds]:
    """Returns the bounds of each row group of a file with a sound footer."""
    file = _opened(path)
    return [bounds_of(file.metadata.row_group(group)) for group in range(file.num_row_groups)]


def _rows(path: str, group: int) -> Rows:
    """Reads a row group and counts its rows by partition. Raises ValueError if rows are missing."""
    counts: Counter[TopicPartition] = Counter()
    expected = _opened(path).metadata.row_group(group).num_rows
    for batch in _opened(path).iter_batches(row_groups=[group]):
        for tp, start, end in partition_spans(batch):
            counts[tp] += end - start
    if counts.total() != expected:
        raise ValueError(f"it has {counts.total()} of {expected} records")
    return dict(counts)


def published_range(log: PartitionLog) -> OffsetRange:
    """Returns the offsets of `log` that a clean or a snapshot reads."""
    return between(log, log.start, log.published)


def unpublished_range(log: PartitionLog) -> OffsetRange:
    """Returns the offsets of `log` that publishing still has to read."""
    return between(log, log.published, log.end)
