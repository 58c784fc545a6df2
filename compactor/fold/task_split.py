"""Splits the work on many offset ranges into Spark tasks, from metadata alone: pure.

Small ranges share a task, a large one is cut by the bytes of its files; so nothing has to be sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from compactor.bin_packing import AtMost, Until, pack
from compactor.runs.scan import FileRange, OffsetRange, files_in_order

_LEAST_BYTES: Final = 8 << 20
"""Fewer bytes are not worth a task of their own."""

# At most so many tasks a core: to start more costs more than their finer balance gains.
_TASKS_PER_CORE: Final = 4


class TaskSplit(Struct, frozen=True):
    """What one task folds: the ranges numbered `logs`, and all their files, each range's by offset."""

    logs: tuple[int, ...]
    paths: tuple[str, ...]


class RangeSplit(Struct, frozen=True):
    """Of the range numbered `log`, the offsets from `start` (to the next split's) are the work of `task`."""

    log: int
    start: int
    task: int


def split_by_log(
    ranges: Sequence[OffsetRange], target_bytes: int, cores: int, most_records: int
) -> tuple[TaskSplit, ...]:
    """Packs whole ranges into tasks of about `target_bytes` (less if cores would be idle otherwise).

    A task has `most_records` at most; a range with more has a task of its own. If no order of its files gives a range
    by rising offset, the range is in no task.
    """
    files = [[file_range.file for file_range in part.file_ranges] for part in ranges]
    sizes = [sum(file.bytes for file in own) for own in files]
    counts = [sum(file.records for file in own) for own in files]
    size = task_bytes(sum(sizes), target_bytes, cores)
    packed = pack(range(len(ranges)), Until(size, sizes.__getitem__), AtMost(most_records, counts.__getitem__))
    return tuple(split for logs in packed for split in _ordered(ranges, logs))


def _ordered(ranges: Sequence[OffsetRange], logs: Sequence[int]) -> Iterator[TaskSplit]:
    """Puts the ranges numbered `logs` into one task, or each into its own if no order of files does for all."""
    paths = files_in_order([ranges[log] for log in logs])
    if paths is not None:
        yield TaskSplit(tuple(logs), paths)
    elif len(logs) > 1:
        for log in logs:
            yield from _ordered(ranges, [log])


def split_by_offset(ranges: Sequence[OffsetRange], target_bytes: int, cores: int) -> tuple[RangeSplit, ...]:
    """Cuts all `ranges` into tasks 0, 1, …, by log and offset, each of about `target_bytes`.

    Less if cores would be idle otherwise, more if there would be too many tasks. Bytes are those of records
    (`record.measure`), uncompressed, as if each file's were spread evenly over its offsets.
    """
    size = task_bytes(
        sum(file_range.file.bytes for part in ranges for file_range in part.file_ranges), target_bytes, cores
    )
    pieces = (piece for log, part in enumerate(ranges) for piece in _pieces(log, part, size))
    return tuple(
        RangeSplit(log, start, task)
        for task, packed in enumerate(pack(pieces, Until(size, lambda piece: piece[2])))
        for log, start in sorted({log: start for log, start, _ in reversed(packed)}.items())  # the first of each log
    )


def task_bytes(total: int, target: int, cores: int) -> int:
    """Returns how much of `total` bytes one task takes, with `cores` and the wish for `target` bytes a task."""
    idle_otherwise = max(_LEAST_BYTES, -(-total // cores))
    return max(1, min(target, idle_otherwise), -(-total // (_TASKS_PER_CORE * cores)))


_Piece = tuple[int, int, int]
"""(log, first offset, bytes)"""


def _pieces(log: int, part: OffsetRange, size: int) -> Iterator[_Piece]:
    """Cuts `part` into pieces of at most half of `size` bytes; the first is its start, without bytes."""
    yield log, part.start, 0
    for file_range in part.file_ranges:
        for start, weight in _cut(file_range, max(1, -(-2 * file_range.file.bytes // size))):
            yield log, start, weight


def _cut(file_range: FileRange, pieces: int) -> Iterator[tuple[int, int]]:
    first, last = max(file_range.start, file_range.file.first), min(file_range.end - 1, file_range.file.last)
    width = last - first + 1
    for piece in range(pieces):
        yield first + width * piece // pieces, file_range.file.bytes // pieces
