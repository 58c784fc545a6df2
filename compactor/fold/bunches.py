"""Which logs a task rewrites together, and in which order it reads their files; from metadata alone: pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from compactor.fold.task_split import task_bytes
from compactor.runs.scan import OffsetRange, files_in_order


class Bunch(Struct, frozen=True):
    """The slices numbered `logs`, and all their files, in an order in which every slice's come by offset."""

    logs: tuple[int, ...]
    paths: tuple[str, ...]


def bunches(slices: Sequence[OffsetRange], target: int, cores: int, most_records: int) -> tuple[Bunch, ...]:
    """Whole slices by number, in bunches of about `target` bytes (less where cores would be idle otherwise).

    A bunch has `most_records` at most; a slice with more is a bunch by itself. A slice whose files have no order in
    which its offsets rise is in no bunch.
    """
    files = [[one.file for one in one.file_ranges] for one in slices]
    sizes = [sum(file.bytes for file in own) for own in files]
    counts = [sum(file.records for file in own) for own in files]
    size = task_bytes(sum(sizes), target, cores)
    found: list[list[int]] = []
    bytes_, records = size, 0
    for log, count in enumerate(counts):
        if bytes_ >= size or records + count > most_records:
            found.append([])
            bytes_ = records = 0
        found[-1].append(log)
        bytes_, records = bytes_ + sizes[log], records + count
    return tuple(bunch for logs in found for bunch in _ordered(slices, logs))


def _ordered(slices: Sequence[OffsetRange], logs: Sequence[int]) -> Iterator[Bunch]:
    """The slices numbered `logs` in one bunch, or each by itself where no order of files does for all of them."""
    paths = files_in_order([slices[log] for log in logs])
    if paths is not None:
        yield Bunch(tuple(logs), paths)
    elif len(logs) > 1:
        for log in logs:
            yield from _ordered(slices, [log])
