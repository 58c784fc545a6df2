"""The source of a history: its records in plain dicts, and the rows that reading tasks yield."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compactor.generation.tombstones import Compare
from compactor.model.fence import Fence
from compactor.model.order import BARE, FIELD, TIMESTAMP
from compactor.model.record import KEY_ENCODING, KEY_IDENTITY, ORDER_VALUE, TopicPartition
from compactor.model.state import BY_OFFSET
from tests.support.engine import Row, range_report, row
from tests.support.oracle import identity
from tests.support.oracle.steps import PARTITIONS, TRUNCATE, SourceRecord


class Source:
    """The records of all partitions, by offset, and their end offsets; `seen` are the ends that a change has read.

    `compare` finds by what keys are compared; None: by their bytes. The model changes it, and the rules that follow,
    once a commit does. `with_identity` is what `compare` is while keys have an identity. `order` says which record of a
    key wins. `fills`: values are filled (`filling`). `of_topics`: a key has one winner over all partitions of a topic.
    A field that they are ordered by has what the last header of its name has. `keeps_all`: no record takes the place of
    another.
    """

    def __init__(
        self,
        compare: Compare | None = None,
        order: str = BY_OFFSET,
        *,
        fills: bool = False,
        of_topics: bool = False,
        keeps_all: bool = False,
    ) -> None:
        self.compare = compare
        self.with_identity = compare or identity.compared
        self.named_order = order
        self.of_topics = of_topics
        self.fills = fills
        self.keeps_all = keeps_all
        self.rows: dict[TopicPartition, list[Row]] = {tp: [] for tp in PARTITIONS}
        self.ends: dict[TopicPartition, int] = dict.fromkeys(PARTITIONS, 0)
        self.seen: dict[TopicPartition, set[int]] = {tp: set() for tp in PARTITIONS}
        # By partition the offsets and orders of its truncates, which no reading task yields.
        self.truncates: dict[TopicPartition, list[tuple[int, bytes]]] = {tp: [] for tp in PARTITIONS}
        # What the catalog says that truncates have left of topics.
        self.fences: dict[str, Fence] = {}

    @property
    def order(self) -> str:
        """By what records are ordered: over the partitions of a topic by time, if nothing else is named."""
        return TIMESTAMP if self.of_topics and self.named_order == BY_OFFSET else self.named_order

    def add(self, rec: SourceRecord, now_ms: int) -> None:
        """Appends `rec`."""
        tp = PARTITIONS[rec.place]
        offset = self.ends[tp] + rec.hole
        headers = [{"key": key, "value": value} for key, value in rec.headers] or None
        timestamp = rec.time if rec.fixed else now_ms + rec.time
        made = row(tp.partition, offset, rec.key, rec.value, topic=tp.topic, timestamp=timestamp, headers=headers)
        if (rec.key, rec.value) == (None, TRUNCATE):
            self.truncates[tp] += [(offset, order) for order in _last(made, "rank")]
        else:
            self.rows[tp].append(made)
        self.ends[tp] = offset + 1

    def identity(self, key: bytes | None) -> bytes | None:
        """Returns what `key` is compared by."""
        own = None if self.compare is None or key is None else self.compare(key)[0]
        return key if own is None else own

    def rank(self, record: Row) -> tuple[int, ...]:
        """Returns what the order compares of a record: the greater wins, of equal ones the higher offset."""
        if self.order == BY_OFFSET or record["offset"] < 0:
            return ()
        if self.order == "timestamp":
            return (record["timestamp"],)
        if self.order.startswith(FIELD):
            return tuple(rank_of(value) for value in _last(record, self.order.removeprefix(FIELD)))
        values = _last(record, self.order.removeprefix("header:"))
        return tuple(int.from_bytes(value, "big", signed=True) for value in values if len(value) == 8)

    def floor(self, tp: TopicPartition) -> tuple[int, ...]:
        """Returns the least rank that a record of a partition has which is not late by a truncate."""
        fence = self.fences.get(tp.topic)
        return () if fence is None else (rank_of(fence.value),)

    def is_before(self, tp: TopicPartition, rank: tuple[int, ...], offset: int) -> bool:
        """Returns whether the truncates of its topic supersede a record."""
        fence, floor = self.fences.get(tp.topic), self.floor(tp)
        below = fence is not None and offset < fence.offsets.get(tp.partition, -1)
        return rank < floor or (rank == floor and below)

    def is_bare(self, record: Row) -> bool:
        """Returns whether a record is a tombstone that takes the rank of the one before it."""
        return self.order.startswith(FIELD) and record["value"] is None and not self.rank(record)

    def see_end(self, tp: TopicPartition) -> int:
        """Returns the end of a partition, and notes it."""
        self.seen[tp].add(self.ends[tp])
        return self.ends[tp]

    def end_in_holes(self, width: int) -> None:
        """Moves the end of every partition with records by `width` offsets without records."""
        for tp, rows in self.rows.items():
            self.ends[tp] += width if rows else 0

    def between(self, tp: TopicPartition, start: int, end: int) -> list[Row]:
        """Returns the records of the offsets [start, end)."""
        return [one for one in self.rows[tp] if start <= one["offset"] < end]

    def read(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], tasks: int, compare: Compare | None
    ) -> list[list[Row]]:
        """Returns what each of `tasks` reading tasks yields: its share of every range, then its range reports.

        `compare`: by what the connector compares keys now.
        """
        yields: list[list[Row]] = []
        for task in range(tasks):
            shares = {tp: _share(lo, hi, task, tasks) for tp, (lo, hi) in ranges.items()}
            found = {tp: self.between(tp, *share) for tp, share in shares.items() if share[0] < share[1]}
            ends = [
                range_report(
                    tp.partition,
                    *shares[tp],
                    records=len(records),
                    topic=tp.topic,
                    **self._truncates(tp, *shares[tp]),
                )
                for tp, records in found.items()
            ]
            rows = (as_read(one, compare) for records in found.values() for one in records)
            yields.append([*rows, *ends])
        return yields

    def _truncates(self, tp: TopicPartition, start: int, end: int) -> dict[str, Any]:
        """Returns what a range report says of the truncates of some offsets."""
        own = [(order, at) for at, order in self.truncates[tp] if start <= at < end]
        if not own or not self.order.startswith(FIELD):
            return {}
        order, at = max(own)
        return {
            "truncates": len(own),
            "last_truncate": max(at for _, at in own),
            "truncate_order": order,
            "truncate_at": at,
        }


def as_read(found: Row, compare: Compare | None) -> Row:
    """Returns a record with the identity of its key, where keys have any, and with the field to order it by."""
    found = {**found, ORDER_VALUE: next(iter(_last(found, "rank")), BARE if found["value"] is None else None)}
    if compare is None or found["key"] is None:
        return found
    return {**found, **dict(zip((KEY_IDENTITY, KEY_ENCODING), compare(found["key"]), strict=True))}


def _share(lo: int, hi: int, task: int, tasks: int) -> tuple[int, int]:
    return lo + (hi - lo) * task // tasks, lo + (hi - lo) * (task + 1) // tasks


def rank_of(value: bytes) -> int:
    """Returns a number that rises with the value of a field."""
    return int.from_bytes(value.ljust(8, b"\0"), "big")


def _last(record: Row, name: str) -> list[bytes]:
    """Returns the value of the last header `name`, if it has any bytes."""
    values = [header["value"] for header in record["headers"] or () if header["key"] == name]
    return [value for value in values[-1:] if value]
