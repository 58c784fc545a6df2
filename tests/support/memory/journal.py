"""The output topic in memory: a journal of files in a storage, to which Spark's tasks append.

One file is one thing that happened, its number its place: a producer was opened, a transaction was committed or
aborted, a position was overwritten. `Storage.create` gives a number to one only: a transaction takes effect as a whole,
positions included, and a producer that a newer one of its bucket has shut out finds that one's file before its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import MissingFileError, PublishInterruptedError
from compactor.model.position import Position
from compactor.model.record import ORDER_VALUE, OfPartition, TopicPartition
from compactor.storage.base import Storage


class OutputRecord(OfPartition, Struct, frozen=True, kw_only=True):
    """A record in an output partition, or a dead letter, with its source position."""

    topic: str
    partition: int
    source_offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = -1
    generation: int = 1
    retires: bool = False
    """Whether it is a tombstone for another encoding of the key of the record behind it, whose source offset it has."""
    place: int | None = None
    """The number of its output partition, if that is not the number of its source partition (scope=topic)."""
    order: bytes | None = None
    """What its header says that it is ordered by."""

    @property
    def output_tp(self) -> TopicPartition:
        """Its output partition, with the name of the source topic."""
        return TopicPartition(self.topic, self.partition if self.place is None else self.place)

    @property
    def is_synthetic(self) -> bool:
        """Whether no source record is behind it."""
        return self.source_offset < 0 or self.retires


def output_record(row: Mapping[str, Any], generation: int = 1) -> OutputRecord:
    """Returns a row of record.RUN as it is sent in a generation of its log."""
    return OutputRecord(
        topic=row["topic"],
        partition=row["partition"],
        source_offset=row["offset"],
        timestamp=row["timestamp"],
        timestamp_type=row["timestamp_type"],
        key=row["key"],
        value=row["value"],
        headers=pairs(row["headers"]),
        generation=generation,
        order=row.get(ORDER_VALUE),
    )


def output_records(row: Mapping[str, Any], generation: int = 1) -> list[OutputRecord]:
    """Returns what is sent for a row of record.RUN: tombstones of the keys that it retires, and its record."""
    own = output_record(row, generation)
    keys = row.get("retired") or ()
    return [*(replace(own, key=key, value=None, headers=(), retires=True) for key in keys), own]


REFUSED: Final = b"refused by the broker"
"""The value of records that a broker refuses: they go the way of dead letters, and what they retire is still sent."""


def pairs(headers: Iterable[Mapping[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...]:
    """Returns headers of Arrow rows as pairs."""
    return tuple((header["key"], header["value"]) for header in headers or ())


class CommittedPosition(OfPartition, Struct, frozen=True):
    """The committed position of one source partition from this entry on; None: it is deleted."""

    topic: str
    partition: int
    position: Position | None


class Event(Enum):
    """The kind of an entry."""

    OPENED = "opened"
    COMMITTED = "committed"
    ABORTED = "aborted"
    OVERWRITTEN = "overwritten"


class JournalEntry(Struct, frozen=True, kw_only=True):
    """One file of the journal. An aborted transaction takes offsets in the output, as on a broker, and nothing else."""

    event: Event
    bucket: int = -1
    records: tuple[OutputRecord, ...] = ()
    letters: tuple[OutputRecord, ...] = ()
    positions: tuple[CommittedPosition, ...] = ()


class OutputTopic:
    """What a read_committed reader sees. A partition of the output is named by that of the source.

    `ends` are high watermarks: behind its records a transaction leaves a marker in each partition that it wrote to.
    """

    def __init__(self) -> None:
        self.records: dict[TopicPartition, list[OutputRecord]] = {}
        self.letters: list[OutputRecord] = []
        self.positions: dict[TopicPartition, Position | None] = {}
        self.ends: dict[TopicPartition, int] = {}

    def take(self, entry: JournalEntry) -> None:
        """Applies `entry`."""
        for record in entry.records:
            tp = record.output_tp
            end = self.ends.get(tp, 0)
            self.ends[tp] = end + 1
            if entry.event is Event.COMMITTED:
                self.records.setdefault(tp, []).append(replace(record, offset=end))
        for tp in {record.output_tp for record in entry.records}:
            self.ends[tp] += 1
        self.letters += entry.letters
        self.positions.update({one.tp: one.position for one in entry.positions})


class Journal:
    """The files of one output below `storage`, to which any number of processes append."""

    def __init__(self, storage: Storage) -> None:
        self.entries: list[JournalEntry] = []
        self.output = OutputTopic()
        self._storage = storage

    def read(self) -> OutputTopic:
        """Reads all entries; returns the output after them."""
        while True:
            try:
                data = self._storage.read(self._path())
            except MissingFileError:
                return self.output
            self.entries.append(msgspec.msgpack.decode(data, type=JournalEntry))
            self.output.take(self.entries[-1])

    def append(self, decide: Callable[[OutputTopic], JournalEntry]) -> int:
        """Adds what `decide` makes of the newest output, again where another came first; the entry's number.

        What `decide` raises comes out, and nothing was added.
        """
        while True:
            data = msgspec.msgpack.encode(decide(self.read()))
            number = len(self.entries)
            if self._storage.create(self._path(), data):
                self.read()
                return number

    def open(self, bucket: int) -> int:
        """A new producer with the transactional id of `bucket`; its number. Every older one is shut out."""
        return self.append(lambda _: JournalEntry(event=Event.OPENED, bucket=bucket))

    def check(self, bucket: int, opened: int) -> None:
        """Raises PublishInterruptedError where the producer `opened` is not the newest of its bucket."""
        if any(one.event is Event.OPENED and one.bucket == bucket for one in self.entries[opened + 1 :]):
            raise PublishInterruptedError(f"Bucket {bucket}: its producer was shut out.", "It is tried again.")

    def _path(self) -> str:
        return f"{len(self.entries):020d}"
