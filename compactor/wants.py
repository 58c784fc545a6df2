"""What a scan wants of which file, and in which order: bounds of offsets for each slice, without overlaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import NamedTuple

from compactor.log import RunFile
from compactor.reading import Extent, Slice
from compactor.record import TopicPartition


class Want(NamedTuple):
    """Of a file, the records of the slice `log` with offsets [start, end)."""

    log: int
    tp: TopicPartition
    start: int
    end: int


def files_of(slices: Iterable[Slice]) -> dict[str, RunFile]:
    """Every file that holds anything of `slices`, by path."""
    return {extent.file.path: extent.file for part in slices for extent in part.extents}


def in_order(slices: Iterable[Slice]) -> tuple[str, ...] | None:
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


def wants_of(slices: Sequence[Slice]) -> dict[str, list[Want]]:
    """What is wanted of each file.

    Where that is all of a partition's records, wider bounds say it as well, so that most files are alike.
    """
    found: dict[str, list[Want]] = {}
    for log, part in enumerate(slices):
        for extent in part.extents:
            lowest, highest = _room(part, extent)
            start = extent.start if extent.file.first < extent.start else lowest
            end = extent.end if extent.file.last >= extent.end else highest
            found.setdefault(extent.file.path, []).append(Want(log, part.tp, start, end))
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


def _room(part: Slice, extent: Extent) -> tuple[int, int]:
    """How far the bounds of `extent` may be widened: up to the rewritten runs beside it.

    A file that was counted in parts (`Restate`) may hold records which such a run has replaced.
    """
    rewritten = [run for run in part.runs if run.level != 0]
    lowest = max((run.end for run in rewritten if run.end <= extent.start), default=part.start)
    highest = min((run.start for run in rewritten if run.start >= extent.end), default=part.end)
    return lowest, highest
