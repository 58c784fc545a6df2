"""What `keyfold validate --broker` finds, over a stand-in for the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from connectors.config.connector import ConnectorConfig
from connectors.kafka.admin import TopicInfo
from connectors.operations.validate import broker_faults, truncate_faults


class Brokers:
    def __init__(self, topics: Mapping[str, Mapping[str, str]]) -> None:
        self.topics = topics

    def list_topics(self) -> list[str]:
        return list(self.topics)

    def topic_config(self, name: str) -> Mapping[str, str]:
        return self.topics[name]

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, "i", int(self.topics[name].get("partitions", 1))) for name in topics}

    def brokers(self) -> int:
        return 2


FIT = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
TOO_FEW = "is 3, but there are 2 brokers; lower it, or create"
DEAD = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"}


@pytest.mark.parametrize(
    ("settings", "topics", "said"),
    [
        ({"topics": "a"}, {"a": {}}, []),
        ({"topics": "a"}, {"a": {}, "a.compacted": FIT}, []),
        ({"topics": "a,b"}, {"a": {}}, ['topics: "b" does not exist; create it, or correct the name.']),
        ({"topics.regex": "x.*"}, {"a": {}}, []),
        ({"topics": "a", "output.topic": "none"}, {"a": {}, "none": {"cleanup.policy": "delete"}}, []),
        (
            {"topics.regex": "a"},
            {"a": {}, "a.compacted": FIT | {"cleanup.policy": "delete"}},
            [
                'output.topic: "a.compacted" exists: cleanup.policy is delete, it has to contain compact.',
                (
                    'output.topic: "a.compacted" exists: cleanup.policy contains delete, which the connector\'s does '
                    "not: keys would expire."
                ),
            ],
        ),
        (
            {"topics": "a", "cleanup.policy": "compact,delete", "retention.ms": "1000"},
            {"a": {}, "a.compacted": FIT | {"cleanup.policy": "compact,delete"}},
            [],
        ),
        (
            {"topics": "a"},
            {"a": {}, "a.compacted": FIT | {"message.timestamp.type": "LogAppendTime"}},
            ['output.topic: "a.compacted" exists: message.timestamp.type is LogAppendTime, it has to be CreateTime.'],
        ),
        (
            {"topics": "a", "output.topic.replication.factor": 3},
            {"a": {}},
            [f'output.topic.replication.factor: {TOO_FEW} "a.compacted" yourself.'],
        ),
        ({"topics": "a", "output.topic.replication.factor": 3}, {"a": {}, "a.compacted": FIT}, []),
        (
            {"topics": "a", **DEAD, "errors.deadletterqueue.topic.replication.factor": 3},
            {"a": {}},
            [f'errors.deadletterqueue.topic.replication.factor: {TOO_FEW} "dead" yourself.'],
        ),
        ({"topics": "a", **DEAD, "errors.deadletterqueue.topic.replication.factor": 3}, {"a": {}, "dead": {}}, []),
        ({"topics": "a", **DEAD, "errors.deadletterqueue.topic.replication.factor": 2}, {"a": {}}, []),
    ],
)
def test_what_the_brokers_have_must_fit(
    settings: dict[str, Any], topics: dict[str, dict[str, str]], said: list[str]
) -> None:
    """A named source topic exists, and an output topic that is there is compacted and keeps the source's timestamps."""
    config = ConnectorConfig.model_validate({"name": "c", "connector.class": "CompactedTopic", **settings})
    brokers: Any = Brokers(topics)
    assert [str(fault) for fault in broker_faults(config, brokers)] == said


@pytest.mark.parametrize(
    ("settings", "is_told"),
    [
        ({"debezium.truncate": "apply"}, True),
        ({"debezium.truncate": "apply", "compaction.order": "timestamp"}, True),
        (
            {
                "debezium.truncate": "apply",
                "compaction.order": "field:source.lsn",
                "value.converter": "keyfold.Json",
            },
            False,
        ),
        ({"debezium.truncate": "fail"}, False),
        ({}, False),
    ],
)
def test_truncates_that_could_not_be_applied_are_told_before_there_is_any(
    settings: dict[str, Any], is_told: bool
) -> None:
    """Of topics with several partitions, by name, unless the order says what is before a truncate."""
    given = {"name": "c", "connector.class": "CompactedTopic", "topics.regex": "[ab]", **settings}
    brokers: Any = Brokers({"a": {"partitions": "3"}, "b": {}, "x": {"partitions": "2"}})
    told = [str(fault) for fault in truncate_faults(ConnectorConfig.model_validate(given), brokers)]
    assert [each.partition(": a truncate")[0] for each in told] == (
        ['debezium.truncate: is apply, and "a"'] if is_told else []
    )
