"""Sends a workload to the same partition of several topics, and checks that its offsets are equal in all."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Final, Self
from uuid import uuid4

from confluent_kafka import IsolationLevel, Message, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.conformance.workload import PLAIN, TRANSACTIONAL, Entry, Operation, Send
from tests.support.kafka import TIMEOUT_S, admin

BATCH_BYTES: Final = 1000
"""Largest batch in bytes, except for single records: the broker refuses one larger than a segment."""

_PLAIN: Final = {"max.in.flight.requests.per.connection": 1}
_COMMON: Final = {"log_level": 0, "linger.ms": 1000, "batch.size": BATCH_BYTES}


class Feeder:
    """Has one producer of each name, for all `topics`; sends one workload at a time."""

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        self._topics = tuple(topics)
        self._admin = admin(bootstrap)
        self._stack = ExitStack()
        self._open: set[str] = set()
        common = {"bootstrap.servers": bootstrap, **_COMMON}
        self._producers = {
            **{codec: self._made({**common, **_PLAIN, "compression.type": codec}) for codec in PLAIN},
            **{
                name: self._made({**common, "compression.type": codec, "transactional.id": f"{name}-{uuid4().hex}"})
                for name, codec in TRANSACTIONAL.items()
            },
        }
        for name in TRANSACTIONAL:
            self._producers[name].init_transactions(TIMEOUT_S)

    def _made(self, config: dict[str, object]) -> Producer:
        return self._stack.enter_context(Producer(config))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def feed(self, partition: int, operations: Iterable[Operation]) -> int:
        """Performs the operations on an empty partition; returns its end offset, the same in every topic.

        Offsets depend on nothing but the order, so each operation has its offsets everywhere before the next begins.
        """
        end = 0
        for operation in operations:
            if isinstance(operation, Send):
                self._send(operation.producer, partition, operation.entries, end)
                end += len(operation.entries)
            else:
                end += 1
                self._end(operation.producer, partition, end, commit=operation.commit)
        return end

    def _send(self, name: str, partition: int, entries: Sequence[Entry], at: int) -> None:
        producer = self._producers[name]
        if name in TRANSACTIONAL and name not in self._open:
            producer.begin_transaction()
            self._open.add(name)
        found: dict[str, list[object]] = {topic: [] for topic in self._topics}

        def delivered(error: object, message: Message) -> None:
            found[message.topic() or ""].append(error or message.offset())

        for topic in self._topics:
            for key, value, headers, timestamp_ms in entries:
                producer.produce(topic, value, key, partition, delivered, timestamp=timestamp_ms, headers=list(headers))
        assert producer.flush(TIMEOUT_S) == 0, "records were not delivered"
        expected = [*range(at, at + len(entries))]
        assert all(offsets == expected for offsets in found.values()), f"should be at {expected}: {found}"

    def _end(self, name: str, partition: int, end: int, *, commit: bool) -> None:
        producer = self._producers[name]
        (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_S)
        self._open.discard(name)
        self._await_marker(partition, end)

    def _await_marker(self, partition: int, end: int) -> None:
        """Waits for the markers, which the coordinator writes after its answer and before what follows."""
        deadline = time.monotonic() + TIMEOUT_S
        while (ends := self._ends(partition)) != {end}:
            assert max(ends) <= end, f"partition {partition} should end at {end}: {ends}"
            assert time.monotonic() < deadline, f"no marker before {end} in partition {partition}: {ends}"

    def _ends(self, partition: int) -> set[int]:
        places = {TopicPartition(topic, partition): OffsetSpec.latest() for topic in self._topics}
        answers = self._admin.list_offsets(places, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        return {answer.result(TIMEOUT_S).offset for answer in answers.values()}
