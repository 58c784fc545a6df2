"""Writes the run of a restored log: the last record of each key that its output holds (step R2).

On its own because it is the one place where a run is made of what was sent, not of what was read.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from compactor.model.log import Run
from compactor.rebuild.plan import LostLog
from compactor.runs import paths
from compactor.runs.file_stats import level0_run
from compactor.runs.writer import RunTarget, write
from compactor.storage.base import Storage


def write_records(
    storage: Storage, lost: LostLog, batches: Iterable[pa.RecordBatch], epoch: int, now_ms: int, max_bytes: int
) -> Run | None:
    """Writes `batches` (record.RUN, by rising offset, one record per key) of a lost log; returns their run, if any.

    No fold ends inside it, as what a later record superseded is not there. The first full fold makes it the base run,
    and stamps its tombstones. Raises StorageError, FoldError.
    """
    target = RunTarget(storage=storage, prefix=paths.prefix(epoch, "rebuild"), max_bytes=max_bytes, arrived_ms=now_ms)
    stats = sorted(write(batches, target, "rebuild.write"), key=lambda part: part.file.first)
    if not stats:
        return None
    return level0_run(lost.position.start, lost.position.offset, stats, now_ms, folded=True)
