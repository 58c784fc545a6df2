"""Leaves out of a portion the records that come late by the connector's order: steps 3a and 3b of docs/protocol.md.

Late is a record of which the log keeps a later one of its key, or the portion has one at a lower offset
(`order.is_late`). So among the records of a key that are kept the order never falls as offsets rise, and the last one
by offset, which every fold keeps, is the last one by order. Bare tombstones get the value that they take.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET
from msgspec.structs import replace
from numpy.typing import NDArray

from compactor.failpoints import hit
from compactor.ingest.appends import Batch
from compactor.ingest.kept_records import Brought, with_kept
from compactor.ingest.rewrite import Offsets, count_within, parts_by_log, rewritten
from compactor.model.fence import are_before
from compactor.model.key_hash import hashes_of
from compactor.model.log import PartitionLog
from compactor.model.order import FIELD, are_bare, columns_of, ordered, values_of
from compactor.model.record import ORDER_VALUE, RUN, RangeRead, TopicPartition, as_compared
from compactor.model.state import BY_OFFSET, CatalogState
from compactor.runs.file_stats import FileStats
from compactor.runs.writer import RunTarget
from compactor.storage.base import Storage

_DIGEST: Final = 16
"""Bytes that tell the key of a log's last record from others: nobody finds two keys that have the same."""


class Decided(NamedTuple):
    """What 3b decides of one log's records; offsets rise.

    `late` are left out. Those at `taking` are bare and get the values `taken`. `brought` are all that were decided
    about; `ends` has of some of them, the last of each range and the first of all, a digest of their key.
    """

    late: Offsets
    taking: Offsets
    taken: pa.Array
    brought: Offsets
    ends: Mapping[int, str]

    def late_last(self, read: RangeRead) -> str | None:
        """Returns what `RangeRead` says of the last record of a range; None if it has none that was decided about."""
        if not self.ends:  # the order knows no bare tombstones
            return None
        last = int(np.searchsorted(self.brought, read.hi)) - 1
        if last < 0 or self.brought[last] < read.lo:
            return None
        offset = int(self.brought[last])
        return self.ends.get(offset, "") if count_within(self.late, offset, offset + 1) else ""


def without_late(storage: Storage, state: CatalogState, batch: Batch, target: RunTarget) -> Batch:
    """Returns `batch` without the records that are late against `state`, in files of their own; as it is if none is.

    Files that have such records, or bare tombstones that take a value, are written again, to `target` but with names of
    the batch's job. Each range says how many of its records were late. Raises DamagedFileError if a file that is needed
    is not what was written, MissingFileError if one is gone, StorageError.
    """
    if state.record_order == BY_OFFSET:
        return batch
    logs = state.by_partition()
    decided = {
        tp: _decided(storage, logs[tp], parts, state, [read for read in batch.ranges if read.tp == tp])
        for tp, parts in parts_by_log(batch.parts).items()
        if tp in logs
    }
    hit("ingest.look-up")
    concerned = {tp: np.union1d(each.late, each.taking) for tp, each in decided.items()}
    admitted = rewritten(storage, batch, target, "ingest.admit", concerned, partial(_admitted, decided))
    return replace(admitted, ranges=tuple(_counted(batch.ranges, decided)))


def _decided(
    storage: Storage, log: PartitionLog, parts: Sequence[FileStats], state: CatalogState, ranges: Sequence[RangeRead]
) -> Decided:
    """Decides about the records of `parts`, which `ranges` are of.

    Of each record no more is held than this: its offset, its value, what is kept of its key, and 128 bits of its key.
    No producer knows the secrets of these hashes, so no two keys have the same.
    """
    order, fence = state.record_order, state.topics[log.topic].fence
    known = (secrets.token_hex(8), secrets.token_hex(8))
    hashes: list[list[NDArray[np.uint64]]] = [[], []]
    offsets, values, kept, bare = [], [], [], []
    ends: dict[int, str] = {}
    for brought in with_kept(storage, log, parts, columns_of(order)):
        keys = as_compared(brought.records)["key"]
        for secret, held in zip(known, hashes, strict=True):
            held.append(hashes_of(keys, pa.array(np.zeros(len(keys), np.int32)), secret=secret))
        offsets.append(brought.records["offset"].to_numpy())
        own, held_values = values_of(brought.records, order), values_of(brought.kept, order).take(brought.places())
        if fence is not UNSET:  # a truncate is a record of every key, and what it supersedes has no value
            goes = are_before(fence, log.partition, brought.records["offset"], own)
            own = pc.if_else(goes, pa.scalar(None, own.type), own)
            held_values = pc.max_element_wise(held_values, pa.scalar(fence.value, own.type))
        values.append(own)
        kept.append(held_values)
        bare.append(are_bare(brought.records, order))
        if order.startswith(FIELD):
            ends |= _ends(brought, [read.hi for read in ranges])
    if not offsets:
        return Decided(_NONE, _NONE, pa.nulls(0, pa.binary()), _NONE, ends)
    at, is_bare = np.concatenate(offsets), np.concatenate(bare)
    first = int(at.argmin())
    told = ordered(
        [np.concatenate(held) for held in hashes],
        at,
        pa.concat_arrays(values),
        pa.concat_arrays(kept),
        is_bare,
        follows_late=bool(is_bare[first]) and ends.get(int(at[first])) == log.late_last,
    )
    by_offset = np.argsort(at)
    takes = by_offset[is_bare[by_offset] & told.taken.is_valid().to_numpy(zero_copy_only=False)[by_offset]]
    return Decided(np.sort(at[told.late]), at[takes], told.taken.take(pa.array(takes)), at[by_offset], ends)


_NONE: Final = np.empty(0, np.int64)


def _ends(brought: Brought, ends: Sequence[int]) -> dict[int, str]:
    """Returns a digest of the key of some records, by offset: the first of all, and the last below each of `ends`."""
    offsets, keys = brought.records["offset"].to_numpy(), as_compared(brought.records)["key"]
    rows = {0, *(int(np.searchsorted(offsets, end)) - 1 for end in ends)}
    named = ((row, keys[row].as_py()) for row in rows if row >= 0)
    return {int(offsets[row]): blake2b(key, digest_size=_DIGEST).hexdigest() for row, key in named}


def _admitted(decided: Mapping[TopicPartition, Decided], tp: TopicPartition, records: pa.RecordBatch) -> pa.RecordBatch:
    """Returns those of `records` that are not late, bare tombstones with the value that they take."""
    own = decided[tp]
    left = records.filter(pa.array(~np.isin(records["offset"].to_numpy(), own.late)))
    places = pc.index_in(left["offset"], pa.array(own.taking))
    if places.null_count == len(places):
        return left
    values = pc.coalesce(own.taken.take(places), left[ORDER_VALUE])
    return left.set_column(left.schema.get_field_index(ORDER_VALUE), RUN.field(ORDER_VALUE), values)


def _counted(ranges: Iterable[RangeRead], decided: Mapping[TopicPartition, Decided]) -> Iterator[RangeRead]:
    """Yields `ranges` with how many of the records of each are late, and whether its last one is."""
    for read in ranges:
        own = decided.get(read.tp)
        if own is None:
            yield read
        else:
            yield replace(read, late=count_within(own.late, read.lo, read.hi), late_last=own.late_last(read))
