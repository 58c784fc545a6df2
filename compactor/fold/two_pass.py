"""Folds offset ranges in one process in two passes, as Kafka's cleaner does (`buildOffsetMap`, `cleanInto`).

The first pass reads the keys and finds the last record of each; the second reads everything and yields those records.
Only keys are held in memory, however large values are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec import Struct

from compactor.errors import DEFECT, FoldError
from compactor.fold.memory_budget import OffsetMapBudget
from compactor.fold.offset_map import COLUMNS, last_of_keys
from compactor.fold.throttler import Throttler
from compactor.model import record
from compactor.model.log import RunFile
from compactor.runs import checksums
from compactor.runs.reader import read_ranges
from compactor.runs.scan import LOG, OffsetRange, files_in_order, files_of, plan_reads
from compactor.storage.base import Storage

_BELOW_ALL: Final = -(1 << 62)
"""Below every offset: those of tombstones that a generation begins with are below 0."""


class FileScan(Struct, frozen=True, kw_only=True):
    """Offset `ranges` in `storage`, and all their files (`paths`) in an order in which each range's come by offset."""

    storage: Storage
    ranges: Sequence[OffsetRange]
    paths: Sequence[str]
    throttler: Throttler = Throttler()


def scan_of(storage: Storage, ranges: Sequence[OffsetRange], throttler: Throttler) -> FileScan | None:
    """Returns how `ranges` are read together; None if no order of files does for all of them."""
    paths = files_in_order(ranges)
    return None if paths is None else FileScan(storage=storage, ranges=ranges, paths=paths, throttler=throttler)


def are_intact(storage: Storage, files: Iterable[RunFile], throttler: Throttler) -> bool:
    """Returns whether all `files` are, byte for byte, what was written: to decode a damaged page may end a process.

    Raises StorageError.
    """
    for file in files:
        throttler.wait(file.file_bytes)
        if not checksums.verify_file(storage, file):
            return False
    return True


def latest(storage: Storage, ranges: Sequence[OffsetRange], budget: OffsetMapBudget) -> Iterator[pa.RecordBatch] | None:
    """Yields what `in_memory.latest` gives (SCAN), one range after the other, as the caller asks for them.

    The first pass of all of them is over before the first record is given. None if a file is not what was written,
    or there are too many keys. Raises StorageError, FoldError.
    """
    if not are_intact(storage, files_of(ranges).values(), Throttler()):
        return None
    scans = []
    for offset_range in ranges:
        scan = scan_of(storage, [offset_range], Throttler())
        which = None if scan is None else build_offset_map(scan, budget)
        if scan is None or which is None:
            return None
        scans.append((scan, which))
    return (batch for scan, which in scans for batch in _rising(scan, clean_into(scan, which)))


def build_offset_map(scan: FileScan, budget: OffsetMapBudget) -> pa.BooleanArray | None:
    """Reads the keys in the first pass; returns for each record whether it is the latest of its key, or rejected.

    None if the keys fit neither into memory nor onto the disk for what is spilled. Raises StorageError, FoldError.
    """
    try:
        which = last_of_keys(_keys(scan), budget)
    except (MemoryError, OSError):  # Arrow's among them; what the store refuses is a StorageError
        return None
    if which is not None:
        _check(scan, len(which))
    return which


def clean_into(scan: FileScan, which: pa.BooleanArray) -> Iterator[pa.RecordBatch]:
    """Yields, in the second pass, the records (SCAN) that the first has kept, in its order.

    Raises StorageError; FoldError if they are not as many as at first.
    """
    row = 0
    for batch in scan.throttler.throttled(_read(scan, record.RUN.names)):
        mask = which.slice(row, batch.num_rows)
        row += batch.num_rows
        if len(mask) < batch.num_rows:
            break
        if mask.true_count == len(mask):
            yield batch
        elif mask.true_count:
            yield batch.filter(mask)
    if row != len(which):
        more = "more" if row > len(which) else row
        raise FoldError(f"A fold has read {len(which)} records of {_names(scan)} at first and then {more}.", DEFECT)


def read_all(scan: FileScan) -> Iterator[pa.RecordBatch]:
    """Yields all records (SCAN), in one pass. Raises StorageError, FoldError."""
    rows = 0
    for batch in scan.throttler.throttled(_read(scan, record.RUN.names)):
        rows += batch.num_rows
        yield batch
    _check(scan, rows)


def _rising(scan: FileScan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields `batches` of one log; FoldError if offsets do not rise: then files came in the wrong order."""
    newest = _BELOW_ALL
    for batch in batches:
        offsets = batch["offset"].to_numpy()
        if (np.diff(offsets, prepend=newest) <= 0).any():
            raise FoldError(f"{_names(scan)}: the offsets that a fold has read do not rise above {newest}.", DEFECT)
        newest = int(offsets[-1]) if len(offsets) else newest
        yield batch


def _keys(scan: FileScan) -> Iterator[pa.RecordBatch]:
    for batch in _read(scan, ["offset", *COLUMNS, record.KEY_IDENTITY]):
        keys = record.as_compared(batch)
        scan.throttler.wait(keys["key"].nbytes)
        yield keys


def _check(scan: FileScan, rows: int) -> None:
    """Raises FoldError if more or fewer were read than the catalog counts, which it does only for whole files."""
    pieces = [piece for part in scan.ranges for piece in part.file_ranges]
    whole = all(piece.start <= piece.file.first and piece.file.last < piece.end for piece in pieces)
    records = sum(piece.file.records for piece in pieces)
    if whole and rows != records:
        raise FoldError(f"A fold has read {rows} of {records} records of {_names(scan)}.", DEFECT)


def _names(scan: FileScan) -> str:
    return ", ".join(str(part.tp) for part in scan.ranges)


def _read(scan: FileScan, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yields `columns` of all records, and the number of each one's range (LOG)."""
    reads, files = plan_reads(scan.ranges), files_of(scan.ranges)
    for path in scan.paths:
        with checksums.open_verified(scan.storage, files[path]) as opened:  # each time: no page's checksum covers it
            for batch in read_ranges(opened, reads[path], columns):
                yield batch.select([*columns, LOG])
