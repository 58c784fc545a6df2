"""Writes the run of each log of a lost catalog from the records of output partitions: step R2 of docs/protocol.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from compactor.ingest.rewrite import parts_by_log
from compactor.model.log import Run
from compactor.model.record import KEY_IDENTITY, TopicPartition, as_compared
from compactor.runs.file_stats import FileStats, level0_run
from compactor.runs.reader import read_file_range
from compactor.runs.scan import FileRange
from compactor.runs.writer import RunTarget, write
from compactor.storage.base import Storage

_FAILPOINT: Final = "rebuild.write"
_COMPARED: Final = ("offset", "key", KEY_IDENTITY)


class Pieces:
    """Keeps what each output partition has of each log as a piece in files of `target`.

    With one winner per key over a topic an output partition has records of all logs. It is read once for all of them.

    `holds_tombstones`: keys have an identity, too. Then a tombstone waits in memory for `settle`, as its key may live
    in other bytes, in any output partition.
    """

    def __init__(self, target: RunTarget, *, holds_tombstones: bool = False) -> None:
        self._target = target
        self._holds_tombstones = holds_tombstones
        # By output partition its tombstones; `add` appends, `settle` takes them.
        self._tombstones: list[list[pa.RecordBatch]] = []
        # By log the files of each of its pieces; `add` appends.
        self._pieces: dict[TopicPartition, list[list[FileStats]]] = {}
        # By log the files of its records of earlier generations; `add_earlier` appends.
        self._earlier: dict[TopicPartition, list[FileStats]] = {}

    def add(self, records: Iterable[pa.RecordBatch]) -> None:
        """Writes `records` of one output partition (record.RUN), those of each log by rising offset.

        Raises StorageError.
        """
        self._write(self._without_tombstones(records) if self._holds_tombstones else records)

    def _write(self, records: Iterable[pa.RecordBatch]) -> None:
        for tp, parts in parts_by_log(write(records, self._target, _FAILPOINT)).items():
            self._pieces.setdefault(tp, []).append(sorted(parts, key=lambda part: part.file.first))

    def _without_tombstones(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own: list[pa.RecordBatch] = []
        self._tombstones.append(own)
        for batch in records:
            is_tombstone = pc.is_null(batch["value"])
            own += _if_any(batch.filter(is_tombstone))
            yield from _if_any(batch.filter(pc.invert(is_tombstone)))

    def settle(self) -> None:
        """Adds the tombstones that wait, once all output partitions are there, but those of keys that live.

        While the lost catalog kept such a tombstone it won over the record by which the key lives, or that record
        retired it. So the catalog had dropped it. In a log it would win again, and take from snapshots what readers
        have. Raises StorageError.
        """
        waiting, self._tombstones = [own for own in self._tombstones if own], []
        if not waiting:
            return
        asked = pc.unique(pa.concat_arrays([as_compared(batch)["key"] for own in waiting for batch in own]))
        live = self._written_of(asked)
        for own in waiting:
            stays = (batch.filter(pc.invert(pc.is_in(as_compared(batch)["key"], live))) for batch in own)
            self._write(kept for batch in stays for kept in _if_any(batch))

    def _written_of(self, keys: pa.Array) -> pa.Array:
        """Returns those of `keys`, as compared, of which a record was written."""
        written = [part for pieces in self._pieces.values() for parts in pieces for part in parts]
        written += [part for parts in self._earlier.values() for part in parts]
        batches = _read(self._target.storage, written, _COMPARED)
        compared = (as_compared(batch)["key"] for batch in batches)
        return pa.concat_arrays([pa.array([], pa.binary()), *(own.filter(pc.is_in(own, keys)) for own in compared)])

    def add_earlier(self, records: Iterable[pa.RecordBatch]) -> None:
        """Writes `records` (record.RUN), at falling offsets below 0: keys that live by an earlier generation.

        Each batch gets a file of its own, as the offsets of a file rise. Raises StorageError.
        """
        for tp, parts in parts_by_log(write(_turned(records), self._target, _FAILPOINT)).items():
            self._earlier.setdefault(tp, []).extend(parts)

    def lead(self, tp: TopicPartition, end: int, now_ms: int) -> Run | None:
        """Returns the run of what `add_earlier` has written of `tp`, up to the offset `end`; None if it has none."""
        parts = sorted(self._earlier.get(tp, []), key=lambda part: part.file.first)
        return level0_run(parts[0].file.first, end, parts, now_ms, folded=True) if parts else None

    def run(self, tp: TopicPartition, start: int, end: int, now_ms: int) -> Run | None:
        """Returns the run of [start, end) of all pieces of `tp`, None if it has no record; written again if several.

        No fold ends inside the run: an output has no records that were superseded. The first clean makes it the base
        run, and stamps its tombstones. Raises StorageError.
        """
        pieces = self._pieces.get(tp, [])
        if not pieces:
            return None
        if len(pieces) > 1:
            streams = [_read(self._target.storage, parts) for parts in pieces]
            pieces = [list(write(merged(streams), self._target, _FAILPOINT))]
        return level0_run(start, end, pieces[0], now_ms, folded=True)


def _turned(records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch | None]:
    for batch in records:
        yield batch.sort_by("offset")
        yield None


def _if_any(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    return [batch] if batch.num_rows else []


def _read(
    storage: Storage, parts: Sequence[FileStats], columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    for part in parts:
        file = part.file
        own = FileRange(tp=part.tp, file=file, start=file.first, end=file.last + 1)
        yield from read_file_range(storage, own, columns)


def merged(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Merges batches of record.RUN, each of `streams` by rising offset, into batches by offset; holds one of each."""
    waiting = {number: batch for number, stream in enumerate(streams) if (batch := next(stream, None)) is not None}
    while waiting:
        # What lies up to the lowest of their last offsets is complete: each stream goes on above its own.
        last = min(batch["offset"][-1].as_py() for batch in waiting.values())
        ready: list[pa.RecordBatch] = []
        for number, batch in list(waiting.items()):
            rows = pc.sum(pc.less_equal(batch["offset"], last)).as_py()
            ready.append(batch.slice(0, rows))
            rest = batch.slice(rows) if rows < batch.num_rows else next(streams[number], None)
            if rest is None:
                del waiting[number]
            else:
                waiting[number] = rest
        yield pa.concat_batches(ready).sort_by("offset")
