"""Fills the demo's source topic, the same way each time: a record's partition and offset never differ between runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import NewTopic

from connectors.dev.demo.data import Flight
from connectors.errors import UnreachableError
from connectors.kafka.admin import new_client
from connectors.kafka.broker_text import broker_text
from connectors.kafka.client_log import logged

TOPIC: Final = "flights"
# Partitions of the source topic, so that several tasks read it.
PARTITIONS: Final = 4
# How long (s) the broker may take to make the topic, and to take what is left in the queue at the end.
_TIMEOUT_S: Final = 60.0
# Records between two moves of the progress bar.
_REPORT_EVERY: Final = 5_000
_ANY_PARTITION: Final = -1  # librdkafka's RD_KAFKA_PARTITION_UA: the partitioner decides by key


def create_topic(bootstrap: str) -> None:
    """Makes the source topic: `cleanup.policy=delete`, and no age at which flights of 2013 would be gone."""
    config = {"cleanup.policy": "delete", "retention.ms": "-1"}
    topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1, config=config)
    # Named, as a client that is let go takes its answers along.
    admin = new_client({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        admin.create_topics([topic])[TOPIC].result(_TIMEOUT_S)
    except KafkaException as error:
        raise UnreachableError(f"The demo's broker did not make topic {TOPIC}: {error.args[0]}.") from error


def load(bootstrap: str, flights: Iterable[Flight], report: Callable[[int], None]) -> int:
    """Sends `flights` in order, each key to the partition of a Java producer; calls `report` with their number.

    Flights without a key go round robin. Raises UnreachableError when one of them was not taken.
    """
    sender = _Sender(bootstrap)
    turns = itertools.cycle(range(PARTITIONS))
    count = 0
    for count, flight in enumerate(flights, start=1):
        sender.send(flight, next(turns) if flight.key is None else _ANY_PARTITION)
        if count % _REPORT_EVERY == 0:
            report(count)
    sender.finish()
    report(count)
    return count


class _Sender:
    """An idempotent producer that keeps the order and remembers the first record that was refused."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"enable.idempotence": True, "linger.ms": 20, "compression.type": "lz4", "partitioner": "murmur2"}
        # Only refusals are reported: Ctrl-C inside of a report would be lost, and there would be one a record.
        quiet = {"delivery.report.only.error": True, "log_level": 0}
        self._producer = Producer(logged({"bootstrap.servers": bootstrap, **quiet, **settings}))
        # The first record's error, set by librdkafka's callback; `finish` raises it.
        self._refused: KafkaError | None = None

    def send(self, flight: Flight, partition: int) -> None:
        """Queues one record; waits while the queue is full."""
        while True:
            try:
                self._producer.produce(
                    TOPIC, flight.value, flight.key, partition, self._delivered, timestamp=flight.timestamp_ms
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def finish(self) -> None:
        """Waits until the broker has everything."""
        left = self._producer.flush(_TIMEOUT_S)
        if left or self._refused:
            why = broker_text(self._refused) if self._refused else f"{left:,} are left"
            raise UnreachableError(f"The demo's broker did not take all flights: {why}.")

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        self._refused = self._refused or error
