"""What a scan wants of which file, and in which order: bounds of offsets for each slice, without overlaps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import NamedTuple

from compactor.model.log import RunFile
from compactor.model.record import TopicPartition
from compactor.runs.reader import Extent, OffsetRange


class Want(NamedTuple):
    """Of a file, the records of the slice `log` with offsets [start, end)."""

    log: int
    tp: TopicPartition
    start: int
    end: int


def files_of(slices: Iterable[OffsetRange]) -> dict[str, RunFile]:
    """Every file that holds anything of `slices`, by path."""
    return {extent.file.path: extent.file for part in slices for extent in part.extents}


def in_order(slices: Iterable[OffsetRange]) -> tuple[str, ...] | None:
    """The paths of all files so that each slice's come by offset; None where no order does that for all of them."""
    order: TopologicalSorter[str] = TopologicalSorter()
    for part in slices:
        paths = [extent.file.path for extent in part.extents]
        for path in paths:
            order.add(path)
        for first, second in pairwise(paths):
            if first != second:
                order.add(second, first)
    try:
        return tuple(order.static_order())
    except CycleError:
        return None


def wants_of(slices: Sequence[OffsetRange]) -> dict[str, list[Want]]:
    """What is wanted of each file."""
    return _by_file(slices, lambda _, extent: (extent.start, extent.end))


def wide_wants(slices: Sequence[OffsetRange]) -> dict[str, list[Want]]:
    """The same, in the bounds of the whole slice where they mean the same: then many files have equal wants.

    They mean the same for a file that is counted in full (`entire`). The rest of any other may belong to another run.
    """
    return _by_file(slices, _widened)


def _widened(part: OffsetRange, extent: Extent) -> tuple[int, int]:
    file = extent.file
    start = part.start if file.entire and file.first >= extent.start else extent.start
    end = part.end if file.entire and file.last < extent.end else extent.end
    return start, end


def _by_file(
    slices: Sequence[OffsetRange], bounds: Callable[[OffsetRange, Extent], tuple[int, int]]
) -> dict[str, list[Want]]:
    found: dict[str, list[Want]] = {}
    for log, part in enumerate(slices):
        for extent in part.extents:
            found.setdefault(extent.file.path, []).append(Want(log, part.tp, *bounds(part, extent)))
    return {path: list(_apart(wants)) for path, wants in found.items()}


def _apart(wants: Iterable[Want]) -> Iterator[Want]:
    """`wants` without overlaps: of a file that was counted in parts every record is still wanted once."""
    last: Want | None = None
    for want in sorted(wants):
        if last is None or (last.log, last.tp) != (want.log, want.tp) or want.start > last.end:
            if last is not None:
                yield last
            last = want
        else:
            last = last._replace(end=max(last.end, want.end))
    if last is not None:
        yield last
