"""Writes files of a portion again: what steps 3b and 3d of docs/protocol.md decide about their records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from msgspec.structs import replace
from numpy.typing import NDArray

from compactor.ingest.appends import Batch
from compactor.model.record import RUN, TopicPartition
from compactor.runs import paths
from compactor.runs.file_stats import FileStats
from compactor.runs.reader import completed, read_file_range
from compactor.runs.scan import FileRange
from compactor.runs.writer import RunTarget, write
from compactor.storage.base import Storage

Offsets = NDArray[np.int64]
"""Offsets of one partition, rising."""

Change = Callable[[TopicPartition, pa.RecordBatch], pa.RecordBatch]
"""Returns what is written in place of some records (record.RUN) of a partition."""


def parts_by_log(parts: Iterable[FileStats]) -> dict[TopicPartition, list[FileStats]]:
    """Returns `parts` by their partitions."""
    by_log: dict[TopicPartition, list[FileStats]] = {}
    for part in parts:
        by_log.setdefault(part.tp, []).append(part)
    return by_log


def count_within(offsets: Offsets, start: int, end: int) -> int:
    """Returns how many of `offsets` lie in [start, end)."""
    return int(np.searchsorted(offsets, end) - np.searchsorted(offsets, start))


def rewritten(
    storage: Storage,
    batch: Batch,
    target: RunTarget,
    failpoint: str,
    concerned: Mapping[TopicPartition, Offsets],
    change: Change,
) -> Batch:
    """Returns `batch` with other files in place of those that hold any of `concerned`; as it is if none does.

    They are written to `target` but with names of the batch's job. Raises DamagedFileError, MissingFileError,
    StorageError; and what `change` raises.
    """
    again: list[FileStats] = []
    parts: list[FileStats] = []
    for part in batch.parts:
        offsets = concerned.get(part.tp)
        is_concerned = offsets is not None and count_within(offsets, part.file.first, part.file.last + 1) > 0
        (again if is_concerned else parts).append(part)
    if not again:
        return batch
    named = paths.job_of(again[0].file.path)
    target = replace(target, prefix=paths.prefix(*named)) if named else target
    parts.extend(write(_changed(storage, again, change), target, failpoint))
    return replace(batch, parts=tuple(sorted(parts, key=lambda part: (part.tp, part.file.first))))


def _changed(storage: Storage, parts: Sequence[FileStats], change: Change) -> Iterator[pa.RecordBatch | None]:
    """Yields what `change` makes of the records of `parts`, by partition and offset.

    Files of one partition are not joined (None): between two there may be the end of a range that was read.
    """
    before: TopicPartition | None = None
    for part in parts:
        if part.tp == before:
            yield None
        before = part.tp
        whole = FileRange(tp=part.tp, file=part.file, start=part.file.first, end=part.file.last + 1)
        for batch in read_file_range(storage, whole):
            changed = change(part.tp, completed(batch, RUN.names))
            if changed.num_rows:
                yield changed
