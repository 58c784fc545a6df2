"""Counts a level-0 run anew within bounds: where a lag ends inside a micro-batch, to decide by exact bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import pairwise

import pyarrow as pa

from compactor.actions import Restate
from compactor.append import level0
from compactor.log import PartitionLog, Run
from compactor.parts import Part, completed, joined, part_of
from compactor.reading import Extent, Slice, read_extent
from compactor.storage import Storage


def restated(storage: Storage, log: PartitionLog, run: Run) -> Restate:
    """`run` of `log`, which lies across published, as one run below it and one above it. Raises StorageError.

    The bytes of a file cannot be split in proportion: its records are read once, without Spark.
    """
    bounds = (run.start, min(max(log.published, run.start), run.end), run.end)
    pieces = (_piece(storage, log, run, start, end) for start, end in pairwise(bounds))
    return Restate(topic=log.topic, partition=log.partition, runs=tuple(piece for piece in pieces if piece))


def _piece(storage: Storage, log: PartitionLog, run: Run, start: int, end: int) -> Run | None:
    if start >= end:
        return None
    extents = Slice(tp=log.tp, start=start, end=end, runs=(run,)).extents
    return level0(start, end, [part for extent in extents for part in _part(storage, extent)], run.arrived_ms)


def _part(storage: Storage, extent: Extent) -> Iterator[Part]:
    """What of a file lies in the extent; nothing where that holds no record."""
    batches = read_extent(storage, extent)
    found = [part_of(extent.tp, extent.file.path, pa.Table.from_batches([batch])) for batch in batches]
    if found:
        yield completed(reduce(joined, found), extent.file.file_bytes, extent.file.sha256)
