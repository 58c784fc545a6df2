"""Continues the logs with a micro-batch, by offset: a Batch becomes Append actions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import UNSET, Struct
from msgspec.structs import replace

from compactor.errors import DEFECT, GapError, IngestError
from compactor.model.actions import Append
from compactor.model.log import Gap, PartitionLog
from compactor.model.record import RangeRead, TopicPartition
from compactor.model.state import CatalogState
from compactor.runs.file_stats import FileStats, level0_run


class Batch(Struct, frozen=True, kw_only=True):
    """A micro-batch that is written and not yet in the catalog; `bytes_read` counts all that was read.

    `ranges` are in order of partition and lo, `parts` in order of partition and first offset. `is_full`: a task of it
    had written enough, or its time was over, so that more may be left to be read, and ranges may have holes between
    them. `read_s`: how long (s) a job of its own took; 0 if it had none.
    """

    ranges: tuple[RangeRead, ...]
    parts: tuple[FileStats, ...]
    bytes_read: int = 0
    is_full: bool = False
    read_s: float = 0.0


def up_to_holes(batch: Batch, starts: Mapping[TopicPartition, int]) -> Batch:
    """Returns `batch` without what does not continue its partition from `starts` on.

    For a read that has ended early: several tasks may have read one partition, and only the first of them to the end of
    its range. What follows a hole is as if it had not been read.
    """
    ends = dict(starts)
    kept: list[RangeRead] = []
    for read in batch.ranges:
        if read.lo == ends.get(read.tp):
            ends[read.tp] = read.hi
            kept.append(read)
    parts = tuple(part for part in batch.parts if part.file.first < ends.get(part.tp, 0))
    return replace(batch, ranges=tuple(kept), parts=parts)


def unknown_partitions(state: CatalogState, batch: Batch) -> list[TopicPartition]:
    """Returns the partitions of `batch` that the catalog does not know, or knows under another topic id."""
    known = state.by_partition()
    return [
        read.tp
        for read in batch.ranges
        if read.tp not in known or state.topics[read.tp.topic].topic_id != read.topic_id
    ]


class _Piece(Struct, frozen=True):
    """Contiguous offsets [lo, hi), the first of them lost below `start`, and what the rest holds.

    `folded`: some records of it were left out, as later ones have their keys; `late` lost by the connector's order;
    `late_last` as in `RangeRead`.
    """

    lo: int
    hi: int
    start: int
    parts: tuple[FileStats, ...]
    folded: bool
    late: int
    late_last: str | None


def appends(state: CatalogState, batch: Batch, now_ms: int) -> tuple[Append, ...]:
    """Returns what of `batch` the logs of `state` do not hold yet; nothing if they hold all of it.

    Per partition: hi ≤ end is already taken; lo ≤ end < hi gives the suffix from end. Raises GapError if
    lo > end or a sub-range is missing, IngestError if what was written is not what was read.
    """
    logs = state.by_partition()
    written: dict[TopicPartition, list[FileStats]] = {}
    for part in batch.parts:
        written.setdefault(part.tp, []).append(part)
    actions: list[Append] = []
    for tp, reads in _by_partition(batch.ranges).items():
        log = _known(state, logs.get(tp), reads)
        actions.extend(_continued(log, _pieces(reads, written.pop(tp, [])), now_ms))
    if written:
        raise IngestError(f"{min(written)}: records came without a statement of their range.", DEFECT)
    return tuple(actions)


def _by_partition(reads: Iterable[RangeRead]) -> dict[TopicPartition, list[RangeRead]]:
    grouped: dict[TopicPartition, list[RangeRead]] = {}
    for read in sorted(reads, key=lambda read: (read.tp, read.lo, read.hi)):
        grouped.setdefault(read.tp, []).append(read)
    return grouped


def _known(state: CatalogState, log: PartitionLog | None, reads: Sequence[RangeRead]) -> PartitionLog:
    tp = reads[0].tp
    topic = state.topics.get(tp.topic)
    if log is None or topic is None:
        raise IngestError(f"{tp} was read and is not in the catalog.", DEFECT)
    for read in reads:
        if read.topic_id != topic.topic_id:
            raise IngestError(
                f"{tp}: the batch was read from the topic with id {read.topic_id}, the log is of {topic.topic_id}.",
                "The topic was recreated: go on under a new connector name.",
            )
    return log


def _continued(log: PartitionLog, pieces: Iterable[_Piece], now_ms: int) -> Iterator[Append]:
    end = log.end
    for piece in pieces:
        if piece.lo > end:
            raise GapError(
                f"{log.tp}: the log ends at offset {end} and the batch begins at {piece.lo}: the offsets between "
                "are missing.",
                "Restart the connector: it goes on from the end of its log.",
            )
        if piece.hi > end:
            yield _append(log, end, piece, now_ms)
            end = piece.hi


def _append(log: PartitionLog, start: int, piece: _Piece, now_ms: int) -> Append:
    parts = [part for part in piece.parts if part.file.last >= start]
    return Append(
        topic=log.topic,
        partition=log.partition,
        start=start,
        end=piece.hi,
        run=level0_run(start, piece.hi, parts, now_ms, folded=piece.folded) if parts else None,
        gap=Gap(start, piece.start) if piece.start > start else None,
        late=piece.late or UNSET,
        late_last=UNSET if piece.late_last is None else piece.late_last,
    )


def _pieces(reads: Sequence[RangeRead], parts: Sequence[FileStats]) -> list[_Piece]:
    """Joins contiguous sub-ranges as far as one Append can hold them: its gap can only be at its start."""
    joined: list[_Piece] = []
    waiting = sorted(parts, key=lambda part: part.file.first)
    for read in reads:
        mine = [part for part in waiting if read.lo <= part.file.first < read.hi]
        _check_read(read, mine, joined[-1].hi if joined else read.lo)
        start, folded = min(read.start, read.hi), read.superseded > 0
        _join(joined, _Piece(read.lo, read.hi, start, tuple(mine), folded, read.late, read.late_last))
    if sum(len(piece.parts) for piece in joined) < len(waiting):
        raise IngestError(f"{reads[0].tp}: records lie outside the ranges that were read.", DEFECT)
    return joined


def _join(pieces: list[_Piece], piece: _Piece) -> None:
    last = pieces[-1] if pieces else None
    if last is not None and piece.late_last is None:
        piece = replace(piece, late_last=last.late_last)
    if last is not None and last.start == last.hi:
        pieces[-1] = replace(piece, lo=last.lo)
    elif last is not None and piece.start == piece.lo:
        folded, late = last.folded or piece.folded, last.late + piece.late
        parts = (*last.parts, *piece.parts)
        pieces[-1] = replace(last, hi=piece.hi, parts=parts, folded=folded, late=late, late_last=piece.late_last)
    else:
        pieces.append(piece)


def _check_read(read: RangeRead, parts: Sequence[FileStats], end: int) -> None:
    """Checks that `read` continues the one before it, which ends at `end`, and that `parts` are its records.

    Raises GapError, IngestError.
    """
    if read.lo > end:
        raise GapError(f"{read.tp}: the offsets [{end}, {read.lo}) are missing inside a batch.", DEFECT)
    if read.lo < end:
        raise IngestError(f"{read.tp}: a batch holds the offsets [{read.lo}, {end}) twice.", DEFECT)
    if any(part.file.first < read.start or part.file.last >= read.hi for part in parts):
        raise IngestError(f"{read.tp}: records lie outside the range [{read.start}, {read.hi}) they are of.", DEFECT)
    written = sum(part.file.records for part in parts)
    if written + read.superseded + read.filtered + read.late != read.records:
        raise IngestError(
            f"{read.tp}: {read.records} records of the offsets [{read.lo}, {read.hi}) were read and {written} written, "
            f"{read.superseded} superseded, {read.filtered} filtered, {read.late} late.",
            DEFECT,
        )
