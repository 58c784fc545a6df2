"""What is kept of logs, found by one process in two passes, as by Kafka's cleaner (`buildOffsetMap`, `cleanInto`).

The keys first, which say what the last record of each is; then everything, of which those records go on. Only keys are
held, however large values are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from numpy.typing import NDArray

from compactor import footers, record
from compactor.errors import DEFECT, FoldError
from compactor.fold import LOG
from compactor.lastkeys import COLUMNS, KeyRoom, last_of_keys
from compactor.reading import Slice
from compactor.readwants import of_file
from compactor.storage import Storage
from compactor.throttle import Pace
from compactor.wants import files_of, wants_of


class Logs(Struct, frozen=True, kw_only=True):
    """`slices`, and all their files in an order in which every slice's come by offset; read at `pace`."""

    storage: Storage
    slices: Sequence[Slice]
    paths: Sequence[str]
    pace: Pace = Pace()


def sound(logs: Logs) -> bool:
    """Whether all files are, byte for byte, what was written: to decode a damaged page can end this process.

    Raises StorageError.
    """
    files = files_of(logs.slices)
    for path in logs.paths:
        logs.pace.wait(files[path].file_bytes)
        if not footers.whole(logs.storage, files[path]):
            return False
    return True


def every(logs: Logs) -> NDArray[np.bool_]:
    """A pass in which every record is kept."""
    return np.ones(_checked(logs, sum(batch.num_rows for batch in _read(logs, ["offset"]))), np.bool_)


def last(logs: Logs, room: KeyRoom) -> NDArray[np.bool_] | None:
    """The first pass: of every record, as they are read, whether it is in `fold.latest`; None: too many keys.

    Raises StorageError, FoldError.
    """
    try:
        found = last_of_keys(lambda: _keys(logs), room)
    except MemoryError:  # Arrow's among them
        return None
    if found is not None:
        _checked(logs, len(found))
    return found


def kept(logs: Logs, which: NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
    """The second pass: the records (`fold.SCAN`) that the first has left, in its order."""
    row = 0
    for batch in logs.pace.kept(_read(logs, record.RUN.names)):
        mask = which[row : row + batch.num_rows]
        row += batch.num_rows
        if len(mask) < batch.num_rows:
            break
        if mask.all():
            yield batch
        elif mask.any():
            yield batch.filter(pa.array(mask))
    if row != len(which):
        raise FoldError(f"A fold has read {len(which)} records of {_names(logs)} at first and then others.", DEFECT)


def _keys(logs: Logs) -> Iterator[pa.RecordBatch]:
    for batch in _read(logs, ["offset", *COLUMNS]):
        logs.pace.wait(batch["key"].nbytes)
        yield batch


def _checked(logs: Logs, rows: int) -> int:
    """`rows`, if they are as many as the catalog counts, which does not for a file that is wanted in part."""
    extents = [extent for one in logs.slices for extent in one.extents]
    whole = all(one.start <= one.file.first and one.file.last < one.end for one in extents)
    records = sum(one.file.records for one in extents)
    if whole and rows != records:
        raise FoldError(f"A fold has read {rows} of {records} records of {_names(logs)}.", DEFECT)
    return rows


def _names(logs: Logs) -> str:
    return ", ".join(str(one.tp) for one in logs.slices)


def _read(logs: Logs, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """`columns` of all records, and the number of each one's slice (`fold.LOG`)."""
    wants, files = wants_of(logs.slices), files_of(logs.slices)
    for path in logs.paths:
        footers.check(logs.storage, files[path])  # each time: no page's checksum covers what it says
        with (
            footers.readable(logs.storage, path),
            logs.storage.open_input(path) as source,
            pq.ParquetFile(source, page_checksum_verification=True) as opened,
        ):
            for batch in of_file(opened, wants[path], columns):
                yield batch.select([*columns, LOG])
