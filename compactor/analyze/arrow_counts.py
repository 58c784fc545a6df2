"""Counts what little logs hold in this process, with Arrow: all of their records are in memory at once, shortened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
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
from compactor.model.order import ranks_of, values_of
from compactor.runs.reader import read
from compactor.runs.scan import whole
from compactor.storage.base import Storage

# What counting reads of a record; the other columns of a run decide nothing here.
READ: Final = (
    *("offset", "timestamp", "key", "value", "headers", "delete_horizon", "rejected"),
    *(record.KEY_IDENTITY, record.ORDER_VALUE),
)
SIZE: Final = "size"
PLAIN: Final = ("offset", "timestamp", "key", "value", "delete_horizon", "rejected", SIZE)
"""What decides about a record by its key; `headers` and `order_value` are there for orders."""
ORDERED: Final = (*PLAIN, "headers", record.ORDER_VALUE)
_SHORT: Final = {"value": pa.bool_(), "rejected": pa.bool_(), SIZE: pa.int64()}


def shortened(batch: pa.RecordBatch, columns: Sequence[str] = ORDERED) -> pa.RecordBatch:
    """Returns `columns` of what was read: the key as it is compared, and of value and error whether there is one.

    `size` has the bytes of the record, as `record.measure` counts them.
    """
    made = {
        "key": record.as_compared(batch)["key"],
        "value": _presence(batch["value"]),
        "rejected": _presence(batch["rejected"]),
        SIZE: pa.array(record.sizes(batch)),
    }
    arrays = [made[name] if name in made else batch[name] for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=short_schema(columns))


def _presence(column: pa.Array) -> pa.BooleanArray:
    """Returns true for each value of `column`, and null for null."""
    is_valid = pc.is_valid(column)
    return pc.if_else(is_valid, is_valid, pa.scalar(None, pa.bool_()))


def short_schema(columns: Sequence[str] = ORDERED) -> pa.Schema:
    """Returns the schema of these columns of `shortened`."""
    return pa.schema([(name, _SHORT.get(name) or record.RUN.field(name).type) for name in columns])


class TableCounts:
    """Counts what `tables` have of `logs`: shortened records, by offset."""

    def __init__(self, logs: Sequence[PartitionLog], tables: Sequence[pa.Table]) -> None:
        self._logs = logs
        self._tables = tables

    def survivors(self, folds: Sequence[Fold], now_ms: int) -> dict[Fold, list[Survivors]]:
        """See `Counting.survivors`."""
        return {fold: [_survivors(last, now_ms) for last in self.last(fold)] for fold in folds}

    def winners(self, folds: Sequence[Fold], now_ms: int, order: str) -> dict[Fold, list[Survivors]]:
        """See `Counting.winners`."""
        return {fold: [_survivors(own, now_ms) for own in self.best(fold, order)] for fold in folds}

    def best(self, fold: Fold, order: str) -> list[pa.Table]:
        """Returns of each log the records that win over all logs of its topic, within their ranges of `fold`."""
        best: dict[int, pa.Table] = {}
        topics: dict[str, list[int]] = {}
        for at, log in enumerate(self._logs):
            topics.setdefault(log.topic, []).append(at)
        for own in topics.values():
            numbered = [_numbered(between(self._tables[at], *fold[at]), at, self._logs[at].partition) for at in own]
            rows = _ranked(pa.concat_tables(numbered), order).sort_by([(name, "ascending") for name in _PLACE])
            winners = rows.take(pa.array(last_of_each(rows, ())))
            best |= {at: winners.filter(pc.equal(winners[_LOG], at)).drop_columns([*_MARKS]) for at in own}
        return [best[at] for at in range(len(self._logs))]

    def split_keys(self, ranges: Fold) -> dict[str, SplitKeys]:
        """See `Counting.split_keys`."""
        placed: dict[str, list[tuple[int, pa.Table]]] = {}
        for log, last in zip(self._logs, self.last(ranges), strict=True):
            placed.setdefault(log.topic, []).append((log.partition, last))
        splits = {topic: _split(own) for topic, own in sorted(placed.items())}
        return {topic: split for topic, split in splits.items() if split.outdated.records}

    def last(self, fold: Fold) -> Iterator[pa.Table]:
        """Yields the last records of all keys of each log within its range of `fold`."""
        for table, (start, end) in zip(self._tables, fold, strict=True):
            rows = between(table, start, end)
            named = rows.filter(is_foldable(rows))
            yield named.take(pa.array(last_of_each(named, ())))


class ArrowCounts(TableCounts):
    """`analyze.Counting` of `logs`: their records are read once, and held without their values."""

    def __init__(self, storage: Storage, logs: Sequence[PartitionLog]) -> None:
        tables = [
            pa.Table.from_batches(map(shortened, read(storage, whole(log), READ)), schema=short_schema())
            for log in logs
        ]
        super().__init__(logs, tables)

    def range_counts(self, bounds: Sequence[tuple[int, ...]]) -> list[RangeCounts]:
        """See `Counting.range_counts`."""
        return [
            RangeCounts(own, tuple(count_of(between(table, start, end)) for start, end in pairwise(own)))
            for own, table in zip(bounds, self._tables, strict=True)
        ]


_LOG = "log"
_MARKS = ("log", "log_partition", "is_source", "rank")
"""The columns that comparing adds."""
_PLACE = ("is_source", "rank", "log_partition", "offset")
"""By what the records of a key are compared over the partitions of a topic: a reset's tombstone loses to all others."""


def _numbered(rows: pa.Table, log: int, partition: int) -> pa.Table:
    """Returns those of `rows` that may win, with the number of their log and what they are compared by."""
    named = rows.filter(is_foldable(rows))
    numbers = (np.full(named.num_rows, log), np.full(named.num_rows, partition))
    source = pc.greater_equal(named["offset"], 0).cast(pa.int8())
    for name, column in ((_LOG, pa.array(numbers[0])), ("log_partition", pa.array(numbers[1])), ("is_source", source)):
        named = named.append_column(name, column)
    return named


def _ranked(rows: pa.Table, order: str) -> pa.Table:
    """Returns `rows` with their rank by `order`."""
    ranks = np.empty(0, np.int64)
    for batch in rows.combine_chunks().to_batches():  # one, or none
        values = values_of(batch, order)
        ranks, *_ = ranks_of(values, values[:0])
    return rows.append_column("rank", pa.array(ranks))


def between(table: pa.Table, start: int, end: int) -> pa.Table:
    """Returns the rows with offsets [start, end)."""
    return table.filter(pc.and_(pc.greater_equal(table["offset"], start), pc.less(table["offset"], end)))


def _amount(table: pa.Table) -> Amount:
    return Amount(table.num_rows, pc.sum(table[SIZE]).as_py() or 0)


def count_of(table: pa.Table) -> Count:
    """Returns the count of shortened records."""
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


def _split(last: Sequence[tuple[int, pa.Table]]) -> SplitKeys:
    """Returns the split keys of a topic; `last` are its partitions with the last record of each of their keys."""
    live = [(partition, rows.filter(pc.is_valid(rows["value"])).select(["key"])) for partition, rows in last]
    counted = pa.concat_tables([keys for _, keys in live]).group_by("key").aggregate([([], "count_all")])
    split = counted.filter(pc.greater(counted["count_all"], 1)).sort_by("key")["key"]
    named = split.slice(0, EXAMPLES).to_pylist()
    places = [
        (partition, set(keys.filter(pc.is_in(keys["key"], pa.array(named, pa.binary())))["key"].to_pylist()))
        for partition, keys in live
    ]
    examples = (Example(key, tuple(sorted(partition for partition, keys in places if key in keys))) for key in named)
    outdated, deleted = _outdated(last)
    return SplitKeys(keys=len(split), examples=tuple(examples), outdated=outdated, deleted=deleted)


def _outdated(last: Sequence[tuple[int, pa.Table]]) -> tuple[Amount, int]:
    """Returns the live records of `last` that are not the latest of their key, and how many of these are deleted."""
    records = pa.concat_tables([rows for _, rows in last]).combine_chunks()
    partitions = np.repeat([partition for partition, _ in last], [rows.num_rows for _, rows in last])
    compared = pa.table(
        {
            "key": records["key"],
            "timestamp": records["timestamp"],
            "partition": partitions,
            "is_live": pc.is_valid(records["value"]),
            "row": np.arange(len(partitions)),
        }
    ).sort_by([("key", "ascending"), ("timestamp", "ascending"), ("partition", "ascending")])
    keys = compared["key"].combine_chunks()
    is_earlier = pa.concat_arrays([pc.equal(keys[:-1], keys[1:]), pa.array([False] * min(1, len(keys)), pa.bool_())])
    outdated = compared.filter(pc.and_(compared["is_live"], is_earlier))
    tombstones = compared.filter(pc.invert(pc.or_(compared["is_live"], is_earlier)))
    deleted = pc.is_in(pc.unique(outdated["key"]), tombstones["key"].combine_chunks())
    return _amount(records.take(outdated["row"])), pc.sum(deleted).as_py() or 0
