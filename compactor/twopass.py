"""Rewrites a bunch of logs in one process, in two passes, as Kafka's cleaner (`Cleaner.buildOffsetMap`, `cleanInto`).

The keys first, which say what the last record of each is; then everything, of which those records are written. Only
keys are held, however large values are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from numpy.typing import NDArray

from compactor import footers, record, runfile
from compactor.errors import DEFECT, FoldError
from compactor.fold import LOG
from compactor.keep import Keep
from compactor.lastkeys import LastKeys
from compactor.parts import Part
from compactor.reading import Slice
from compactor.readwants import of_file
from compactor.runfile import RunTarget
from compactor.storage import Storage
from compactor.throttle import Pace
from compactor.wants import files_of, wants_of


class Work(Struct, frozen=True, kw_only=True):
    """The files of `slices` in the order of `paths`, what is kept of them, and how many keys may be held at once."""

    storage: Storage
    slices: Sequence[Slice]
    paths: Sequence[str]
    keep: Keep
    most_keys: int
    most_key_bytes: int


def rewritten(work: Work, target: RunTarget, failpoint: str, pace: Pace) -> list[Part] | None:
    """A part for each file and log that was written; None, and no file, where there are too many keys.

    None also where a file is not, byte for byte, what was written: to decode a damaged page can end this process.
    Raises StorageError, FoldError.
    """
    if not _is_sound(work, pace):
        return None
    try:
        last = _last(work, pace)
    except MemoryError:  # Arrow's among them
        last = None
    if last is None:
        return None
    return list(runfile.write(pace.kept(_kept(work, last, pace)), target, failpoint))


def _is_sound(work: Work, pace: Pace) -> bool:
    files = files_of(work.slices)
    for path in work.paths:
        pace.wait(files[path].file_bytes)
        if not footers.whole(work.storage, files[path]):
            return False
    return True


def _last(work: Work, pace: Pace) -> NDArray[np.bool_] | None:
    """The first pass: of every record of the bunch, as they are read, whether it is kept; None: too many keys."""
    if not work.keep.by_key:
        return np.ones(_checked(work, sum(batch.num_rows for batch in _read(work, ["offset"]))), np.bool_)
    keys = LastKeys(work.most_keys, work.most_key_bytes)
    for batch in _read(work, ["offset", "key", "rejected"]):
        pace.wait(batch["key"].nbytes)
        if not keys.add(batch):
            return None
    _checked(work, keys.rows)
    return keys.last()


def _kept(work: Work, last: NDArray[np.bool_], pace: Pace) -> Iterator[pa.RecordBatch]:
    """The second pass: the records that are kept (record.RUN), in the order of the first."""
    row = 0
    for batch in pace.kept(_read(work, record.RUN.names)):
        mask = last[row : row + batch.num_rows]
        row += batch.num_rows
        if mask.any():
            kept = work.keep.of_batch(batch.filter(pa.array(mask)))
            yield from runfile.cut(kept.select(record.RUN.names))
    if row != len(last):
        raise FoldError(f"A fold has read {len(last)} records of {_names(work)} at first and then {row}.", DEFECT)


def _checked(work: Work, rows: int) -> int:
    """`rows`, if they are as many as the catalog counts, which does not for a file that is wanted in part."""
    extents = [extent for one in work.slices for extent in one.extents]
    whole = all(one.start <= one.file.first and one.file.last < one.end for one in extents)
    records = sum(one.file.records for one in extents)
    if whole and rows != records:
        raise FoldError(f"A fold has read {rows} of {records} records of {_names(work)}.", DEFECT)
    return rows


def _names(work: Work) -> str:
    return ", ".join(str(one.tp) for one in work.slices)


def _read(work: Work, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """`columns` of all its records, and the number of each one's slice (`fold.LOG`)."""
    wants = wants_of(work.slices)
    for path in work.paths:
        with (
            footers.readable(work.storage, path),
            work.storage.open_input(path) as source,
            pq.ParquetFile(source, page_checksum_verification=True) as opened,
        ):
            for batch in of_file(opened, wants[path], columns):
                yield batch.select([*columns, LOG])
