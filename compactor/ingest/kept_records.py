"""Looks up what a log keeps of the keys that a portion brings: step 3a of docs/protocol.md.

Whatever decides about a record as it comes, by what is kept of its key, begins here. `admission` asks for what records
are ordered by; who needs more of a kept record asks for more columns, its value among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from compactor.errors import DamagedFileError, LookUpError, MissingFileError, UnreadableFileError
from compactor.fold.latest_per_key import is_foldable
from compactor.fold.memory_budget import TOGETHER, MemoryBudget, gathered
from compactor.lookup.latest import FOUND_BY, VERIFIED, LookUpRoom, latest_records
from compactor.model.log import PartitionLog, Run
from compactor.model.record import as_compared
from compactor.runs.file_stats import FileStats
from compactor.runs.reader import read
from compactor.runs.scan import OffsetRange
from compactor.storage.base import Storage

KEPT_BYTES: Final = 64 << 20
"""Bytes of kept records that are held for some of a portion's keys: as many as of the portion itself. If they have
more, fewer keys are looked up at a time."""

_WITHOUT_IT: Final = (
    "Put the file back from a copy, then keyfold restart CONNECTOR.json. Without one, keyfold resync CONNECTOR.json "
    "reads the source again; if the source has lost records since, move the connector's folder in storage.location "
    "away, and keyfold rebuild CONNECTOR.json makes it again from the output."
)
"""What to do if a kept file is gone: nothing of the portion can be decided, so no partition is quarantined alone."""


@contextmanager
def needed_of(log: PartitionLog) -> Iterator[None]:
    """Has an error of a file that is kept of `log` say what it is needed for, and what to do."""
    try:
        yield
    except (DamagedFileError, MissingFileError, UnreadableFileError) as error:
        raise type(error)(
            f"{log.tp}: the records from offset {log.end} on are decided about by what is kept of their keys. "
            f"{error.message}",
            _WITHOUT_IT,
        ) from error


class Brought(NamedTuple):
    """Records of a portion, by offset, and what the log keeps of their keys: one record a key at most, in no order.

    Both have the columns that were asked for.
    """

    records: pa.RecordBatch
    kept: pa.RecordBatch

    def places(self) -> pa.Array:
        """Returns for each of `records` the row of `kept` that has its key; null if nothing is kept of it."""
        return pc.index_in(as_compared(self.records)["key"], as_compared(self.kept)["key"])


def with_kept(
    storage: Storage,
    log: PartitionLog,
    parts: Sequence[FileStats],
    columns: Sequence[str],
    together: MemoryBudget = TOGETHER,
    kept_bytes: int = KEPT_BYTES,
) -> Iterator[Brought]:
    """Yields the records of `parts`, a portion's files of `log`, that may be the latest of a key; some at a time.

    What lies below the end of `log` is left out: it is ingested already. All is compared with `log` as it is: earlier
    records of the portion are not among what is kept. The records of one key come by offset. `columns` are those of
    record.RUN that are read in addition to what a look-up needs itself.

    Raises DamagedFileError, StorageError; MissingFileError if a file is gone, as `log` may be older than a vacuum.
    """
    names = tuple(dict.fromkeys((*FOUND_BY, *columns)))
    for part in parts:
        VERIFIED.check_file(storage, part.file)
    for batches in gathered(read(storage, brought(log, parts), (*names, "rejected")), together):
        rows = pa.concat_batches(batches)
        rows = rows.filter(is_foldable(rows)).select(names)
        if rows.num_rows:
            yield from _looked_up(storage, log, rows, kept_bytes)


def brought(log: PartitionLog, parts: Sequence[FileStats]) -> OffsetRange:
    """Returns the offsets of a portion's files, `parts`, that `log` does not have yet."""
    end = max((part.file.last + 1 for part in parts), default=log.end)
    files = tuple(part.file for part in parts if part.file.last >= log.end)
    records, size = sum(file.records for file in files), sum(file.bytes for file in files)
    run = Run(start=log.end, end=end, level=0, files=files, records=records, bytes=size)
    return OffsetRange(tp=log.tp, start=log.end, end=max(end, log.end), runs=(run,) if files else ())


def _looked_up(storage: Storage, log: PartitionLog, rows: pa.RecordBatch, kept_bytes: int) -> Iterator[Brought]:
    """Yields `rows` with what is kept; by fewer keys at a time if that has more than `kept_bytes`."""
    compared = as_compared(rows)["key"]
    keys = pc.unique(compared)
    room = LookUpRoom(kept_bytes if len(keys) > 1 else None)
    try:
        with needed_of(log):
            kept = latest_records(storage, log, keys, VERIFIED, room, rows.schema.names)
    except LookUpError:
        middle = len(keys) // 2
        for some in (keys[:middle], keys[middle:]):
            yield from _looked_up(storage, log, rows.filter(pc.is_in(compared, some)), kept_bytes)
    else:
        columns = [column.combine_chunks() for column in kept.columns]
        yield Brought(rows, pa.RecordBatch.from_arrays(columns, kept.schema.names))
