"""What a connector needs to be allowed, and what it says where it is not: on a broker with ACLs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from compactor.model.log import empty
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState, Topic
from connectors.config.connector import ConnectorConfig
from connectors.errors import NotAllowedError
from connectors.kafka import consumers
from connectors.kafka.admin import Admin
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.producers import fence_all, transactional_id
from connectors.runtime.kafka_broker import KafkaBroker
from connectors.source.planner import Planner
from connectors.source.topics import SourceTopics
from tests.support.acl_broker import AclKafka, Right
from tests.support.broker_source import BrokerSource, numbered_records
from tests.support.clients import client_settings
from tests.support.kafka import produce
from tests.support.publishing import Changelog, RunRecord


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AclKafka]:
    """The broker."""
    with AclKafka(tmp_path_factory.mktemp("guarded")) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_idle_consumers() -> Iterator[None]:
    yield
    consumers.close_idle()


class Life:
    """What a connector asks of the brokers in one life, by the listener that asks who it is."""

    def __init__(self, guarded: AclKafka, folder: Path, topic: str) -> None:
        self.guarded = guarded
        self.login = dict(guarded.login())
        self.changelog = Changelog(guarded.bootstrap, folder, topic, output_config={"cleanup.policy": "compact"})
        self.tp = TopicPartition(topic, 0)
        self.state = self._state()
        name = self.changelog.connector
        settings = {"name": name, "connector.class": "keyfold.CompactedTopic", "topics": topic}
        clients = ClientSettings(self.login, {**self.login, "group.id": f"connect-{name}"}, self.login)
        connector = ConnectorConfig.model_validate(settings)
        self.gateway = KafkaBroker(connector, clients, Admin(self.login), self.changelog.storage)

    def rights(self) -> list[Right]:
        """Everything that it takes with topics that are there already."""
        topic, output, name = self.changelog.topic, self.changelog.output, self.changelog.connector
        return [
            *(("TOPIC", topic, right) for right in ("READ", "DESCRIBE_CONFIGS")),
            *(("TOPIC", output, right) for right in ("WRITE", "READ", "DESCRIBE_CONFIGS")),
            ("GROUP", f"connect-{name}", "READ"),
            ("TRANSACTIONAL_ID", transactional_id(name, 0), "WRITE"),
        ]

    def begin(self) -> None:
        """Steps T2 and T3, and where publishing goes on."""
        fence_all(self.login, [transactional_id(self.changelog.connector, 0)])
        self.gateway.discover(self.state)
        self.gateway.positions([self.tp])
        self.gateway.tail(self.state, empty(self.tp, 0, 0, None))

    def read(self) -> None:
        """Steps 1 and 2."""
        clients = client_settings({**self.login, "log_level": 0})
        source = BrokerSource(self.guarded.bootstrap, self.changelog.topic, clients=clients)
        topics = SourceTopics(self.changelog.connector, Admin(source.options.clients.admin(), 10))
        Planner(source.options, topics).initial()
        source.read(source.range(self.changelog.topic, 0, 5))

    def publish(self, start: int = 0) -> None:
        """Steps 6 to 11."""
        publisher = replace(self.changelog.publisher(), clients=client_settings(self.login))
        target = self.changelog.target(start, start + 5, output_offset=start and 1)
        self.changelog.publish(target, [RunRecord(start + 3)], publisher)

    def everything(self) -> bool:
        """All of it."""
        self.begin()
        self.read()
        self.publish()
        return True

    def _state(self) -> CatalogState:
        topic, output = self.changelog.topic, self.changelog.output
        topic_id = self.changelog.admin.describe([topic])[topic].id
        known = Topic(topic=topic, topic_id=topic_id, output=output, output_id=self.changelog.output_id)
        return CatalogState(catalog_id="x", connector=self.changelog.connector, topics={topic: known}, buckets=1)


@pytest.fixture
def life(guarded: AclKafka, tmp_path: Path, topic_name: str) -> Life:
    """A connector whose source has records, and which may do nothing."""
    found = Life(guarded, tmp_path, topic_name)
    produce(guarded.bootstrap, topic_name, numbered_records(5))
    return found


def test_the_rights_that_are_documented_are_enough(life: Life) -> None:
    """Read implies Describe, and Write on a topic lets a producer be idempotent."""
    life.guarded.grant(life.rights())
    life.everything()
    assert len(life.changelog.read()) == 1


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "Grant Describe on topic {topic} "),
        (1, "Grant DescribeConfigs on topic {topic} "),
        (2, "Grant Write and Describe on output topic {output} "),
        (4, "Grant DescribeConfigs on topic {output} "),
        (5, "Grant Read and Describe on group connect-{connector} "),
        (6, "Grant Write and Describe on transactional id {connector}-0 "),
    ],
    ids=["read source", "source settings", "write", "output settings", "group", "transactional id"],
)
def test_a_right_that_is_missing_is_named(life: Life, number: int, text: str) -> None:
    """What was tried, what to grant and on what; once it is granted, the next life goes on."""
    rights = life.rights()
    life.guarded.grant(right for right in rights if right != rights[number])
    with pytest.raises(NotAllowedError) as raised:
        life.everything()
    names = {"topic": life.changelog.topic, "output": life.changelog.output, "connector": life.changelog.connector}
    assert text.format(**names) in raised.value.action
    assert raised.value.retriable
    assert life.changelog.position() is None
    life.guarded.grant([rights[number]])
    assert life.everything()
    assert len(life.changelog.read()) == 1


def test_reading_the_output_is_asked_for_where_a_position_is_lost(life: Life) -> None:
    """Only then; without the right, other writers are not looked for, and publishing goes on."""
    life.guarded.grant(life.rights())
    life.everything()
    life.guarded.revoke(("TOPIC", life.changelog.output, "READ"))
    with pytest.raises(NotAllowedError) as raised:
        life.begin()
    assert f"Grant Read on topic {life.changelog.output} " in raised.value.action
    produce(life.guarded.bootstrap, life.changelog.output, [(0, b"k", b"v")])
    with capture_logs() as logs:
        life.publish(5)
    assert "output may not be read, other writers are not looked for" in [log["event"] for log in logs]
    assert len(life.changelog.read()) == 3


def test_reading_the_source_is_asked_for(life: Life) -> None:
    """A right that is taken from the source while the connector runs is no silence of the brokers."""
    source = ("TOPIC", life.changelog.topic, "READ")
    life.guarded.grant(life.rights())
    life.guarded.revoke(source)
    with pytest.raises(NotAllowedError, match=f"may not ask where topic {life.changelog.topic} ends"):
        life.read()
    life.guarded.grant([("TOPIC", life.changelog.topic, "DESCRIBE")])
    with pytest.raises(NotAllowedError, match=f"may not read {life.changelog.topic}-0 at offset 0"):
        life.read()
    with pytest.raises(NotAllowedError) as raised:
        life.publish()
    assert f"Grant Read on source topic {life.changelog.topic} " in raised.value.action
    assert life.changelog.position() is None


@pytest.mark.parametrize("number", [2, 5, 6], ids=["write", "group", "transactional id"])
def test_a_right_that_is_taken_away_while_publishing_is_named(life: Life, number: int) -> None:
    """The transaction is aborted: nothing of it is seen, and no position moves."""
    life.guarded.grant(life.rights())
    life.begin()
    life.guarded.revoke(life.rights()[number])
    with pytest.raises(NotAllowedError, match="lacks a right"):
        life.publish()
    assert life.changelog.read() == []
    assert life.changelog.position() is None
