"""What is left of logs, found by one process in two passes, as by Kafka's cleaner (`buildOffsetMap`, `cleanInto`).

The keys first, which say what the last record of each is; then everything, of which those records go on. Of records
only keys are held, however large values are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
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


class Logs(Struct, frozen=True, kw_only=True):
    """`slices` of what `storage` has, and all their files, in an order in which every slice's come by offset."""

    storage: Storage
    slices: Sequence[OffsetRange]
    paths: Sequence[str]
    pace: Throttler = Throttler()


def sound(storage: Storage, files: Iterable[RunFile], pace: Throttler) -> bool:
    """Whether all `files` are, byte for byte, what was written: to decode a damaged page can end this process.

    Raises StorageError.
    """
    for file in files:
        pace.wait(file.file_bytes)
        if not checksums.verify_file(storage, file):
            return False
    return True


def latest(storage: Storage, slices: Sequence[OffsetRange], room: OffsetMapBudget) -> Iterator[pa.RecordBatch] | None:
    """What `localfold.latest` gives (`scan.SCAN`), but one slice after the other, as they are asked for.

    The first pass of all of them is over before the first record is given. None where a file is not what was written,
    or there are too many keys. Raises StorageError, FoldError.
    """
    if not sound(storage, files_of(slices).values(), Throttler()):
        return None
    found = []
    for one in slices:
        paths = files_in_order([one])
        logs = None if paths is None else Logs(storage=storage, slices=[one], paths=paths)
        which = None if logs is None else last(logs, room)
        if logs is None or which is None:
            return None
        found.append((logs, which))
    return (batch for logs, which in found for batch in _rising(logs, kept(logs, which)))


def last(logs: Logs, room: OffsetMapBudget) -> pa.BooleanArray | None:
    """The first pass: of every record, as they are read, whether it is in `fold.latest`.

    None where neither memory nor the disk for what is spilled has room for the keys. Raises StorageError, FoldError.
    """
    try:
        found = last_of_keys(_keys(logs), room)
    except (MemoryError, OSError):  # Arrow's among them; what the store refuses is a StorageError
        return None
    if found is not None:
        _check(logs, len(found))
    return found


def kept(logs: Logs, which: pa.BooleanArray) -> Iterator[pa.RecordBatch]:
    """The second pass: the records (`scan.SCAN`) that the first has left, in its order.

    Raises StorageError; FoldError where they are not as many as at first.
    """
    row = 0
    for batch in logs.pace.kept(_read(logs, record.RUN.names)):
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
        raise FoldError(f"A fold has read {len(which)} records of {_names(logs)} at first and then {more}.", DEFECT)


def every(logs: Logs) -> Iterator[pa.RecordBatch]:
    """All records (`scan.SCAN`), in one pass. Raises StorageError, FoldError."""
    rows = 0
    for batch in logs.pace.kept(_read(logs, record.RUN.names)):
        rows += batch.num_rows
        yield batch
    _check(logs, rows)


def _rising(logs: Logs, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """`batches` of one log; FoldError where offsets do not rise: then files came in the wrong order."""
    newest = -1
    for batch in batches:
        offsets = batch["offset"].to_numpy()
        if (np.diff(offsets, prepend=newest) <= 0).any():
            raise FoldError(f"{_names(logs)}: the offsets that a fold has read do not rise above {newest}.", DEFECT)
        newest = int(offsets[-1]) if len(offsets) else newest
        yield batch


def _keys(logs: Logs) -> Iterator[pa.RecordBatch]:
    for batch in _read(logs, ["offset", *COLUMNS]):
        logs.pace.wait(batch["key"].nbytes)
        yield batch


def _check(logs: Logs, rows: int) -> None:
    """FoldError where not as many were read as the catalog counts, which does not for a file that is wanted in part."""
    file_ranges = [one for part in logs.slices for one in part.file_ranges]
    whole = all(one.start <= one.file.first and one.file.last < one.end for one in file_ranges)
    records = sum(one.file.records for one in file_ranges)
    if whole and rows != records:
        raise FoldError(f"A fold has read {rows} of {records} records of {_names(logs)}.", DEFECT)


def _names(logs: Logs) -> str:
    return ", ".join(str(one.tp) for one in logs.slices)


def _read(logs: Logs, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """`columns` of all records, and the number of each one's slice (`scan.LOG`)."""
    reads, files = plan_reads(logs.slices), files_of(logs.slices)
    for path in logs.paths:
        checksums.verify_footer(logs.storage, files[path])  # each time: no page's checksum covers what it says
        with (
            checksums.readable(logs.storage, path),
            logs.storage.open_input(path) as source,
            pq.ParquetFile(source, page_checksum_verification=True) as opened,
        ):
            for batch in read_ranges(opened, reads[path], columns):
                yield batch.select([*columns, LOG])
