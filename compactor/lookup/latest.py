"""Finds the latest kept record of each of some keys in one log.

Runs are asked from the newest to the oldest, each for the keys that no newer one has. A run with an index is asked for
the newest offset of each key's hash; the record there is read and its key compared, as two keys may have one hash. A
run without one, or with one that is lost or damaged, has its keys read instead: the answer is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from numpy.typing import NDArray

from compactor.errors import DamagedFileError, LookUpError, MissingFileError
from compactor.fold.latest_per_key import is_foldable
from compactor.index.blocks import FEW
from compactor.index.reader import NO_OFFSET, AskedKeys, all_offsets, newest_offsets
from compactor.index.section import from_text
from compactor.lookup.ready_runs import newest_first, runs_that_may_have
from compactor.lookup.records_at import FileOutlines, between, read_offsets
from compactor.model import record
from compactor.model.log import PartitionLog, Run
from compactor.model.record import KEY_IDENTITY
from compactor.runs.reader import read_file_range, run_schema
from compactor.runs.scan import FileRange, OffsetRange
from compactor.storage.base import Storage

# To make one takes as long as to read an index. `empty_table()` would load pandas, 0.2 s of each command's start.
_NOTHING: Final = pa.Table.from_batches([], schema=record.RUN)

_TOGETHER: Final = 64
"""How many row groups a look-up of many keys holds at once: of a rewritten run they have 16 MiB. Of 5,000 records of as
many row groups, it held 1.3 GiB; and to look for something in 5,000 pieces takes longer than to copy them."""

_COMPARED: Final = ("offset", "key", "rejected", KEY_IDENTITY)

_log = structlog.get_logger()


OUTLINES: Final = FileOutlines()
"""Those that this process has read."""

VERIFIED: Final = FileOutlines(verifies=True)
"""What a worker decodes in its own process is verified before."""


def latest_records(
    storage: Storage,
    log: PartitionLog,
    keys: pa.Array | AskedKeys,
    outlines: FileOutlines = OUTLINES,
    room: LookUpRoom | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Returns the latest kept record (record.RUN) of each of `keys` (binary, as compared) that `log` has, in no order.

    What is published and what is not yet both count. `keys` of several logs come from `asked_for`, so that they are
    hashed once. `columns`: those of record.RUN that are read, FOUND_BY among them; all by default. `outlines`
    remember the files, and verify them. Raises DamagedFileError, StorageError; MissingFileError if a file of records is
    gone: the caller's state of the catalog may be older than a vacuum; LookUpError once there is no `room` for the
    records, before others are read.
    """
    asked, records = keys if isinstance(keys, AskedKeys) else asked_for(keys), []
    reading = _Reading(outlines, room or LookUpRoom(None), columns)
    is_few = len(asked) <= FEW
    for run in runs_that_may_have(storage, log.tp, log.kept, asked) if is_few else newest_first(log.kept):
        if not len(asked):
            break
        of_run = _latest_of_run(storage, log, run, asked, reading)
        if of_run.num_rows:
            records.append(of_run)
        if of_run.num_rows == len(asked):  # each has its own
            break
        if of_run.num_rows:
            is_left = pc.invert(pc.is_in(asked.keys, record.as_compared(of_run)["key"].combine_chunks()))
            asked = asked.filter(is_left.to_numpy(zero_copy_only=False))
    if not records:
        return _NOTHING if columns is None else _NOTHING.select(columns)
    return pa.concat_tables(records) if len(records) > 1 else records[0]


def asked_for(keys: pa.Array) -> AskedKeys:
    """Returns `keys` as they are looked up: each once, without null."""
    return AskedKeys(pc.unique(keys.drop_null()))


FOUND_BY: Final = ("offset", "key", KEY_IDENTITY)
"""The columns of a record by which a look-up tells whether it is the one that is asked for."""


_A_HEADER: Final = 256
"""Bytes that a header takes once it is an object of Python's, however few it has in Arrow."""


class LookUpRoom:
    """Counts the bytes of the records that one look-up holds, of all the logs that it asks; None: without a bound.

    `holding` is told of all of them each time that they become more, and may raise.
    """

    def __init__(self, most_bytes: int | None, holding: Callable[[int], None] | None = None) -> None:
        self._most = most_bytes
        self._holding = holding
        # What the records read so far take in Arrow; those of another key with the same hash are among them.
        self._held = 0

    def counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields `batches`; raises LookUpError if they and those before take more than there is room for."""
        for batch in batches:
            headers = _length(batch["headers"]) if "headers" in batch.schema.names else 0
            # With some bytes for each column; `nbytes` takes 28 µs instead of 2, a thirtieth of a look-up.
            self._held += pa.ipc.get_record_batch_size(batch) + _A_HEADER * headers
            if self._most is not None and self._held > self._most:
                raise LookUpError(
                    f"The records of these keys take more than {self._most:,} bytes.", "Ask for fewer keys at a time."
                )
            if self._holding is not None:
                self._holding(self._held)
            yield batch


def _length(lists: pa.ListArray) -> int:
    """Returns how many values `lists` have, in half the time of `flatten`."""
    bounds = lists.offsets
    return int(bounds[-1].as_py() - bounds[0].as_py())


def indexed_offsets(storage: Storage, offset_range: OffsetRange, keys: pa.Array) -> NDArray[np.int64]:
    """Returns for each of `keys`, as compared, its newest offset in `offset_range`, by indexes alone; or NO_OFFSET.

    NO_OFFSET says nothing: the key may be in a run with an index that is absent, lost or damaged, or in an older run
    than such a one. The record at an offset has the key's hash; it may have another key. Raises StorageError.
    """
    offsets, asked = np.full(len(keys), NO_OFFSET), AskedKeys(keys)
    places = np.arange(len(keys))  # of those that are left
    for run in reversed(offset_range.runs):
        if not len(places):
            break
        start, end = max(run.start, offset_range.start), min(run.end, offset_range.end)
        of_run = _newest_in_run(storage, run, asked, start, end)
        if of_run.unread:
            break
        offsets[places] = of_run.offsets
        is_left = of_run.offsets == NO_OFFSET
        if not is_left.all():
            places, asked = places[is_left], asked.filter(is_left)
    return offsets


class _RunOffsets(NamedTuple):
    """What the indexes of a run say of some keys: the newest offset of each, NO_OFFSET if there is none.

    Of the files of which the indexes are `unread` they say nothing: None is no index.
    """

    offsets: NDArray[np.int64]
    unread: set[str | None]


def _newest_in_run(storage: Storage, run: Run, asked: AskedKeys, start: int, end: int) -> _RunOffsets:
    """Asks the indexes of `run` for the newest offset in [start, end) of each key. Raises StorageError."""
    offsets, unread = np.full(len(asked), NO_OFFSET), set[str | None]()
    for index in {file.index for file in run.files if file.first < end and file.last >= start}:
        try:
            if index is not None:
                offsets = np.maximum(offsets, newest_offsets(storage, from_text(index), asked, start, end))
                continue
        except (MissingFileError, DamagedFileError) as error:
            _warn_once(error.message)
        unread.add(index)
    return _RunOffsets(offsets, unread)


def offsets_by_index(
    storage: Storage, index: str | None, keys: pa.Array, start: int, end: int, other_than: pa.Array
) -> NDArray[np.int64] | None:
    """Returns all offsets in [start, end) that an index has of the hashes of `keys`, as compared, rising.

    `other_than` has for each of them a key as it came, of which the index need not name the records.

    None if it has too many, is lost or damaged, or if `index` is None: then the keys are to be read. Raises
    StorageError.
    """
    try:
        if index is None:
            return None
        return all_offsets(storage, from_text(index), AskedKeys(keys), start, end, other_than=other_than)
    except (MissingFileError, DamagedFileError) as error:
        _warn_once(error.message)
        return None


def within(file_range: FileRange, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns those of `offsets`, which rise, that `file_range` may have."""
    first, end = max(file_range.start, file_range.file.first), min(file_range.end, file_range.file.last + 1)
    return between(offsets, first, end)


def unindexed_bytes(logs: Iterable[PartitionLog]) -> int:
    """Returns how many bytes of records a look-up in `logs` reads for their keys, as no index has these."""
    return sum(file.bytes for log in logs for run in log.kept for file in run.files if file.index is None)


class _Reading(NamedTuple):
    """How the records of one look-up are read: verified by `outlines`, within `room`, and which `columns` of them."""

    outlines: FileOutlines
    room: LookUpRoom
    columns: Sequence[str] | None


def _latest_of_run(storage: Storage, log: PartitionLog, run: Run, asked: AskedKeys, reading: _Reading) -> pa.Table:
    """Returns the latest records of the keys in `run`."""
    offsets, unread = _newest_in_run(storage, run, asked, max(run.start, log.start), run.end)
    if not unread and (offsets == NO_OFFSET).all():
        return _NOTHING
    pieces = OffsetRange(tp=log.tp, start=max(run.start, log.start), end=run.end, runs=(run,)).file_ranges
    scanned = [piece for piece in pieces if piece.file.index in unread]
    if scanned:
        offsets = np.maximum(offsets, _by_scan(storage, scanned, asked.keys, reading.outlines))
    if (offsets == NO_OFFSET).all():
        return _NOTHING
    records = _records_at(storage, pieces, offsets, reading)
    is_right = _have_keys(records, asked.keys, offsets)
    if is_right.all():
        return records
    # A later record has another key with the same hash: all keys of the run are read to tell them apart.
    offsets[~is_right] = _by_scan(storage, pieces, asked.keys.filter(pa.array(~is_right)), reading.outlines)
    return _records_at(storage, pieces, offsets, reading)


@lru_cache(maxsize=256)
def _warn_once(reason: str) -> None:
    """Logs why an index is not used, once in a process: a publish asks it again and again."""
    _log.warning("key index not used", reason=reason, effect="done without it, until a full fold writes another")


def _by_scan(
    storage: Storage, pieces: Sequence[FileRange], keys: pa.Array, outlines: FileOutlines
) -> NDArray[np.int64]:
    """Reads all keys of `pieces`; returns the newest offset of each of `keys`, NO_OFFSET if there is none."""
    offsets = np.full(len(keys), NO_OFFSET)
    for piece in pieces:
        outlines.check_file(storage, piece.file)
    for batch in (batch for piece in pieces for batch in read_file_range(storage, piece, _COMPARED)):
        compared = record.as_compared(batch)
        places = pc.index_in(compared["key"], keys)
        wanted = pc.and_(is_foldable(compared), pc.is_valid(places))
        if wanted.true_count:
            np.maximum.at(offsets, places.filter(wanted).to_numpy(), batch["offset"].filter(wanted).to_numpy())
    return offsets


def _records_at(
    storage: Storage, pieces: Sequence[FileRange], offsets: NDArray[np.int64], reading: _Reading
) -> pa.Table:
    """Reads the records at `offsets`, without those that are NO_OFFSET, by offset."""
    wanted = _once_each(offsets[offsets != NO_OFFSET])
    schema = record.RUN if reading.columns is None else run_schema(tuple(reading.columns))
    batches = reading.room.counted(_batches_at(storage, pieces, wanted, reading))
    return pa.Table.from_batches(batches if len(wanted) <= FEW else _copied(batches), schema)


def _copied(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of `batches`, _TOGETHER of them in one: each keeps the row group in memory that it is cut from.

    Of a few the row groups are not copied: they are often remembered.
    """
    while some := list(islice(batches, _TOGETHER)):
        yield pa.concat_batches(some)


def _batches_at(
    storage: Storage, pieces: Sequence[FileRange], wanted: NDArray[np.int64], reading: _Reading
) -> Iterator[pa.RecordBatch]:
    for piece in pieces:
        own = within(piece, wanted)
        if len(own):
            yield from read_offsets(storage, piece, own, reading.outlines, reading.columns)


def _once_each(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns `offsets` once each, rising."""
    return np.array(sorted({*offsets.tolist()}), np.int64) if len(offsets) <= FEW else np.unique(offsets)


def _have_keys(records: pa.Table, keys: pa.Array, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns whether each of `keys` has no offset, or the record at its offset has the key."""
    if len(keys) <= FEW:  # five calls of Arrow and NumPy take longer, and give the interpreter's lock away
        held = dict(zip(records["offset"].to_pylist(), record.as_compared(records)["key"].to_pylist(), strict=True))
        asked = zip(keys.to_pylist(), offsets.tolist(), strict=True)
        return np.array([offset == NO_OFFSET or held.get(offset) == key for key, offset in asked], np.bool_)
    has_offset = np.flatnonzero(offsets != NO_OFFSET)
    places = np.searchsorted(records["offset"].to_numpy(), offsets[has_offset])
    own = record.as_compared(records)["key"].take(pa.array(places))
    have = np.ones(len(keys), np.bool_)
    have[has_offset] = pc.equal(own, keys.take(pa.array(has_offset))).to_numpy()
    return have
