"""Counts what logs of any size hold in this process, with Arrow, in bounded memory and without Spark.

Records are read file by file, and of each key no more than its latest record within each fold is held, shortened to
what decides about it. If the keys are too many, they are read again in parts by their hash: each part has both fewer
keys and all that is held of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from compactor.analyze import arrow_counts
from compactor.analyze.analyze import EXAMPLES, Fold
from compactor.analyze.arrow_counts import ORDERED, PLAIN, READ, TableCounts, short_schema, shortened
from compactor.analyze.effect import SplitKeys, Survivors
from compactor.analyze.preview import Count, RangeCounts
from compactor.fold.latest_per_key import is_foldable
from compactor.model.key_hash import plain_hashes
from compactor.model.log import PartitionLog
from compactor.model.times import earliest, latest
from compactor.runs.reader import read
from compactor.runs.scan import whole
from compactor.storage.base import Storage

MOST_BYTES: Final = 64 << 20
"""How many bytes of latest records are held: a million keys of 20 bytes. To fold them takes some times as much."""
WAITING: Final = 262_144
_WAITING_BYTES: Final = 32 << 20
"""How many records, or bytes of them, wait until they are folded into what is held: fewer take longer."""

_COMPARED: Final = ("offset", "key", "rejected")
"""What tells the latest record of a key by its offset."""

ReportPartition = Callable[[int, int], None]
"""Called with the number of the partition that is read, from 1, and how many there are."""


class KeyPart(Struct, frozen=True):
    """The keys with a hash that leaves `number` when it is divided by `of`."""

    number: int = 0
    of: int = 1

    def halves(self) -> tuple[KeyPart, KeyPart]:
        """Returns two parts with half of its keys each."""
        return KeyPart(self.number, 2 * self.of), KeyPart(self.number + self.of, 2 * self.of)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows of `batch` with keys of this part."""
        if self.of == 1 or not batch.num_rows:
            return batch
        return batch.filter(pa.array(plain_hashes(batch["key"]) % self.of == self.number))


class KeyedCounts:
    """`analyze.Counting` of `logs`, which are read once for each call, and once more for each part of their keys."""

    def __init__(
        self,
        storage: Storage,
        logs: Sequence[PartitionLog],
        report: ReportPartition = lambda _at, _of: None,
        most_bytes: int = MOST_BYTES,
        waiting: int = WAITING,
    ) -> None:
        self._storage = storage
        self._logs = logs
        self._report = report
        self._most_bytes = most_bytes
        self._waiting = waiting

    def range_counts(self, bounds: Sequence[tuple[int, ...]]) -> list[RangeCounts]:
        """See `Counting.range_counts`; holds no record."""
        return [self._counts(log, own) for log, own in zip(self._reported(), bounds, strict=True)]

    def survivors(self, folds: Sequence[Fold], now_ms: int) -> dict[Fold, list[Survivors]]:
        """See `Counting.survivors`."""
        return _summed(each.survivors(folds, now_ms) for each in self._parts(folds, None))

    def winners(self, folds: Sequence[Fold], now_ms: int, order: str) -> dict[Fold, list[Survivors]]:
        """See `Counting.winners`."""
        return _summed(each.winners(folds, now_ms, order) for each in self._parts(folds, order))

    def split_keys(self, ranges: Fold) -> dict[str, SplitKeys]:
        """See `Counting.split_keys`."""
        total: dict[str, SplitKeys] = {}
        for each in self._parts([ranges], None):
            for topic, split in each.split_keys(ranges).items():
                total[topic] = _joined(total.get(topic, SplitKeys()), split)
        return dict(sorted(total.items()))

    def _reported(self) -> Iterator[PartitionLog]:
        for number, log in enumerate(self._logs, 1):
            self._report(number, len(self._logs))
            yield log

    def _counts(self, log: PartitionLog, bounds: tuple[int, ...]) -> RangeCounts:
        counts = [Count() for _ in bounds[1:]]
        for batch in read(self._storage, whole(log), READ):
            rows = pa.Table.from_batches([shortened(batch, PLAIN)])
            for at, (start, end) in enumerate(pairwise(bounds)):
                inside = arrow_counts.between(rows, start, end)
                if inside.num_rows:
                    counts[at] += arrow_counts.count_of(inside)
        return RangeCounts(bounds, tuple(counts))

    def _parts(self, folds: Sequence[Fold], order: str | None) -> Iterator[TableCounts]:
        """Yields what is held of the logs, by parts of their keys; more parts if one does not fit."""
        waiting = [KeyPart()]
        while waiting:
            part = waiting.pop()
            tables = self._tables(folds, order, part)
            if tables is None:
                waiting += reversed(part.halves())
            else:
                yield TableCounts(self._logs, tables)

    def _tables(self, folds: Sequence[Fold], order: str | None, part: KeyPart) -> list[pa.Table] | None:
        """Returns the latest records of each log within each of `folds`; None if they do not fit."""
        tables: list[pa.Table] = []
        room = self._most_bytes
        for at, log in enumerate(self._reported()):
            ranges = dict.fromkeys(fold[at] for fold in folds)
            table = self._latest(log, [*ranges], order, part, room)
            if table is None:
                return None
            tables.append(table)
            room -= table.nbytes
        return tables

    def _latest(
        self, log: PartitionLog, ranges: Sequence[tuple[int, int]], order: str | None, part: KeyPart, room: int
    ) -> pa.Table | None:
        """Returns the latest records of `log` within each of `ranges`; None if they take more than `room` bytes."""
        schema = short_schema(PLAIN if order is None else ORDERED)
        held = schema.empty_table()
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in read(self._storage, whole(log), READ):
            own = shortened(batch, schema.names)
            own = part.rows(own.filter(is_foldable(own)))
            waiting.append(own)
            rows, size = rows + own.num_rows, size + own.nbytes
            if rows >= max(self._waiting, held.num_rows) or size >= max(_WAITING_BYTES, held.nbytes):
                held = _folded(log, held, waiting, ranges, order)
                waiting, rows, size = [], 0, 0
                if held.nbytes > room and held.num_rows > len(ranges):
                    return None
        held = _folded(log, held, waiting, ranges, order)
        return None if held.nbytes > room and held.num_rows > len(ranges) else held


def _folded(
    log: PartitionLog,
    held: pa.Table,
    waiting: Sequence[pa.RecordBatch],
    ranges: Sequence[tuple[int, int]],
    order: str | None,
) -> pa.Table:
    """Returns of `held`, and of `waiting` after it, the rows that are the latest within any of `ranges`."""
    rows = pa.concat_tables([held, pa.Table.from_batches(waiting, schema=held.schema)]).combine_chunks()
    counts = TableCounts((log,), (rows.select(_COMPARED) if order is None else rows,))
    latest_rows = [counts.best((each,), order)[0] if order else next(counts.last((each,))) for each in ranges]
    offsets = pa.chunked_array([chunk for own in latest_rows for chunk in own["offset"].chunks], pa.int64())
    return rows.filter(pc.is_in(rows["offset"], offsets)).combine_chunks()


def _summed(parts: Iterator[dict[Fold, list[Survivors]]]) -> dict[Fold, list[Survivors]]:
    total = next(parts)
    for part in parts:
        total = {fold: [_added(*both) for both in zip(own, part[fold], strict=True)] for fold, own in total.items()}
    return total


def _added(some: Survivors, other: Survivors) -> Survivors:
    return Survivors(
        live=some.live + other.live,
        stamp=some.stamp + other.stamp,
        keep=some.keep + other.keep,
        drop=some.drop + other.drop,
        earliest_horizon_ms=earliest(some.earliest_horizon_ms, other.earliest_horizon_ms),
        latest_horizon_ms=latest(some.latest_horizon_ms, other.latest_horizon_ms),
    )


def _joined(some: SplitKeys, other: SplitKeys) -> SplitKeys:
    examples = sorted((*some.examples, *other.examples), key=lambda example: example.key)
    return SplitKeys(
        keys=some.keys + other.keys,
        examples=tuple(examples[:EXAMPLES]),
        outdated=some.outdated + other.outdated,
        deleted=some.deleted + other.deleted,
    )
