"""Reads single records by their offsets: no other row group of a file than theirs, each footer once in a process."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from numpy.typing import NDArray

from compactor.errors import UnverifiedError
from compactor.index.blocks import FEW
from compactor.lookup.open_files import OpenFiles
from compactor.model import record
from compactor.model.log import RunFile
from compactor.model.record import PARTITION, TopicPartition
from compactor.remembered import Remembered
from compactor.runs import checksums, group_notes
from compactor.runs.group_notes import GroupNote
from compactor.runs.reader import Bounds, bounds_of, completed, of_partition
from compactor.runs.scan import FileRange
from compactor.storage.base import Storage

_ROWS: Final = 1_024
"""How many records are decoded at a time: what comes after the last one that is wanted is not."""

_REMEMBERED: Final = 128 << 20
"""Bytes of footers that a process remembers, as they are in memory: those of 1.5 GB of files with row groups of 256
KiB, of which 128 MiB have a footer of 1.2 MB. One that was forgotten is read again in 6 ms, and no more of its file."""

_PARSED: Final = 10
"""How many times its bytes a footer takes once it is parsed."""

_OUTLINES: Final = 4
"""As many times fewer bytes of outlines are remembered: those of 3 GB of files. To make one takes 12 ms."""

_SMALL_BYTES: Final = 2 << 20
"""Bytes of a row group that is read as a whole: of rewritten records with an index they have half of it."""

_SMALL_ROWS: Final = 16_384
"""Records of such a row group: what repeats in it takes few bytes, and many in memory."""


class _OwnGroups(NamedTuple):
    """The row groups that have records of one partition alone: their numbers, first and last offsets, all rising."""

    numbers: NDArray[np.int64]
    firsts: NDArray[np.int64]
    lasts: NDArray[np.int64]

    def having(self, offsets: NDArray[np.int64]) -> list[int]:
        """Returns the numbers of those that may have some of `offsets`, which rise."""
        if len(offsets) <= FEW:
            nearest = {bisect_right(self.firsts.data, offset) - 1 for offset in offsets.tolist()}
            return [int(self.numbers[at]) for at in nearest if at >= 0 and self.lasts[at] >= offsets[0]]
        starts = np.searchsorted(offsets, self.firsts, side="left")
        ends = np.searchsorted(offsets, self.lasts, side="right")
        return list(self.numbers[ends > starts].tolist())


class FileOutline(Struct, frozen=True, kw_only=True):
    """The bounds of a file's row groups, by its footer: all, those of one partition alone, and the others.

    `notes` are those of its row groups, None if it has none. `intact` has 1 for each row group that this process has
    held against its checksum; a reader sets it.
    """

    groups: tuple[Bounds, ...]
    own: dict[TopicPartition, _OwnGroups]
    shared: tuple[int, ...]
    notes: Sequence[GroupNote] | None
    intact: bytearray

    @classmethod
    def of(cls, footer: pq.FileMetaData) -> FileOutline:
        """Reads the bounds out of `footer`, which is verified."""
        groups = tuple(bounds_of(footer.row_group(at)) for at in range(footer.num_row_groups))
        alone: dict[TopicPartition, list[tuple[int, int, int]]] = {}
        for number, held in enumerate(groups):
            if held.tp is not None:
                alone.setdefault(held.tp, []).append((number, held.first, held.last))
        own = {tp: _OwnGroups(*np.array(rows, np.int64).T.copy()) for tp, rows in alone.items()}
        shared = tuple(number for number, held in enumerate(groups) if held.tp is None)
        notes = group_notes.of_footer(footer)
        return cls(groups=groups, own=own, shared=shared, notes=notes, intact=bytearray(len(groups)))

    def columns_of(self, group: int, columns: Sequence[str]) -> list[str]:
        """Returns those of `columns` that are not blank in a row group."""
        return [name for name in columns if self.notes is None or name not in self.notes[group].blanks]

    def groups_at(self, tp: TopicPartition, offsets: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yields each row group that may have some of `offsets` of `tp`, which rise, with these."""
        if not len(offsets):
            return
        first, end = int(offsets[0]), int(offsets[-1]) + 1
        numbers = [number for number in self.shared if self.groups[number].overlap(tp, first, end)]
        if tp in self.own:
            numbers += self.own[tp].having(offsets)
        for number in sorted(numbers):
            held = between(offsets, self.groups[number].first, self.groups[number].last + 1)
            if len(held):
                yield number, held


def between(offsets: NDArray[np.int64], first: int, end: int) -> NDArray[np.int64]:
    """Returns those of `offsets`, which rise, that are in [first, end)."""
    if len(offsets) <= FEW:  # NumPy's search would give the interpreter's lock away
        return offsets[(offsets >= first) & (offsets < end)]
    return offsets[np.searchsorted(offsets, first) : np.searchsorted(offsets, end)]


class FileOutlines:
    """Remembers footers and outlines of files, and `group_bytes` of their row groups, which never change.

    Threads share it. Each keeps up to `open_files` of a folder open.

    `verifies`: what is decoded is held against a checksum before, once in a process: the row group, or the file, byte
    for byte, if its row groups have none. To decode a damaged page may end the process, which a worker is not to do
    because of a question. Otherwise only footers are verified.
    """

    def __init__(
        self, most_bytes: int = _REMEMBERED, *, verifies: bool = False, group_bytes: int = 0, open_files: int = 0
    ) -> None:
        self._verifies = verifies
        self._open_files = OpenFiles(open_files)
        # Told the bytes of what is held against a checksum, before it is; may raise. None: they do not count.
        self.before_verifying: Callable[[int], None] | None = None
        # By location and path.
        self._known = Remembered[FileOutline](most_bytes // _OUTLINES)
        self._footers = Remembered[pq.FileMetaData](most_bytes)
        # By location, path, number and columns: the last that were read, as a client often asks for a key again.
        self.row_groups = Remembered[pa.RecordBatch](group_bytes)

    def verifying_at_most(self, most_bytes: int) -> FileOutlines:
        """Returns these, with the same memory, for one look-up: it holds files of `most_bytes` against checksums.

        However large a file is, it verifies one: look-ups that are asked again and again come to an end.
        """
        bounded, verified = copy(self), 0

        def count(size: int) -> None:
            nonlocal verified
            if verified and verified + size > most_bytes:
                raise UnverifiedError(
                    f"The files of these keys were not all read yet since the process has begun; {verified:,} bytes of "
                    f"them were now held against their checksums, and at most {most_bytes:,} are for one look-up.",
                    "Ask again: it goes on from there. Fewer keys at a time, or one partition, take fewer files.",
                )
            verified += size

        bounded.before_verifying = count
        return bounded

    def of(self, storage: Storage, file: RunFile) -> FileOutline:
        """Returns the outline of `file`, which is read and verified if it is not remembered.

        Raises DamagedFileError, MissingFileError; StorageError if the store does not answer; UnverifiedError.
        """
        place = storage.location, file.path
        if (known := self._known.get(place)) is not None:
            return known
        if file.footer is None:
            self.check_file(storage, file)
        with self.opened(storage, file) as opened:
            footer = opened.metadata
        outline = FileOutline.of(footer)
        if outline.notes is None:
            self.check_file(storage, file)
        return self._known.put(place, outline, footer.serialized_size)

    @contextmanager
    def opened(self, storage: Storage, file: RunFile) -> Iterator[pq.ParquetFile]:
        """Opens `file`; its footer is read and verified if it is not remembered. Raises as `open_verified` does."""
        place = storage.location, file.path
        known = self._footers.get(place)
        with self._open_files.opened(storage, file, known) as opened:
            if known is None:
                self._footers.put(place, opened.metadata, _PARSED * opened.metadata.serialized_size)
            yield opened

    def check_file(self, storage: Storage, file: RunFile) -> None:
        """Verifies all of `file`, before all of it is decoded. Raises as `of` does."""
        if self._verifies:
            checksums.check_intact(storage, file, self.before_verifying)

    def check_group(self, storage: Storage, file: RunFile, outline: FileOutline, group: int) -> None:
        """Verifies a row group of `file`, before it is decoded. Raises as `of` does."""
        if not self._verifies or outline.notes is None or outline.intact[group]:
            return
        own = outline.notes[group]
        if self.before_verifying is not None:
            self.before_verifying(own.end - own.first)
        checksums.check_group(storage, file, own)
        outline.intact[group] = 1


def read_offsets(
    storage: Storage,
    file_range: FileRange,
    offsets: NDArray[np.int64],
    outlines: FileOutlines,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Reads the records of `file_range` at `offsets`, which rise; `columns` (of record.RUN, offset among them), or all.

    Raises StorageError.
    """
    names = tuple(record.RUN.names if columns is None else columns)
    file, outline = file_range.file, outlines.of(storage, file_range.file)
    with ExitStack() as stack:
        opened: pq.ParquetFile | None = None
        for group, own in outline.groups_at(file_range.tp, offsets):
            place = storage.location, file.path, group, names
            known = outlines.row_groups.get(place)
            if known is None:
                outlines.check_group(storage, file, outline, group)
            if known is None and opened is None:
                opened = stack.enter_context(outlines.opened(storage, file))
            is_alone = outline.groups[group].tp is not None
            if known is not None:
                batches: Iterator[pa.RecordBatch] = iter([known])
            else:
                read = names if is_alone else (*names, *(name for name in PARTITION if name not in names))
                batches = _read_group(opened, group, outline.columns_of(group, read), outlines.row_groups, place)
            for batch in batches:
                rows = batch if is_alone else of_partition(batch, file_range.tp)
                held = rows["offset"].to_numpy()
                wanted = _places_of(own, held)
                if len(wanted):
                    yield completed(_taken(rows, wanted), names)
                if len(held) and held[-1] >= own[-1]:
                    break


def _taken(rows: pa.RecordBatch, places: NDArray[np.int64]) -> pa.RecordBatch:
    """Returns the rows at `places`; of one a slice, which takes a twentieth of the time of `take`."""
    return rows.slice(places[0], 1) if len(places) == 1 else rows.take(pa.array(places))


def _places_of(offsets: NDArray[np.int64], held: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the places of those of `offsets` that are in `held`; both rise."""
    if len(offsets) <= FEW:
        few = [(bisect_left(held.data, offset), offset) for offset in offsets.tolist()]
        return np.array([at for at, offset in few if at < len(held) and held[at] == offset], np.int64)
    places = np.searchsorted(held, offsets)
    places = places[places < len(held)]
    return places[held[places] == offsets[: len(places)]]


def _read_group(
    file: pq.ParquetFile,
    group: int,
    columns: Sequence[str],
    row_groups: Remembered[pa.RecordBatch],
    place: tuple[str, str, int, tuple[str, ...]],
) -> Iterator[pa.RecordBatch]:
    """Reads `columns` of a row group, as a whole if it is small, and remembers them then."""
    about = file.metadata.row_group(group)
    if about.total_byte_size > _SMALL_BYTES or about.num_rows > _SMALL_ROWS:
        # One thread: a row group is small, and other look-ups go on.
        yield from file.iter_batches(_ROWS, row_groups=[group], columns=columns, use_threads=False)
        return
    for batch in file.read_row_group(group, columns, use_threads=False).combine_chunks().to_batches():
        if (size := pa.ipc.get_record_batch_size(batch)) <= 2 * _SMALL_BYTES:
            row_groups.put(place, batch, size)
        yield batch
