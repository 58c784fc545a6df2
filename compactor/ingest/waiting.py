"""Leaves out of a portion what waits for other partitions of its topic: step 3w of docs/protocol.md.

If values are filled and a key has one winner over a topic, the record before one with a placeholder may lie in another
partition, which may be read later. So a log takes no such record before each other log of the topic has been read to
the end that its partition had once the record was there, or has a record that comes after it by the order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from compactor.fold.latest_per_key import is_foldable
from compactor.ingest.appends import Batch
from compactor.ingest.kept_records import brought
from compactor.ingest.rewrite import parts_by_log, rewritten
from compactor.lookup.latest import VERIFIED
from compactor.model.log import PartitionLog
from compactor.model.order import columns_of, ranks_of, values_of
from compactor.model.record import RangeRead, TopicPartition
from compactor.model.state import CatalogState
from compactor.ports import Fill
from compactor.runs.file_stats import FileStats
from compactor.runs.reader import read
from compactor.runs.writer import RunTarget
from compactor.storage.base import Storage

Ends = Mapping[TopicPartition, int]
"""The end of each partition of the source; 0 for those that it does not have."""
AskEnds = Callable[[Collection[TopicPartition]], Ends]


class Coming(NamedTuple):
    """What a portion brings to one log, up to the offset `end`.

    `offsets` are those of records that may hold a placeholder, rising, and `ranks` their places by the order. `highest`
    is that of all records of the portion, -1 if it has none.
    """

    tp: TopicPartition
    end: int
    offsets: NDArray[np.int64]
    ranks: NDArray[np.int64]
    highest: int


class Goals(Struct, frozen=True):
    """How far other partitions are read before the records of a log below the offset `below` are taken."""

    below: int
    ends: Ends


def cuts(coming: Sequence[Coming], goals: Mapping[TopicPartition, Goals], ends: Ends) -> dict[TopicPartition, int]:
    """Returns from which offset on the logs of one topic wait; those that take all are left out.

    `ends` were asked for after the portion was read; they are the goals of what `goals` do not name. Of the logs that
    are not read to their goals, the one of which the highest record is the lowest never waits: a record waits for a log
    that has only lower ones. So some log always goes on.
    """
    reached = {each.tp: each.end for each in coming}
    # The place, and the partition, below which no record of a log is still to come.
    passed = {each.tp: (each.highest, each.tp.partition) for each in coming}
    waits: dict[TopicPartition, int] = {}
    is_final = False
    while not is_final:
        is_final = True
        for own in coming:
            row = _first_waiting(own, goals.get(own.tp), ends, reached, passed)
            if row is not None and own.offsets[row] < waits.get(own.tp, own.end):
                is_final = False
                waits[own.tp] = reached[own.tp] = int(own.offsets[row])
                passed[own.tp] = min(passed[own.tp], (int(own.ranks[row]), own.tp.partition))
    return waits


def _first_waiting(
    own: Coming,
    goals: Goals | None,
    ends: Ends,
    reached: Mapping[TopicPartition, int],
    passed: Mapping[TopicPartition, tuple[int, int]],
) -> int | None:
    """Returns the row of the first of a log's records that waits for another log, if any does."""
    middle = 0 if goals is None else int(np.searchsorted(own.offsets, goals.below))
    for start, end, asked in ((0, middle, ends if goals is None else goals.ends), (middle, len(own.offsets), ends)):
        behind = [tp for tp in reached if tp != own.tp and reached[tp] < asked.get(tp, 0)]
        if start < end and behind:
            rank, partition = min(passed[tp] for tp in behind)
            ranks = own.ranks[start:end]
            waits = (ranks > rank) | ((ranks == rank) & (own.tp.partition > partition))
            if waits.any():
                return start + int(waits.argmax())
    return None


class WaitingRecords:
    """Cuts portions of one run of a connector; remembers what the records that wait are waiting for."""

    def __init__(self, storage: Storage, fill: Fill) -> None:
        self._storage = storage
        self._fill = fill
        # Of the logs of which records wait. They are asked for once, so that a busy source does not move them on.
        self._goals: dict[TopicPartition, Goals] = {}

    def without(self, state: CatalogState, batch: Batch, target: RunTarget, ask_ends: AskEnds) -> Batch:
        """Returns `batch` without what waits, in files of its own; as it is if nothing does.

        Files are written to `target` but with names of the batch's job. Raises DamagedFileError, MissingFileError,
        StorageError, and what `ask_ends` raises.
        """
        if not state.is_of_topics:
            return batch
        parts = parts_by_log(batch.parts)
        waits: dict[TopicPartition, int] = {}
        for topic in sorted({tp.topic for tp in parts}):
            logs = state.logs_of(topic)
            if len(logs) > 1 and state.topics[topic].closed is None:
                waits |= self._waits(state, logs, batch, parts, ask_ends)
        return _cut(self._storage, batch, target, waits) if waits else batch

    def _waits(
        self,
        state: CatalogState,
        logs: Sequence[PartitionLog],
        batch: Batch,
        parts: Mapping[TopicPartition, Sequence[FileStats]],
        ask_ends: AskEnds,
    ) -> dict[TopicPartition, int]:
        """Returns from which offsets on the logs of one topic wait."""
        coming = self._coming(state.record_order, logs, batch, parts)
        if not any(len(each.offsets) for each in coming):
            return {}
        ends = ask_ends([log.tp for log in logs])
        waits = cuts(coming, self._goals, ends)
        for each in coming:
            cut, known = waits.get(each.tp), self._goals.pop(each.tp, None)
            if cut is not None:
                is_known = known is not None and cut < known.below
                self._goals[each.tp] = known if known is not None and is_known else Goals(each.end, ends)
        return waits

    def _coming(
        self,
        order: str,
        logs: Sequence[PartitionLog],
        batch: Batch,
        parts: Mapping[TopicPartition, Sequence[FileStats]],
    ) -> list[Coming]:
        ends = {log.tp: log.end for log in logs}
        for each in batch.ranges:
            if each.tp in ends:
                ends[each.tp] = max(ends[each.tp], each.hi)
        offsets: list[NDArray[np.int64]] = []
        needs: list[NDArray[np.bool_]] = []
        values: list[pa.Array] = []
        counts: list[int] = []
        for log in logs:
            before = len(values)
            for rows in self._read(log, parts.get(log.tp, ()), order):
                offsets.append(rows["offset"].to_numpy())
                needs.append(self._fill.may_need(rows["value"]).to_numpy(zero_copy_only=False))
                values.append(values_of(rows, order))
            counts.append(sum(len(each) for each in values[before:]))
        if not values:
            return [Coming(log.tp, ends[log.tp], _NONE, _NONE, -1) for log in logs]
        together = pa.concat_arrays(values)
        ranks, _, _ = ranks_of(together, pa.nulls(0, together.type))
        at, need = np.concatenate(offsets), np.concatenate(needs)
        made: list[Coming] = []
        first = 0
        for log, count in zip(logs, counts, strict=True):
            own = slice(first, first + count)
            first += count
            held = need[own]
            highest = int(ranks[own].max(initial=-1))
            made.append(Coming(log.tp, ends[log.tp], at[own][held], ranks[own][held], highest))
        return made

    def _read(self, log: PartitionLog, parts: Sequence[FileStats], order: str) -> Iterable[pa.RecordBatch]:
        """Yields the records that may be the latest of a key, by offset."""
        offset_range = brought(log, parts)
        for piece in offset_range.file_ranges:
            VERIFIED.check_file(self._storage, piece.file)
        for batch in read(self._storage, offset_range, (*columns_of(order), "key", "value", "rejected")):
            yield batch.filter(is_foldable(batch))


_NONE = np.empty(0, np.int64)


def _cut(storage: Storage, batch: Batch, target: RunTarget, waits: Mapping[TopicPartition, int]) -> Batch:
    """Returns `batch` without the offsets from those of `waits` on."""
    kept = tuple(part for part in batch.parts if part.tp not in waits or part.file.first < waits[part.tp])
    last = {tp: max((part.file.last for part in kept if part.tp == tp), default=-1) for tp in waits}
    concerned = {tp: np.arange(waits[tp], last[tp] + 1) for tp in waits if last[tp] >= waits[tp]}
    shorter = rewritten(storage, replace(batch, parts=kept), target, "ingest.wait", concerned, partial(_before, waits))
    written: dict[TopicPartition, list[FileStats]] = parts_by_log(shorter.parts)
    ranges = tuple(
        _shortened(each, waits[each.tp], written.get(each.tp, ())) if each.tp in waits else each
        for each in batch.ranges
        if each.tp not in waits or each.lo < waits[each.tp]
    )
    return replace(shorter, ranges=ranges)


def _before(waits: Mapping[TopicPartition, int], tp: TopicPartition, records: pa.RecordBatch) -> pa.RecordBatch:
    """Returns those of `records` that do not wait."""
    return records.filter(pa.array(records["offset"].to_numpy() < waits[tp]))


def _shortened(whole: RangeRead, cut: int, parts: Iterable[FileStats]) -> RangeRead:
    """Returns what `whole` states of the offsets below `cut`.

    Of the records that were filtered nothing tells the offsets: those of a range that is cut are not counted. A
    truncate that an order has found stays, wherever it is: what it supersedes does not depend on when it is applied.
    """
    if whole.hi <= cut:
        return whole
    written = sum(part.file.records for part in parts if whole.lo <= part.file.first < cut)
    has_truncate = whole.last_truncate is not None and whole.last_truncate < cut
    return replace(
        whole,
        hi=cut,
        start=min(whole.start, cut),
        records=written,
        superseded=0,
        filtered=0,
        truncates=whole.truncates if has_truncate else 0,
        last_truncate=whole.last_truncate if has_truncate else None,
    )
