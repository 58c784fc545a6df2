"""Writes the run of each log of a lost catalog from the records of output partitions: step R2 of docs/protocol.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from compactor.ingest.rewrite import parts_by_log
from compactor.model.log import Run
from compactor.model.record import TopicPartition
from compactor.runs.file_stats import FileStats, level0_run
from compactor.runs.reader import read_file_range
from compactor.runs.scan import FileRange
from compactor.runs.writer import RunTarget, write
from compactor.storage.base import Storage

_FAILPOINT: Final = "rebuild.write"


class Pieces:
    """Keeps what each output partition has of each log as a piece in files of `target`.

    With one winner per key over a topic an output partition has records of all logs. It is read once for all of them.
    """

    def __init__(self, target: RunTarget) -> None:
        self._target = target
        # By log the files of each of its pieces; `add` appends.
        self._pieces: dict[TopicPartition, list[list[FileStats]]] = {}
        # By log the files of its records of earlier generations; `add_earlier` appends.
        self._earlier: dict[TopicPartition, list[FileStats]] = {}

    def add(self, records: Iterable[pa.RecordBatch]) -> None:
        """Writes `records` of one output partition (record.RUN), those of each log by rising offset.

        Raises StorageError.
        """
        for tp, parts in parts_by_log(write(records, self._target, _FAILPOINT)).items():
            self._pieces.setdefault(tp, []).append(sorted(parts, key=lambda part: part.file.first))

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


def _read(storage: Storage, parts: Sequence[FileStats]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        file = part.file
        yield from read_file_range(storage, FileRange(tp=part.tp, file=file, start=file.first, end=file.last + 1))


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
