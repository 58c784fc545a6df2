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

from compactor.model import record
from compactor.model.log import RunFile
from compactor.model.record import TopicPartition
from compactor.runs import checksums
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
    """Remembers outlines of files, which never change; threads share it."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._most = most
        # By location and path, the one that was asked for last at the end.
        self._known: OrderedDict[tuple[str, str], FileOutline] = OrderedDict()
        self._lock = Lock()

    def of(self, storage: Storage, file: RunFile) -> FileOutline:
        """Returns the outline of `file`, which is read and verified if it is not remembered. Raises StorageError."""
        place = storage.location, file.path
        with self._lock:
            if place in self._known:
                self._known.move_to_end(place)
                return self._known[place]
        with checksums.open_verified(storage, file) as opened:
            footer = opened.metadata
        outline = FileOutline.of(footer)
        with self._lock:
            self._known[place] = outline
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return outline


OUTLINES: Final = FileOutlines()
"""Those that this process has read."""


def read_offsets(
    storage: Storage, file_range: FileRange, offsets: NDArray[np.int64], outlines: FileOutlines = OUTLINES
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
