"""Reads what an output partition holds of one generation back into rows of a run: the last record of each key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import merge
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import structlog
from confluent_kafka import Message
from confluent_kafka import TopicPartition as Partition

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


def last_records(
    config: Mapping[str, Setting],
    output: str,
    tp: TopicPartition,
    generation: int,
    end: int,
    below: int,
    compare: Compare = by_bytes,
) -> Iterator[pa.RecordBatch]:
    """Yields the last record of each key below offset `end` of the output, in rows of record.RUN by source offset.

    Only records of `tp` in `generation` with a source offset lower than `below`; tombstones that come from no source
    record are left out, and so is a key that one of them has deleted since (`keyfold.synthetic: identity`). Raises
    RebuildError if a record does not name its source offset, UnreachableError, NotAllowedError, and what `compare`
    raises, which finds by what a key is compared.
    """
    reader = OutputPartitionReader(config, Partition(output, tp.partition))
    with reading(config, f"The records of output partition {output}-{tp.partition}", output):
        low, _ = reader.bounds()
        last: dict[bytes, int] = {}
        for message, _, offset in _own(reader, low, end, tp, generation):
            if offset is None:
                last.pop(_key(message), None)
            elif offset < below:
                last[_key(message)] = offset
        rows = (
            {**_row(message, headers, tp, offset), **dict(zip(_COMPARED, compare(headers, _key(message)), strict=True))}
            for message, headers, offset in _own(reader, low, end, tp, generation)
            if offset is not None and last.get(_key(message)) == offset
        )
        yield from _batches(rows)


class TopicRecords:
    """Reads the last record of each key of a topic with one winner a key over its partitions (compaction.scope=topic).

    `bounds` has for each source partition its generation, and the source offset below which records count; `ends` the
    end of each output partition. It first reads all of the output, for its keys, then again for each source partition.
    Raises as `last_records`; RebuildError if a key is not in its output partition.
    """

    def __init__(
        self,
        config: Mapping[str, Setting],
        output: str,
        topic: str,
        bounds: Mapping[int, tuple[int, int]],
        ends: Mapping[int, int],
        compare: Compare = by_bytes,
    ) -> None:
        self._config = config
        self._output = output
        self._topic = topic
        self._bounds = bounds
        self._ends = ends
        self._compare = compare
        # By output partition the source partition and offset of the last record of each key.
        self._last = {number: self._last_of(number) for number in ends}

    def of_partition(self, partition: int) -> Iterator[pa.RecordBatch]:
        """Yields those of a source partition, in rows of record.RUN by source offset."""
        yield from _batches(merge(*(self._rows(number, partition) for number in self._ends), key=itemgetter("offset")))

    def _last_of(self, number: int) -> dict[bytes, tuple[int, int]]:
        last: dict[bytes, tuple[int, int]] = {}
        for message, _, tp, offset in self._read(number):
            if offset is None:
                last.pop(_key(message), None)
            elif offset < self._bounds[tp.partition][1]:
                last[_key(message)] = tp.partition, offset
        places = partitions_of(pa.array(list(last), pa.binary()), len(self._ends))
        if (places != number).any():
            raise RebuildError(
                f"Output partition {self._output}-{number} has keys that go to another one by compaction.scope=topic.",
                "Set compaction.scope to what the connector was published with, then ask again.",
            )
        return last

    def _rows(self, number: int, partition: int) -> Iterator[dict[str, Any]]:
        for message, headers, tp, offset in self._read(number):
            if tp.partition == partition and self._last[number].get(_key(message)) == (partition, offset):
                compared = self._compare(headers, _key(message))
                yield {**_row(message, headers, tp, offset or 0), **dict(zip(_COMPARED, compared, strict=True))}

    def _read(self, number: int) -> Iterator[tuple[Message, Headers, TopicPartition, int | None]]:
        """Yields the records of an output partition that are of the logs' generations, with their source offsets.

        The offset is None for a tombstone of another encoding of a key.
        """
        reader = OutputPartitionReader(self._config, Partition(self._output, number))
        with reading(self._config, f"The records of output partition {self._output}-{number}", self._output):
            low, _ = reader.bounds()
            for message, headers in _messages(reader, low, self._ends[number]):
                tp = TopicPartition(self._topic, _source_partition(headers, self._topic))
                generation, _ = self._bounds.get(tp.partition, (None, 0))
                if generation == named_generation(headers):
                    source = keyfold_source(headers)
                    if source is not None:
                        yield message, headers, tp, source[2]
                    elif retires(headers, tp):
                        yield message, headers, tp, None


def _own(
    reader: OutputPartitionReader, low: int, end: int, tp: TopicPartition, generation: int
) -> Iterator[tuple[Message, Headers, int | None]]:
    """Yields each record of `tp` in `generation` with its headers and source offset, in the output's order.

    The offset is None for a tombstone of another encoding of a key.
    """
    for message, headers in _messages(reader, low, end):
        source = keyfold_source(headers)
        if source is not None and source[:2] == tp and named_generation(headers) == generation:
            yield message, headers, source[2]
        elif retires(headers, tp) and named_generation(headers) == generation:
            yield message, headers, None


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


def _batches(rows: Iterator[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    some: list[dict[str, Any]] = []
    for row in rows:
        some.append(row)
        if len(some) == _ROWS:
            yield _batch(some)
            some = []
    if some:
        yield _batch(some)


def _batch(rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"delete_horizon": None, "rejected": None, **row} for row in rows], schema=record.RUN
    )
