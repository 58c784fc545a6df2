"""Output and dead letter topics: made with what publishing needs, grown, and checked where they exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from connectors.config.connector import ConnectorConfig
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import OutputError
from connectors.kafka.admin import Admin
from connectors.sinks import output_topic
from tests.support.kafka import create_topic


def connector(**named: Any) -> ConnectorConfig:
    settings = {"name": "c", "connector.class": "keyfold.CompactedTopic", "topics": "t"}
    return ConnectorConfig.model_validate(settings | {name.replace("_", "."): value for name, value in named.items()})


@pytest.fixture
def admin(broker: EmbeddedKafka) -> Admin:
    return Admin({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def source(broker: EmbeddedKafka, topic_name: str) -> str:
    return create_topic(broker.bootstrap, topic_name, 3, max_message_bytes=3_000_000)


def ensured(admin: Admin, config: ConnectorConfig, source: str, name: str, partitions: int) -> str:
    return output_topic.ensure(admin, config, [output_topic.WantedOutput(source, name, partitions)])[name]


def test_a_new_output_has_what_publishing_needs(admin: Admin, source: str) -> None:
    """As many partitions as the source, the connector's policy, CreateTime of any age, room for our headers."""
    name = f"{source}.compacted"
    found = connector(delete_retention_ms=1234, **{"output.topic.config.segment.ms": "5000"})
    topic_id = ensured(admin, found, source, name, 3)
    info = admin.describe([name])[name]
    assert (info.id, info.partitions, info.leaderless) == (topic_id, 3, 0)
    config = admin.topic_config(name)
    assert config["cleanup.policy"] == "compact"
    assert config["delete.retention.ms"] == "1234"
    assert config["message.timestamp.type"] == "CreateTime"
    assert config["message.timestamp.after.max.ms"] == str(output_topic.FOREVER)
    assert int(config["max.message.bytes"]) == 3_000_000 + output_topic.HEADER_ROOM
    assert config["segment.ms"] == "5000"
    assert config["min.compaction.lag.ms"] == "0"


def test_an_output_is_found_again(admin: Admin, source: str) -> None:
    """Asking twice changes nothing."""
    first = ensured(admin, connector(), source, f"{source}.compacted", 3)
    assert ensured(admin, connector(), source, f"{source}.compacted", 3) == first


def test_an_output_grows_with_its_source(admin: Admin, source: str) -> None:
    """Partitions are added, never taken away."""
    name = f"{source}.compacted"
    ensured(admin, connector(), source, name, 3)
    ensured(admin, connector(), source, name, 5)
    assert admin.describe([name])[name].partitions == 5
    ensured(admin, connector(), source, name, 2)
    assert admin.describe([name])[name].partitions == 5


def test_an_unfit_output_is_refused_with_all_that_is_wrong(
    broker: EmbeddedKafka, admin: Admin, source: str, new_topic_name: Callable[[str], str]
) -> None:
    """The error lists every setting that has to change."""
    name = create_topic(
        broker.bootstrap, new_topic_name("o"), 3, cleanup_policy="delete", message_timestamp_type="LogAppendTime"
    )
    with pytest.raises(OutputError) as raised:
        ensured(admin, connector(), source, name, 3)
    for part in (name, "cleanup.policy is delete", "message.timestamp.type is LogAppendTime", "kafka-configs.sh"):
        assert part in str(raised.value)


def test_dead_letters_get_one_partition(admin: Admin, source: str) -> None:
    """As Kafka Connect makes it, but aged by their arrival; an existing topic is taken as it is."""
    name = f"{source}-dlq"
    settings = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": name,
        "errors.deadletterqueue.topic.replication.factor": 1,
    }
    output_topic.ensure_dead_letters(admin, connector(**settings))
    output_topic.ensure_dead_letters(admin, connector(**settings))
    assert admin.describe([name])[name].partitions == 1
    assert admin.topic_config(name)["message.timestamp.type"] == "LogAppendTime"
    output_topic.ensure_dead_letters(admin, connector())
