"""Reads what an output holds of one generation of each log back into rows of a run: the last record of each key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import structlog
from confluent_kafka import Message
from confluent_kafka import TopicPartition as Partition
from numpy.typing import NDArray

from compactor.digits import whole
from compactor.errors import RebuildError
from compactor.model import record
from compactor.model.record import OWN_HEADERS, TopicPartition
from connectors.kafka.client_settings import Setting
from connectors.kafka.errors import reading
from connectors.sinks.encode import ORDER, PARTITION, TIMESTAMP, TOPIC
from connectors.sinks.output_reader import (
    Headers,
    OutputPartitionReader,
    header_pairs,
    is_synthetic,
    keyfold_source,
    named_generation,
    retires,
)
from connectors.sinks.partitioner import partitions_of

_STEP: Final = 1_000_000
"""How many offsets are read before a line of the log says how far it is."""
# Rows of a batch that is handed on: Python's dicts of it are all that is in memory of the records.
_ROWS: Final = 10_000

_log = structlog.get_logger()


_COMPARED: Final = (record.KEY_IDENTITY, record.KEY_ENCODING)
Compare = Callable[[Headers, bytes], tuple[bytes | None, str | None]]
"""Finds the `key_identity` and the `key_encoding` (`record.RUN`) of a key with these headers."""


def by_bytes(headers: Headers, key: bytes) -> tuple[None, None]:  # noqa: ARG001
    """Compares keys by their bytes: a `Compare`."""
    return None, None


class Bound(NamedTuple):
    """What counts of the records of a source partition: those of `generation` with offsets lower than `below`."""

    generation: int
    below: int


class LastRecords(NamedTuple):
    """The offsets in an output partition, rising, of the last record of each key that counts.

    `earlier` are those of other keys, which have a value there by a record of an earlier generation.
    """

    offsets: NDArray[np.int64]
    earlier: NDArray[np.int64]


class OutputRecords:
    """Reads what the output of a topic holds, by output partition.

    `bounds` are those of the source partitions. `spread`: over how many output partitions keys go by themselves
    (compaction.scope=topic); None: a record stays in its partition. `compare` finds by what a key is compared. `opened`
    makes the reader of an output partition.
    """

    def __init__(
        self,
        config: Mapping[str, Setting],
        output: str,
        topic: str,
        bounds: Mapping[int, Bound],
        spread: int | None = None,
        compare: Compare = by_bytes,
        opened: Callable[[Mapping[str, Setting], Partition], OutputPartitionReader] = OutputPartitionReader,
    ) -> None:
        self._config = config
        self._output = output
        self._topic = topic
        self._bounds = bounds
        self._spread = spread
        self._compare = compare
        self._opened = opened

    def last(self, number: int, end: int) -> LastRecords:
        """Returns which records of output partition `number` below its offset `end` are the last of their keys.

        Left out are tombstones that come from no source record, and keys that one of them has deleted since
        (`keyfold.synthetic: identity`). All keys are held in memory. Raises RebuildError if a record does not name its
        source offset, or was published by another scope; UnreachableError, NotAllowedError.
        """
        last: dict[bytes, int] = {}
        earlier: dict[bytes, int] = {}
        for message, headers, partition in self._read(number, end):
            key, bound, generation = _key(message), self._bounds[partition], named_generation(headers)
            if generation < bound.generation and message.value() is not None:
                earlier[key] = message.offset() or 0
                continue
            earlier.pop(key, None)
            source = keyfold_source(headers) if generation == bound.generation else None
            if source is not None and source[2] < bound.below:
                self._check_partition(number, partition)
                last[key] = message.offset() or 0
            elif generation == bound.generation and retires(headers, TopicPartition(self._topic, partition)):
                last.pop(key, None)
        self._check_keys(number, list(last))
        return LastRecords(_rising(last), _rising(earlier))

    def rows(self, number: int, offsets: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        """Yields the records at `offsets` of output partition `number` in rows of record.RUN, in the output's order.

        Raises UnreachableError, NotAllowedError, and what `compare` raises.
        """
        return _batches(self._row(*each) for each in self._at(number, offsets))

    def earlier_rows(self, number: int, offsets: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        """Yields the records at `offsets` of output partition `number` as rows of the log of that number.

        They are of an earlier generation, so each has an offset below 0 in place of its source offset: the same in
        every rebuild, and the lower the higher it is in the output. Nothing orders them. Raises as `rows` does.
        """
        return _batches(self._earlier_row(number, *each) for each in self._at(number, offsets))

    def _at(self, number: int, offsets: NDArray[np.int64]) -> Iterator[tuple[Message, Headers, int]]:
        """Yields what `_read` does of the records at `offsets`."""
        if not len(offsets):
            return
        wanted = iter(offsets.tolist())
        at: int | None = next(wanted)
        for message, headers, partition in self._read(number, int(offsets[-1]) + 1, int(offsets[0])):
            while at is not None and at < (message.offset() or 0):
                at = next(wanted, None)  # the output's own cleaner has removed it meanwhile
            if at == message.offset():
                yield message, headers, partition

    def _row(self, message: Message, headers: Headers, partition: int) -> dict[str, Any]:
        source = keyfold_source(headers)
        offset = -1 if source is None else source[2]
        compared = dict(zip(_COMPARED, self._compare(headers, _key(message)), strict=True))
        return {**_row(message, headers, TopicPartition(self._topic, partition), offset), **compared}

    def _earlier_row(self, number: int, message: Message, headers: Headers, partition: int) -> dict[str, Any]:
        row = self._row(message, headers, partition)
        return {**row, "partition": number, "offset": -1 - (message.offset() or 0), record.ORDER_VALUE: None}

    def _read(self, number: int, end: int, start: int = 0) -> Iterator[tuple[Message, Headers, int]]:
        """Yields the records of an output partition that name one of the source's, with its number."""
        reader = self._opened(self._config, Partition(self._output, number))
        with reading(self._config, f"The records of output partition {self._output}-{number}", self._output):
            low, _ = reader.bounds()
            for message, headers in _messages(reader, max(low, start), end):
                partition = _source_partition(headers, self._topic)
                if partition in self._bounds:
                    yield message, headers, partition

    def _check_partition(self, number: int, partition: int) -> None:
        if self._spread is None and partition != number:
            raise self._other_scope(number, f"records of partition {partition} of its source", "partition", "topic")

    def _check_keys(self, number: int, keys: Sequence[bytes]) -> None:
        if self._spread is not None and (partitions_of(pa.array(keys, pa.binary()), self._spread) != number).any():
            raise self._other_scope(number, "keys that go to another one", "topic", "partition")

    def _other_scope(self, number: int, what: str, scope: str, other: str) -> RebuildError:
        return RebuildError(
            f"Output partition {self._output}-{number} has {what}: it was not published with compaction.scope={scope}.",
            f"Set compaction.scope={other}, move the connector's folder in storage.location away, then ask again.",
        )


def _messages(reader: OutputPartitionReader, low: int, end: int) -> Iterator[tuple[Message, Headers]]:
    """Yields the records of an output partition with their headers. Raises RebuildError if one does not say its own."""
    for start in range(low, end, _STEP):
        for message in reader.read(start, min(start + _STEP, end)):
            headers = header_pairs(message)
            if keyfold_source(headers) is None and not is_synthetic(headers):
                raise _unnamed(message)
            yield message, headers
        place = reader.target
        _log.info("reading back an output", topic=place.topic, partition=place.partition, offset=start, end=end)


def _source_partition(headers: Headers, topic: str) -> int:
    """Returns the partition of `topic` that the headers of a record name; -1 if they name none, or another topic."""
    named = {name: value for name, value in headers if isinstance(value, bytes)}
    number = whole(named.get(PARTITION, b""))
    return number if number is not None and named.get(TOPIC) == topic.encode() else -1


def _unnamed(message: Message) -> RebuildError:
    return RebuildError(
        f"The record at offset {message.offset()} of output {message.topic()}-{message.partition()} does not say which "
        "source record it is.",
        "Without the source headers (output.source.headers.enable) nothing can be rebuilt: begin anew with keyfold "
        "delete CONNECTOR.json --outputs.",
    )


def _key(message: Message) -> bytes:
    key = message.key()
    return b"" if key is None else bytes(key)


def _row(message: Message, headers: Headers, tp: TopicPartition, offset: int) -> dict[str, Any]:
    """Returns the source's record: keyfold's own headers are not its own, and a time that could not be sent is said."""
    kind, timestamp_ms = message.timestamp()
    own = dict(headers)
    sent = own.get(TIMESTAMP)
    sent_ms = whole(sent) if isinstance(sent, bytes) else None
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "offset": offset,
        "timestamp": timestamp_ms if sent_ms is None else sent_ms,
        "timestamp_type": _TYPES.get(kind, -1),
        "key": message.key(),
        "value": message.value(),
        "headers": [{"key": name, "value": value} for name, value in headers if not name.startswith(OWN_HEADERS)]
        or None,
        record.ORDER_VALUE: own.get(ORDER),
    }


_TYPES: Final = {1: 0, 2: 1}
"""The timestamp types of a run, by those of librdkafka: none, CreateTime, LogAppendTime."""


def _rising(last: Mapping[bytes, int]) -> NDArray[np.int64]:
    return np.sort(np.fromiter(last.values(), np.int64, len(last)))


def _batches(rows: Iterator[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    while some := list(islice(rows, _ROWS)):
        yield pa.RecordBatch.from_pylist(
            [{"delete_horizon": None, "rejected": None, **row} for row in some], schema=record.RUN
        )
