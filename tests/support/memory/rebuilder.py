"""Makes a lost catalog again as `Rebuilder` does, from the output of the broker in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Message
from confluent_kafka import TopicPartition as Partition

from compactor.catalog.catalog import Catalog
from compactor.failpoints import hit
from compactor.generation.tombstones import Compare
from compactor.model.position import Position
from compactor.model.record import ORDER_VALUE, RUN, TopicPartition
from compactor.publish.retired import RETIRED
from compactor.rebuild.plan import LostLog
from connectors.operations.rebuild import Held, Rebuilder
from connectors.runtime.takeover import Fenced
from connectors.sinks.encode import Header, Row, output_rows, rows_of_generation, tombstones_of_retired
from connectors.sinks.output_records import Bound, OutputRecords
from tests.support.memory.broker import MemoryBroker
from tests.support.memory.journal import OutputRecord
from tests.support.memory.offset_changer import admin, live_keys

_SEGMENT_BYTES: Final = 1 << 20
_TYPES: Final = {0: 1, 1: 2}
"""The timestamp types of librdkafka by those of a run: CreateTime, LogAppendTime."""


class MemoryRebuilder(Rebuilder):
    """Takes the steps on `broker`; `source_end` returns the end of a partition of the source.

    `outputs`: the number of output partitions of topics that have not as many as their source (compaction.scope=topic).
    """

    def __init__(
        self,
        catalog: Catalog,
        broker: MemoryBroker,
        source_end: Callable[[TopicPartition], int],
        outputs: Mapping[str, int],
    ) -> None:
        outside: Any = broker
        connector: Any = SimpleNamespace(
            name="c",
            group_id="connect-c",
            topics=tuple(sorted(broker.topics)),
            segment_bytes=_SEGMENT_BYTES,
            output_topic=lambda topic: broker.topics[topic].output,
        )
        clients: Any = None
        super().__init__(Fenced(catalog, outside, admin(broker, source_end, outputs), connector, clients))
        self._memory, self._memory_catalog = broker, catalog

    def _output_records(self, topic: str, bounds: Mapping[int, Bound], spread: int | None) -> OutputRecords:
        compare = self._comparison()

        def opened(_config: object, place: Partition) -> Any:
            return _Reader(self._memory, TopicPartition(topic, place.partition), place)

        def compared(_headers: object, key: bytes) -> tuple[bytes | None, str | None]:
            return (None, None) if compare is None else compare(key)

        return OutputRecords({}, self._memory.topics[topic].output or "", topic, bounds, spread, compared, opened)

    def _live_keys(self, lost: LostLog) -> tuple[list[bytes], Compare | None]:
        records = self._memory.output.records.get(lost.tp, ())
        return live_keys(records, lost.output_end), self._comparison()

    def _comparison(self) -> Compare | None:
        return None if self._memory_catalog.state.key_identity is None else self._memory.compare

    def _put(self, positions: Mapping[TopicPartition, Position], held: Held, ids: int) -> bool:
        hit("rebuild.positions")
        self._memory.fence(range(1, ids))
        hit("rebuild.fence")
        self._memory.overwrite_all(positions)
        return True


class _Reader:
    """Reads an output partition as `OutputPartitionReader` does; `target` is its name on a broker."""

    def __init__(self, broker: MemoryBroker, tp: TopicPartition, target: Partition) -> None:
        output = broker.output
        self.target = target
        self._records = tuple(output.records.get(tp, ()))
        self._end = output.ends.get(tp, 0)

    def bounds(self) -> tuple[int, int]:
        """See OutputPartitionReader."""
        return 0, self._end

    def read(self, start: int, stop: int) -> Iterator[Message]:
        """See OutputPartitionReader."""
        for record in self._records:
            if start <= record.offset < stop:
                yield _message(record, self.target)


def _message(record: OutputRecord, place: Partition) -> Message:
    """Returns a record as a consumer gets it: with the headers that a publish gives it."""
    ((value, key, timestamp, headers),) = _sent(record)
    message: Any = SimpleNamespace(
        topic=lambda: place.topic,
        partition=lambda: place.partition,
        offset=lambda: record.offset,
        key=lambda: key,
        value=lambda: value,
        headers=lambda: [(name, _bytes(content)) for name, content in headers],
        timestamp=lambda: (_TYPES.get(record.timestamp_type, 0), timestamp),
        error=lambda: None,
    )
    return message


def _bytes(content: Header | str | bytes | None) -> Any:
    return content.encode() if isinstance(content, str) else content


def _sent(record: OutputRecord) -> list[Row]:
    headers = [{"key": name, "value": value} for name, value in record.headers]
    values = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.source_offset,
        "timestamp": record.timestamp,
        "timestamp_type": record.timestamp_type,
        "key": record.key,
        "value": record.value,
        "headers": headers or None,
        ORDER_VALUE: record.order,
    }
    batch = pa.RecordBatch.from_pylist([values], schema=RUN)
    if record.retires:
        retired = pa.array([[record.key]], pa.list_(pa.binary()))
        return list(
            tombstones_of_retired(batch.append_column(RETIRED, retired), record.generation, source_headers=True)
        )
    if record.generation > 1:
        return list(rows_of_generation(batch, record.generation, source_headers=True))
    return list(output_rows(batch, source_headers=True))
