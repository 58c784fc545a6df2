"""Reads what an output partition holds of one generation back into rows of a run: the last record of each key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from connectors.sinks.encode import ORDER, TIMESTAMP
from connectors.sinks.output_reader import (
    Headers,
    OutputPartitionReader,
    header_pairs,
    is_synthetic,
    keyfold_source,
    named_generation,
    retires,
)

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


def _own(
    reader: OutputPartitionReader, low: int, end: int, tp: TopicPartition, generation: int
) -> Iterator[tuple[Message, Headers, int | None]]:
    """Yields each record of `tp` in `generation` with its headers and source offset, in the output's order.

    The offset is None for a tombstone of another encoding of a key.
    """
    for start in range(low, end, _STEP):
        for message in reader.read(start, min(start + _STEP, end)):
            headers = header_pairs(message)
            source = keyfold_source(headers)
            if source is None and not is_synthetic(headers):
                raise _unnamed(message)
            if source is not None and source[:2] == tp and named_generation(headers) == generation:
                yield message, headers, source[2]
            elif retires(headers, tp) and named_generation(headers) == generation:
                yield message, headers, None
        _log.info("reading back an output", topic=tp.topic, partition=tp.partition, offset=start, end=end)


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
