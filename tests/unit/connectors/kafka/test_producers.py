"""What a publishing client is set to."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from confluent_kafka import Producer

from connectors.config.connector import ConnectorConfig
from connectors.config.worker import WorkerConfig
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.producers import QUEUE, QUEUE_BYTES, settings, takes
from tests.support.clients import client_settings


@pytest.mark.parametrize(
    ("config", "largest", "kbytes"),
    [
        ({}, 0, 32 << 10),
        ({}, QUEUE_BYTES, 32 << 10),
        ({}, QUEUE_BYTES + 1, (64 << 10) + 1),
        ({}, 1_000_000_000, 976_563 + (32 << 10)),
        ({QUEUE: 7}, 1_000_000_000, 7),
    ],
)
def test_the_queue_has_room_for_the_largest_record(config: dict[str, str | int], largest: int, kbytes: int) -> None:
    """Librdkafka refuses a record that is larger than its whole queue; what somebody has set is what he gets."""
    assert settings(config, "c-0", 1_000_000, largest)[QUEUE] == kbytes


@pytest.mark.parametrize(
    ("config", "largest", "size", "taken"),
    [
        ({}, 0, QUEUE_BYTES, True),
        ({}, 0, QUEUE_BYTES + 1, False),
        ({}, QUEUE_BYTES + 9, QUEUE_BYTES + 1, True),
        ({}, QUEUE_BYTES + 9, QUEUE_BYTES + 10, False),
        ({QUEUE: 1}, 0, QUEUE_BYTES + 1, True),
    ],
)
def test_a_new_producer_is_made_only_where_it_takes_more(
    config: dict[str, str | int], largest: int, size: int, taken: bool
) -> None:
    """A queue that somebody has set does not grow: what it refuses is told as its setting's."""
    assert takes(config, largest, size) is taken


@pytest.mark.parametrize("largest", [0, QUEUE_BYTES + 9])
def test_librdkafka_takes_a_record_that_fits_into_its_queue(largest: int) -> None:
    """What is queued for brokers that are away: a record larger than the queue is refused even where nothing waits."""
    given = client_settings({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}).producer()
    config = settings(given, "c-0", 1_000_000, largest)
    producer = Producer({name: value for name, value in config.items() if name != "transactional.id"})
    with nullcontext() if largest else pytest.raises(BufferError):
        producer.produce("t", bytes(QUEUE_BYTES + 9))
    producer.purge()
    producer.flush(5)


@pytest.mark.parametrize(("given", "kbytes"), [({}, None), ({"producer.override.buffer.memory": "2048"}, "2")])
def test_only_what_somebody_has_set_bounds_the_queue(given: dict[str, str], kbytes: str | None) -> None:
    """Of a connector's own settings: a queue that comes from keyfold may grow with a record."""
    worker: dict[str, Any] = {"bootstrap.servers": "h:1"}
    connector = {"name": "c", "connector.class": "CompactedTopic", "topics": "t", **given}
    producer = ClientSettings.of(WorkerConfig(**worker), ConnectorConfig.model_validate(connector)).producer()
    assert producer.get(QUEUE) == kbytes
