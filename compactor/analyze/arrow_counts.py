"""Counts what little logs hold in this process, with Arrow: everything they hold is in memory at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from compactor.analyze.analyze import EXAMPLES, Fold
from compactor.analyze.effect import Amount, Example, SplitKeys, Survivors
from compactor.analyze.preview import Count, RangeCounts
from compactor.clean import tombstones
from compactor.fold.arrow_kernel import last_of_each
from compactor.fold.latest_per_key import is_foldable
from compactor.model import record
from compactor.model.log import PartitionLog
from compactor.runs.reader import read
from compactor.runs.scan import whole
from compactor.storage.base import Storage

# What counting reads of a record; the other columns of a run decide nothing here.
_COLUMNS = ("offset", "timestamp", "key", "value", "headers", "delete_horizon", "rejected", record.KEY_IDENTITY)
_SCHEMA = pa.schema([record.RUN.field(name) for name in _COLUMNS])


class ArrowCounts:
    """`analyze.Counting` of `logs`: their records are read once."""

    def __init__(self, storage: Storage, logs: Sequence[PartitionLog]) -> None:
        self._storage = storage
        self._logs = logs

    @cached_property
    def _tables(self) -> tuple[pa.Table, ...]:
        """The records of each log by offset."""
        return tuple(
            pa.Table.from_batches(read(self._storage, whole(log), _COLUMNS), schema=_SCHEMA) for log in self._logs
        )

    def range_counts(self, bounds: Sequence[tuple[int, ...]]) -> list[RangeCounts]:
        """See `Counting.range_counts`."""
        return [
            RangeCounts(own, tuple(_count(_between(table, start, end)) for start, end in pairwise(own)))
            for own, table in zip(bounds, self._tables, strict=True)
        ]

    def survivors(self, folds: Sequence[Fold], now_ms: int) -> dict[Fold, list[Survivors]]:
        """See `Counting.survivors`."""
        return {fold: [_survivors(last, now_ms) for last in self._last(fold)] for fold in folds}

    def split_keys(self, ranges: Fold) -> dict[str, SplitKeys]:
        """See `Counting.split_keys`."""
        live = [
            record.as_compared(last.filter(pc.is_valid(last["value"]))).select(["key"]) for last in self._last(ranges)
        ]
        placed: dict[str, list[tuple[int, pa.Table]]] = {}
        for log, keys in zip(self._logs, live, strict=True):
            if keys.num_rows:
                placed.setdefault(log.topic, []).append((log.partition, keys))
        splits = {topic: _split(placed[topic]) for topic in sorted(placed)}
        return {topic: split for topic, split in splits.items() if split.keys}

    def _last(self, fold: Fold) -> Iterator[pa.Table]:
        """Yields the last records of all keys of each log within its range of `fold`."""
        for table, (start, end) in zip(self._tables, fold, strict=True):
            rows = _between(table, start, end)
            named = rows.filter(is_foldable(rows))
            yield named.take(pa.array(last_of_each(record.as_compared(named), ())))


def _between(table: pa.Table, start: int, end: int) -> pa.Table:
    return table.filter(pc.and_(pc.greater_equal(table["offset"], start), pc.less(table["offset"], end)))


def _amount(table: pa.Table) -> Amount:
    return Amount(table.num_rows, record.measure(table))


def _count(table: pa.Table) -> Count:
    every, refused = _amount(table), _amount(table.filter(pc.invert(is_foldable(table))))
    aged = table["timestamp"].filter(pc.greater(table["timestamp"], 0))
    return Count(
        records=every.records,
        bytes=every.bytes,
        rejected=refused.records,
        rejected_bytes=refused.bytes,
        oldest_ms=pc.min(aged).as_py(),
    )


def _survivors(last: pa.Table, now_ms: int) -> Survivors:
    fates = tombstones.fates(last, now_ms)
    keep = last.filter(fates.keep)
    return Survivors(
        live=_amount(last.filter(pc.is_valid(last["value"]))),
        stamp=_amount(last.filter(fates.stamp)),
        keep=_amount(keep),
        drop=_amount(last.filter(fates.drop)),
        earliest_horizon_ms=pc.min(keep["delete_horizon"]).as_py(),
        latest_horizon_ms=pc.max(keep["delete_horizon"]).as_py(),
    )


def _split(live: Sequence[tuple[int, pa.Table]]) -> SplitKeys:
    """Returns the keys that several partitions have; `live` are partitions with their keys, each of them once."""
    counted = pa.concat_tables([keys for _, keys in live]).group_by("key").aggregate([([], "count_all")])
    split = counted.filter(pc.greater(counted["count_all"], 1)).sort_by("key")["key"]
    named = split.slice(0, EXAMPLES).to_pylist()
    places = [
        (partition, set(keys.filter(pc.is_in(keys["key"], pa.array(named, pa.binary())))["key"].to_pylist()))
        for partition, keys in live
    ]
    examples = (Example(key, tuple(sorted(partition for partition, keys in places if key in keys))) for key in named)
    return SplitKeys(keys=len(split), examples=tuple(examples))
