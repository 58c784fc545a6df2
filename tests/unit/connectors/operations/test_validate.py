"""What `keyfold validate --broker` finds, over a stand-in for the brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from connectors.config.connector import ConnectorConfig
from connectors.operations.validate import broker_faults


class Brokers:
    def __init__(self, topics: Mapping[str, Mapping[str, str]]) -> None:
        self.topics = topics

    def list_topics(self) -> list[str]:
        return list(self.topics)

    def topic_config(self, name: str) -> Mapping[str, str]:
        return self.topics[name]

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
