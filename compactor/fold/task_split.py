"""How the work on many logs is shared among tasks, from metadata alone: pure.

Small logs share a task, a large one is cut where its bytes are; so nothing has to be sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from compactor.runs.scan import FileRange, OffsetRange

_LEAST_BYTES: Final = 8 << 20
"""Less than this is not worth a task of its own."""

_TASKS_PER_CORE: Final = 4


class Share(Struct, frozen=True):
    """Of the slice numbered `log`, the offsets from `start` (to the next share's) are the work of `task`."""

    log: int
    start: int
    task: int


def shares(slices: Sequence[OffsetRange], target: int, cores: int) -> tuple[Share, ...]:
    """Tasks 0, 1, … over all `slices`, by log and offset, each of about `target` bytes.

    Less where cores would be idle otherwise, more where there would be too many tasks. Bytes are those of
    records (`record.measure`), uncompressed, as if each file's were spread evenly over its offsets.
    """
    size = task_bytes(sum(one.file.bytes for part in slices for one in part.file_ranges), target, cores)
    found: list[Share] = []
    task, filled = 0, 0
    for log, part in enumerate(slices):
        task, filled = (task + 1, 0) if filled >= size else (task, filled)
        found.append(Share(log, part.start, task))
        for at, weight in _steps(part, size):
            if filled >= size:
                task, filled = task + 1, 0
                found.append(Share(log, at, task))
            filled += weight
    return tuple(found)


def task_bytes(total: int, target: int, cores: int) -> int:
    """How much of `total` bytes one task takes, where `target` would be right for it and there are `cores`."""
    idle_otherwise = max(_LEAST_BYTES, -(-total // cores))
    return max(1, min(target, idle_otherwise), -(-total // (_TASKS_PER_CORE * cores)))


def _steps(part: OffsetRange, size: int) -> Iterator[tuple[int, int]]:
    """(first offset, bytes) of pieces of at most half of `size`, by offset."""
    for one in part.file_ranges:
        yield from _cut(one, max(1, -(-2 * one.file.bytes // size)))


def _cut(one: FileRange, pieces: int) -> Iterator[tuple[int, int]]:
    first, last = max(one.start, one.file.first), min(one.end - 1, one.file.last)
    width = last - first + 1
    for piece in range(pieces):
        yield first + width * piece // pieces, one.file.bytes // pieces
