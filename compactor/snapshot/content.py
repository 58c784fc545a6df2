"""Decides which records of a log a snapshot holds, and up to which offset: by `snapshot.mode`. Pure.

`latest`: the live records of the base run, one for each key. `append`: every record that the log keeps up to
`published`, also those without a key and those without a value; nothing is folded then (`cleanup.policy=delete`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from compactor.fold.latest_per_key import is_rejected
from compactor.model.log import PartitionLog, exact
from compactor.runs.scan import OffsetRange, between

LATEST: Final = "latest"
APPEND: Final = "append"


def end_of(log: PartitionLog, mode: str) -> int:
    """Returns the source offset up to which a snapshot has the records of `log`.

    Above `published`, dead letters of rejected records may not be sent yet.
    """
    return log.published if mode == APPEND else log.clean_end


def range_of(log: PartitionLog, mode: str) -> OffsetRange:
    """Returns the offsets of `log` that a snapshot is written from."""
    return between(log, log.start, end_of(log, mode))


def has_content(log: PartitionLog, mode: str) -> bool:
    """Returns whether there is anything to take a snapshot of; retention may have removed all of it since."""
    return log.may_be_sent if mode == APPEND else log.base is not None


def is_complete(log: PartitionLog, mode: str) -> bool:
    """Returns whether a snapshot would have the beginning of the generation of `log`."""
    return log.generation is None or end_of(log, mode) >= log.generation.first_end


def records_of(logs: Iterable[PartitionLog], mode: str) -> int | None:
    """Counts the records that a snapshot of `logs` is written from; None if that is not known.

    It is not if a run reaches beyond the snapshot's end, or a file beyond its run: they are counted in full.
    """
    if mode != APPEND:
        return sum(log.base.records for log in logs if log.base)
    runs = [(run, part.end) for part in (range_of(log, mode) for log in logs) for run in part.runs]
    counted = all(exact(run) and run.end <= end for run, end in runs)
    return sum(run.records for run, _ in runs) if counted else None


def is_held(batch: pa.RecordBatch, mode: str) -> pa.BooleanArray:
    """Returns which records of `batch` (value, rejected) a snapshot has."""
    return pc.invert(is_rejected(batch)) if mode == APPEND else pc.is_valid(batch["value"])
