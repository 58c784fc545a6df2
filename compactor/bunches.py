"""Which logs a task rewrites together, and in which order it reads their files; from metadata alone: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from compactor.reading import Slice
from compactor.shares import task_bytes
from compactor.wants import files_of, in_order

_AGAIN: Final = 4
"""So many times the bytes of all files may be read, where logs of several bunches lie in the same ones."""


class Bunch(Struct, frozen=True):
    """The slices numbered `logs`, and all their files, in an order in which every slice's come by offset."""

    logs: tuple[int, ...]
    paths: tuple[str, ...]


def bunches(slices: Sequence[Slice], target: int, cores: int, most_records: int, most_bytes: int) -> tuple[Bunch, ...]:
    """Whole slices by number, in bunches of about `target` bytes (less where cores would be idle otherwise).

    What has more than `most_records` or `most_bytes` is in none; nor is anything where files would be read too often,
    nor a bunch whose files have no such order.
    """
    files = [[extent.file for extent in one.extents] for one in slices]
    sizes = [sum(file.bytes for file in own) for own in files]
    counts = [sum(file.records for file in own) for own in files]
    size = task_bytes(sum(sizes), target, cores)
    found: list[list[int]] = []
    bytes_, records = size, 0
    for log, count in enumerate(counts):
        if count > most_records or sizes[log] > most_bytes:
            continue
        if bytes_ >= size or records + count > most_records:
            found.append([])
            bytes_ = records = 0
        found[-1].append(log)
        bytes_, records = bytes_ + sizes[log], records + count
    parts = [[slices[log] for log in logs] for logs in found]
    if sum(map(_file_bytes, parts)) > _AGAIN * _file_bytes(slices):
        return ()
    ordered = ((logs, in_order(part)) for logs, part in zip(found, parts, strict=True))
    return tuple(Bunch(tuple(logs), paths) for logs, paths in ordered if paths is not None)


def _file_bytes(slices: Iterable[Slice]) -> int:
    return sum(file.file_bytes for file in files_of(slices).values())
