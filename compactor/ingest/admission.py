"""Leaves out of a portion the records that come late by the connector's order: steps 3a and 3b of docs/protocol.md.

Late is a record of which the log keeps a later one of its key, or the portion has one at a lower offset
(`order.is_late`). So among the records of a key that are kept the order never falls as offsets rise, and the last one
by offset, which every fold keeps, is the last one by order.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from msgspec.structs import replace
from numpy.typing import NDArray

from compactor.failpoints import hit
from compactor.ingest.appends import Batch
from compactor.ingest.kept_records import with_kept
from compactor.ingest.order import columns_of, is_late, values_of
from compactor.model.key_hash import hashes_of
from compactor.model.log import PartitionLog
from compactor.model.record import RUN, RangeRead, TopicPartition, as_compared
from compactor.model.state import BY_OFFSET, CatalogState
from compactor.runs import paths
from compactor.runs.file_stats import FileStats
from compactor.runs.reader import completed, read_file_range
from compactor.runs.scan import FileRange
from compactor.runs.writer import RunTarget, write
from compactor.storage.base import Storage

Offsets = NDArray[np.int64]


def without_late(storage: Storage, state: CatalogState, batch: Batch, target: RunTarget) -> Batch:
    """Returns `batch` without the records that are late against `state`, in files of their own; as it is if none is.

    Files that have such records are written again, to `target` but with names of the batch's job. Each range says how
    many of its records were late. Raises DamagedFileError if a file that is needed is not what was written,
    MissingFileError if one is gone, StorageError.
    """
    if state.order == BY_OFFSET:
        return batch
    logs, by_log = state.by_partition(), _by_log(batch.parts)
    late = {tp: _late(storage, logs[tp], parts, state.order) for tp, parts in by_log.items() if tp in logs}
    hit("ingest.look-up")
    concerned = [part for part in batch.parts if _has_any(part, late.get(part.tp))]
    if not concerned:
        return batch
    named = paths.job_of(concerned[0].file.path)
    target = replace(target, prefix=paths.prefix(*named)) if named else target
    rewritten = list(write(_left(storage, concerned, late), target, "ingest.admit"))
    untouched = [part for part in batch.parts if not _has_any(part, late.get(part.tp))]
    parts = sorted((*untouched, *rewritten), key=lambda part: (part.tp, part.file.first))
    return replace(batch, ranges=tuple(_counted(batch.ranges, late)), parts=tuple(parts))


def _by_log(parts: Iterable[FileStats]) -> dict[TopicPartition, list[FileStats]]:
    by_log: dict[TopicPartition, list[FileStats]] = {}
    for part in parts:
        by_log.setdefault(part.tp, []).append(part)
    return by_log


def _late(storage: Storage, log: PartitionLog, parts: Sequence[FileStats], order: str) -> Offsets:
    """Returns the offsets of the records of `parts` that are late, rising.

    Of each record no more is held than this: its offset, its value, what is kept of its key, and 128 bits of its key.
    No producer knows the secrets of these hashes, so no two keys have the same.
    """
    known = (secrets.token_hex(8), secrets.token_hex(8))
    hashes: list[list[NDArray[np.uint64]]] = [[], []]
    offsets, values, kept = [], [], []
    for brought in with_kept(storage, log, parts, columns_of(order)):
        keys = as_compared(brought.records)["key"]
        for secret, held in zip(known, hashes, strict=True):
            held.append(hashes_of(keys, pa.array(np.zeros(len(keys), np.int32)), secret=secret))
        offsets.append(brought.records["offset"].to_numpy())
        values.append(values_of(brought.records, order))
        kept.append(values_of(brought.kept, order).take(brought.places()))
    if not offsets:
        return np.empty(0, np.int64)
    brought_at = np.concatenate(offsets)
    late = is_late(
        [np.concatenate(held) for held in hashes], brought_at, pa.concat_arrays(values), pa.concat_arrays(kept)
    )
    return np.sort(brought_at[late])


def _has_any(part: FileStats, late: Offsets | None) -> bool:
    return late is not None and _count(late, part.file.first, part.file.last + 1) > 0


def _count(late: Offsets, start: int, end: int) -> int:
    """Returns how many of `late`, which rise, lie in [start, end)."""
    return int(np.searchsorted(late, end) - np.searchsorted(late, start))


def _left(
    storage: Storage, parts: Sequence[FileStats], late: Mapping[TopicPartition, Offsets]
) -> Iterator[pa.RecordBatch | None]:
    """Yields the records of `parts`, by partition and offset, that are not late.

    Files of one partition are not joined (None): between two there may be the end of a range that was read.
    """
    before: TopicPartition | None = None
    for part in parts:
        if part.tp == before:
            yield None
        before = part.tp
        whole = FileRange(tp=part.tp, file=part.file, start=part.file.first, end=part.file.last + 1)
        for batch in read_file_range(storage, whole):
            stays = ~np.isin(batch["offset"].to_numpy(), late[part.tp])
            if stays.any():
                yield completed(batch.filter(pa.array(stays)), RUN.names)


def _counted(ranges: Iterable[RangeRead], late: Mapping[TopicPartition, Offsets]) -> Iterator[RangeRead]:
    """Yields `ranges` with how many of the records of each are late."""
    for read in ranges:
        own = late.get(read.tp)
        yield read if own is None else replace(read, late=_count(own, read.lo, read.hi))
