"""Reads single records of source topics: those that kept values came from, and the newest as samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Partition

from connectors.clock import Deadline
from connectors.errors import UnreachableError
from connectors.kafka.admin import Admin
from connectors.kafka.client_settings import ClientSettings, Setting
from connectors.kafka.consumers import AssignedConsumer, headers_of
from connectors.kafka.errors import reading
from connectors.operations.erase.tombstones import ToDelete
from connectors.operations.topic_samples import MOST_TOPICS, Sample, sampled

_REQUEST_S: Final = 10.0
_DEADLINE_S: Final = 30.0
"""How long one record may take to come: a broker that is silent for longer is away."""
_LIMITS: Final[dict[str, Setting]] = {"enable.partition.eof": True, "auto.offset.reset": "earliest"}
"""An offset that is gone is answered by a later record, or by the end."""


class SourceRecords:
    """Reads the source with the connector's own settings. Each call has a consumer of its own, and commits nothing."""

    def __init__(self, clients: ClientSettings) -> None:
        self._clients = clients

    def newest(self, topics: Iterable[str]) -> dict[str, list[Sample]]:
        """Returns some of the newest records of each topic. Raises UnreachableError, NotAllowedError."""
        ordered = sorted(set(topics))
        samples: dict[str, list[Sample]] = {}
        with closing(Admin(self._clients.admin())) as admin:
            for start in range(0, len(ordered), MOST_TOPICS):
                samples |= sampled(self._clients, admin, ordered[start : start + MOST_TOPICS])
        return samples

    def of(self, values: Iterable[ToDelete]) -> Iterator[tuple[ToDelete, Sample]]:
        """Yields the source's record of each of `values`, if it is there still.

        Raises UnreachableError, NotAllowedError.
        """
        config = {**self._clients.consumer(), **_LIMITS}
        with closing(AssignedConsumer(ClientSettings({}, config), _REQUEST_S)) as consumer:
            for value in values:
                with reading(config, "source", value.topic):
                    message = _at(consumer, value)
                if message is not None:
                    yield value, Sample(message.key(), message.value(), headers_of(message)[0])


def _at(consumer: AssignedConsumer, value: ToDelete) -> Message | None:
    """Returns the record at the offset of `value`; None if the source has none there."""
    consumer.assign([Partition(value.topic, value.partition, value.offset)])
    deadline = Deadline(_DEADLINE_S)
    while not deadline.has_passed:
        for message in consumer.consumer.consume(1, 0.2):
            error = message.error()
            if error is None:
                return message if message.offset() == value.offset else None
            if error.code() == KafkaError._PARTITION_EOF:
                return None
            if not error.retriable():
                raise KafkaException(error)
    raise UnreachableError(
        f"The record at {value.topic}-{value.partition}, offset {value.offset}, was not read for {_DEADLINE_S:.0f} s.",
        "See that the brokers answer, then run the command again.",
    )
