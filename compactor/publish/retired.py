"""Finds the keys that go with a survivor: other encodings of its key's identity, which the output may hold.

A reader of the output compares keys byte by byte. If keyfold compares them by an identity (`record.as_compared`), the
record that wins may have another key than the record that it supersedes. The superseded key gets a tombstone directly
before the winner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, structs
from numpy.typing import NDArray

from compactor.fold.memory_budget import TOGETHER, MemoryBudget, gathered
from compactor.index.reader import AskedKeys
from compactor.lookup.latest import VERIFIED, offsets_by_index, within
from compactor.lookup.ready_runs import runs_that_may_have
from compactor.lookup.records_at import read_offsets
from compactor.model.log import PartitionLog
from compactor.model.publish_plan import PublishTarget
from compactor.model.record import KEY_IDENTITY, TopicPartition, as_compared, by_topic, split_by_partition
from compactor.model.state import BYTES, CatalogState
from compactor.runs import checksums
from compactor.runs.file_stats import encodings_of
from compactor.runs.reader import completed, read_file_range
from compactor.runs.scan import FileRange, OffsetRange, between
from compactor.storage.base import Storage

RETIRED: Final = "retired"
"""The column (list of binary) of the keys that are retired by a record."""

_FIELD: Final = pa.field(RETIRED, pa.list_(pa.binary()))
_COLUMNS: Final = ("offset", "key", "rejected", KEY_IDENTITY)
_OF_INDEXED: Final = ("offset", "key", KEY_IDENTITY)
"""Those of records that an index names: it names none that was rejected."""


READ_ALL: Final = 3
"""All of a file is read if more than one of so many of its row groups has an offset that is asked for: to read a row
group by its own takes three times as long. Offsets may lie side by side, so that their number does not tell: when a
worker was late by some thousand records, each publish read all keys, and it stayed late."""


OffsetRanges = tuple[OffsetRange, ...]


def earlier_ranges(state: CatalogState, targets: Iterable[PublishTarget]) -> dict[TopicPartition, OffsetRanges]:
    """Returns for each target what may hold other encodings of its keys: all that the log has below its start.

    Tombstones that a generation begins with stand for keys of the output, so they are below the start of every target.
    A target is left out if nothing is below it, and if all keys, above and below, are encoded in one way. What is kept
    is enough: a record leaves the log only by retention, or if a later one of its identity is published or let go,
    which retires it.

    If a key has one winner over the logs of a topic, so do all that the other logs have below the ends that `targets`
    give them: a record that is passed over now may have been sent by an earlier plan.
    """
    if state.identity == BYTES:
        return {}
    logs = state.by_partition()
    if state.is_of_topics:
        topics = by_topic(targets)
        return {tp: ranges for own in topics.values() for tp, ranges in _of_topic(logs, own).items()}
    due = [target for target in targets if target.start < target.end and target.output is not None]
    ranges = {target.tp: _earlier(logs[target.tp], target) for target in due}
    return {tp: (offset_range,) for tp, offset_range in ranges.items() if offset_range is not None}


def _earlier(log: PartitionLog, target: PublishTarget) -> OffsetRange | None:
    below = _below(log, target)
    if not below.file_ranges:
        return None
    files = [piece.file for piece in (*below.file_ranges, *between(log, target.start, target.end).file_ranges)]
    encodings = encodings_of(files)
    return below if encodings is None or len(encodings) > 1 else None


def _below(log: PartitionLog, target: PublishTarget) -> OffsetRange:
    return between(log, log.start, max(target.start, min(0, target.end)))


def _of_topic(
    logs: Mapping[TopicPartition, PartitionLog], targets: Sequence[PublishTarget]
) -> dict[TopicPartition, OffsetRanges]:
    """Returns the same for `targets`, which are all of one topic."""
    sent = {target.tp: between(logs[target.tp], logs[target.tp].start, target.end) for target in targets}
    encodings = encodings_of([piece.file for ranges in sent.values() for piece in ranges.file_ranges])
    if encodings is not None and len(encodings) <= 1:
        return {}
    due = [target for target in targets if target.start < target.end and target.output is not None]
    return {
        target.tp: (_below(logs[target.tp], target), *(ranges for tp, ranges in sent.items() if tp != target.tp))
        for target in due
    }


class EarlierKeys(Struct, frozen=True):
    """Looks for other encodings of keys in `ranges` of `storage`, by partition; pickled into tasks.

    The ranges are read once for as many records as fit `together`, in Arrow bytes.
    """

    storage: Storage
    ranges: Mapping[TopicPartition, OffsetRanges]
    together: MemoryBudget = TOGETHER

    def with_retired(self, records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields `records` (record.RUN), in their order, with the column RETIRED if there are any `ranges`.

        It is null if a record retires no key. Raises StorageError.
        """
        if not self.ranges:
            yield from records
            return
        for batches in gathered(records, self.together):
            yield from _retiring(self.storage, self.ranges, batches)


def _retiring(
    storage: Storage, earlier: Mapping[TopicPartition, OffsetRanges], held: Sequence[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    named: dict[TopicPartition, list[pa.RecordBatch]] = {}
    for batch in held:
        for tp, rows in split_by_partition(
            batch.select(["topic", "partition", "offset", "key", "rejected", KEY_IDENTITY])
        ):
            if tp in earlier:
                named.setdefault(tp, []).append(rows.filter(pc.is_null(rows["rejected"])))
    known = {tp: _keys_of_all(storage, tp, earlier[tp], pa.Table.from_batches(rows)) for tp, rows in named.items()}
    for batch in held:
        yield batch.append_column(_FIELD, _column(batch, known))


def _keys_of_all(
    storage: Storage, tp: TopicPartition, earlier: OffsetRanges, records: pa.Table
) -> dict[bytes, list[bytes]]:
    """Returns what `_keys_of` does, of all ranges that are asked for `tp`."""
    first, *others = (_keys_of(storage, tp, offset_range, records) for offset_range in earlier)
    for keys_of_range in others:
        for identity, keys in keys_of_range.items():
            first[identity] = list(dict.fromkeys((*first.get(identity, ()), *keys)))
    return first


def _keys_of(storage: Storage, tp: TopicPartition, earlier: OffsetRange, records: pa.Table) -> dict[bytes, list[bytes]]:
    """Returns the keys that `earlier` has of the identity of each of `records`, in the order in which they came.

    The keys that `records` have themselves may be left out.
    """
    by_identity: dict[bytes, dict[bytes, None]] = {}
    keyed = records.filter(pc.is_valid(records["key"]))
    identities = as_compared(keyed)["key"].combine_chunks()
    values = pc.unique(identities)
    may_have = runs_that_may_have(storage, (EarlierKeys, tp, earlier.tp), earlier.runs, AskedKeys(values))
    asked = structs.replace(earlier, runs=tuple(sorted(may_have, key=lambda run: run.start)))
    for batch in _candidates(storage, asked, identities, keyed["key"].combine_chunks()):
        compared = as_compared(batch)
        mine = pc.and_(pc.is_in(compared["key"], values), pc.is_null(batch["rejected"]))
        pairs = zip(compared["key"].filter(mine).to_pylist(), batch["key"].filter(mine).to_pylist(), strict=True)
        for identity, key in pairs:
            by_identity.setdefault(identity, {})[key] = None
    return {identity: list(keys) for identity, keys in by_identity.items()}


def _candidates(
    storage: Storage, earlier: OffsetRange, identities: pa.Array, keys: pa.Array
) -> Iterator[pa.RecordBatch]:
    """Yields _COLUMNS of the records of `earlier` that may have one of `identities` but not its key, by offset.

    These are the records with their hashes, by index; all of a file that has no index which can be read, or of which
    most row groups would be decoded for them.
    """
    indexes = {file_range.file.index for file_range in earlier.file_ranges}
    asked = identities, earlier.start, earlier.end, keys
    offsets = {index: offsets_by_index(storage, index, *asked) for index in indexes}
    for file_range in earlier.file_ranges:
        held = offsets[file_range.file.index]
        own = None if held is None else within(file_range, held)
        if own is not None and not len(own):
            continue
        if own is None or _hits_many(storage, file_range, own):
            checksums.check_intact(storage, file_range.file)
            yield from read_file_range(storage, file_range, _COLUMNS)
        else:
            for batch in read_offsets(storage, file_range, own, VERIFIED, _OF_INDEXED):
                yield completed(batch, _COLUMNS)


def _hits_many(storage: Storage, file_range: FileRange, offsets: NDArray[np.int64]) -> bool:
    """Returns whether `offsets` lie in so many row groups that all of the file is read sooner."""
    outline = VERIFIED.of(storage, file_range.file)
    hit = sum(1 for _ in outline.groups_at(file_range.tp, offsets))
    return hit * READ_ALL > len(outline.groups)


def _column(batch: pa.RecordBatch, known: Mapping[TopicPartition, Mapping[bytes, Sequence[bytes]]]) -> pa.Array:
    """Returns the column RETIRED of `batch`; only rows with a `known` identity are looked at one by one."""
    retired: list[list[bytes] | None] = [None] * batch.num_rows
    identities = {identity for keys in known.values() for identity in keys}
    compared = as_compared(batch)
    mine = pc.is_in(compared["key"], pa.array(identities, pa.binary()))
    places = pc.indices_nonzero(pc.and_(mine, pc.is_null(batch["rejected"])))
    some = batch.select(["topic", "partition", "key"]).take(places)
    columns = (places, some["topic"], some["partition"], compared["key"].take(places), some["key"])
    for place, topic, partition, identity, own in zip(*(column.to_pylist() for column in columns), strict=True):
        keys = known.get(TopicPartition(topic, partition), {}).get(identity, ())
        retired[place] = [key for key in keys if key != own] or None
    return pa.array(retired, _FIELD.type)
