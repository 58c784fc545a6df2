"""Leaves out of a portion the records that come late by the connector's order: steps 3a and 3b of docs/protocol.md.

Late is a record of which the log keeps a later one of its key, or the portion has one at a lower offset
(`order.is_late`). So among the records of a key that are kept the order never falls as offsets rise, and the last one
by offset, which every fold keeps, is the last one by order.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from msgspec.structs import replace
from numpy.typing import NDArray

from compactor.failpoints import hit
from compactor.ingest.appends import Batch
from compactor.ingest.kept_records import with_kept
from compactor.ingest.order import columns_of, is_late, values_of
from compactor.ingest.rewrite import Offsets, count_within, parts_by_log, rewritten
from compactor.model.key_hash import hashes_of
from compactor.model.log import PartitionLog
from compactor.model.record import RangeRead, TopicPartition, as_compared
from compactor.model.state import BY_OFFSET, CatalogState
from compactor.runs.file_stats import FileStats
from compactor.runs.writer import RunTarget
from compactor.storage.base import Storage


def without_late(storage: Storage, state: CatalogState, batch: Batch, target: RunTarget) -> Batch:
    """Returns `batch` without the records that are late against `state`, in files of their own; as it is if none is.

    Files that have such records are written again, to `target` but with names of the batch's job. Each range says how
    many of its records were late. Raises DamagedFileError if a file that is needed is not what was written,
    MissingFileError if one is gone, StorageError.
    """
    if state.order == BY_OFFSET:
        return batch
    logs = state.by_partition()
    late = {
        tp: _late(storage, logs[tp], parts, state.order)
        for tp, parts in parts_by_log(batch.parts).items()
        if tp in logs
    }
    hit("ingest.look-up")
    admitted = rewritten(storage, batch, target, "ingest.admit", late, partial(_left, late))
    return batch if admitted is batch else replace(admitted, ranges=tuple(_counted(batch.ranges, late)))


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


def _left(late: Mapping[TopicPartition, Offsets], tp: TopicPartition, records: pa.RecordBatch) -> pa.RecordBatch:
    """Returns those of `records` that are not late."""
    return records.filter(pa.array(~np.isin(records["offset"].to_numpy(), late[tp])))


def _counted(ranges: Iterable[RangeRead], late: Mapping[TopicPartition, Offsets]) -> Iterator[RangeRead]:
    """Yields `ranges` with how many of the records of each are late."""
    for read in ranges:
        own = late.get(read.tp)
        yield read if own is None else replace(read, late=count_within(own, read.lo, read.hi))
