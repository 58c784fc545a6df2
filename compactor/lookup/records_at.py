"""Reads single records by their offsets: no other row group of a file than theirs, each footer once in a process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from numpy.typing import NDArray

from compactor.errors import DamagedFileError
from compactor.model import record
from compactor.model.log import RunFile
from compactor.model.record import TopicPartition
from compactor.runs import checksums
from compactor.runs.checksums import RESTORE
from compactor.runs.reader import Bounds, bounds_of, completed, of_partition
from compactor.runs.scan import FileRange
from compactor.storage.base import Storage

_ROWS: Final = 1_024
"""How many records are decoded at a time: what comes after the last one that is wanted is not."""

_REMEMBERED: Final = 256
"""How many files' footers a process remembers: some 1 MB each in memory, if their row groups are small."""


class FileOutline(Struct, frozen=True, kw_only=True):
    """The footer of a file, and the bounds of its row groups, also as an array of a row for each: (first, last)."""

    footer: pq.FileMetaData
    groups: tuple[Bounds, ...]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, footer: pq.FileMetaData) -> FileOutline:
        """Reads the bounds out of `footer`, which is verified."""
        groups = tuple(bounds_of(footer.row_group(at)) for at in range(footer.num_row_groups))
        offsets = np.array([(held.first, held.last) for held in groups], np.int64).reshape(-1, 2)
        return cls(footer=footer, groups=groups, offsets=offsets)

    def groups_at(self, tp: TopicPartition, offsets: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yields each row group that may have some of `offsets` of `tp`, which rise, with these."""
        starts = np.searchsorted(offsets, self.offsets[:, 0], side="left")
        ends = np.searchsorted(offsets, self.offsets[:, 1], side="right")
        for group in np.flatnonzero(ends > starts).tolist():
            if self.groups[group].least <= tp <= self.groups[group].most:
                yield group, offsets[starts[group] : ends[group]]


class FileOutlines:
    """Remembers outlines of files, which never change; threads share it.

    `is_whole`: before its first use each file is held, byte for byte, against its checksum, not its footer alone. To
    decode a damaged page may end the process, which a worker is not to do because of a question.
    """

    def __init__(self, most: int = _REMEMBERED, *, is_whole: bool = False) -> None:
        self._most = most
        self._is_whole = is_whole
        # By location and path, the one that was asked for last at the end.
        self._known: OrderedDict[tuple[str, str], FileOutline] = OrderedDict()
        self._lock = Lock()

    def of(self, storage: Storage, file: RunFile) -> FileOutline:
        """Returns the outline of `file`, which is read and verified if it is not remembered.

        Raises DamagedFileError, MissingFileError; StorageError if the store does not answer.
        """
        place = storage.location, file.path
        with self._lock:
            if place in self._known:
                self._known.move_to_end(place)
                return self._known[place]
        if self._is_whole and not checksums.verify_file(storage, file):
            raise DamagedFileError(f"{storage.location}/{file.path} is damaged: it is not what was written.", RESTORE)
        with checksums.open_verified(storage, file) as opened:
            footer = opened.metadata
        outline = FileOutline.of(footer)
        with self._lock:
            self._known[place] = outline
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return outline


def read_offsets(
    storage: Storage, file_range: FileRange, offsets: NDArray[np.int64], outlines: FileOutlines
) -> Iterator[pa.RecordBatch]:
    """Reads the records (record.RUN) of `file_range` at `offsets`, which rise. Raises StorageError."""
    outline = outlines.of(storage, file_range.file)
    with checksums.open_verified(storage, file_range.file, outline.footer) as file:
        for group, own in outline.groups_at(file_range.tp, offsets):
            # One thread: a row group is small, and other look-ups go on.
            for batch in file.iter_batches(_ROWS, row_groups=[group], use_threads=False):
                rows = batch if outline.groups[group].tp is not None else of_partition(batch, file_range.tp)
                wanted = np.isin(rows["offset"].to_numpy(), own)
                if wanted.any():
                    yield completed(rows.filter(pa.array(wanted)), record.RUN.names)
                if rows.num_rows and rows["offset"][-1].as_py() >= own[-1]:
                    break
