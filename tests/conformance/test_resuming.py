"""What a real broker takes from an output topic, and how soon: a manifest must not promise that it stays for longer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from connectors.config.connector import ConnectorConfig
from connectors.dev.embedded_config import Layout
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.sinks.output_topic import new_config, resume_safe_ms
from tests.conformance.kafka_cleaner import KafkaCleaner
from tests.support.kafka import ToSend, admin, consume_all, create_topic, produce, wait_until

HOUR_MS: Final = 3_600_000
SEGMENTS: Final = {"internal.segment.bytes": "2048", "segment.index.bytes": "4096", "min.cleanable.dirty.ratio": "0.01"}


def output(broker: EmbeddedKafka, name: str, **settings: Any) -> dict[str, Any]:
    """Makes an output topic `name` as a connector with these settings does, but of small segments; its settings."""
    settings_json = {"name": "c", "connector.class": "keyfold.CompactedTopic", "topics": "t", **settings}
    config: dict[str, Any] = {**new_config(ConnectorConfig.model_validate(settings_json), {})}
    create_topic(broker.bootstrap, name, 1, **{**config, **SEGMENTS})
    return config


def log_start(broker: EmbeddedKafka, name: str) -> int:
    client = admin(broker.bootstrap)
    (answer,) = client.list_offsets({TopicPartition(name, 0): OffsetSpec.earliest()}).values()
    return answer.result().offset


@pytest.mark.parametrize(
    ("settings", "age_ms"),
    [({"retention.bytes": 2000}, 0), ({"retention.ms": HOUR_MS}, 2 * HOUR_MS)],
    ids=["by size", "by the source's time"],
)
def test_no_time_is_promised_where_retention_takes_what_was_just_sent(
    cleaning_broker: EmbeddedKafka, new_topic_name: Callable[[str], str], settings: dict[str, int], age_ms: int
) -> None:
    """Retention asks for size, and for times that a backlog has brought with it: a record may go once it is there."""
    name = new_topic_name("o")
    config = output(cleaning_broker, name, **{"cleanup.policy": "compact,delete", **settings})
    stamp = round(time.time() * 1000) - age_ms
    for at in range(5):  # a batch each: several would be larger than a segment
        produce(cleaning_broker.bootstrap, name, [ToSend(0, b"k%d" % at, bytes(1500), (), stamp)])
    wait_until(lambda: log_start(cleaning_broker, name) > 0, "the first segment is gone")
    assert resume_safe_ms(config) == 0


def test_a_tombstone_stays_for_the_time_that_is_promised(
    cleaning_broker: EmbeddedKafka, new_topic_name: Callable[[str], str]
) -> None:
    """However often the output is cleaned meanwhile; by the source's time it may be years old."""
    name = new_topic_name("o")
    promised_ms = resume_safe_ms(output(cleaning_broker, name, **{"delete.retention.ms": 2000}))
    assert promised_ms
    cleaner = KafkaCleaner(cleaning_broker.bootstrap, Layout(cleaning_broker.log_file.parent).data)
    sent = time.monotonic()
    produce(cleaning_broker.bootstrap, name, [ToSend(0, b"k", b"v"), ToSend(0, b"k", None, (), 1)])
    cleaner.pass_over({(name, 0): 2})
    while any(record.key == b"k" for record in consume_all(cleaning_broker.bootstrap, name)):
        cleaner.pass_again({(name, 0): 2})
    assert time.monotonic() - sent >= promised_ms / 1000
