"""A topic that one broker does not know at one moment is not a deleted one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from compactor.actions import CloseTopic
from compactor.state import State, Topic
from compactor.testing import MemoryStorage
from connectors.config.connector import ConnectorConfig
from connectors.errors import NotAllowedError, OutputError, SourceMissingError, UnreachableError
from connectors.gateway import DELETED, KafkaGateway
from connectors.kafka import gone
from connectors.kafka.admin import TopicInfo
from connectors.kafka.settings import ClientSettings
from tests.support.clocks import Clock

STATE = State(
    catalog_id="x",
    connector="c",
    topics={"t": Topic(topic="t", topic_id="id-t", output="t.compacted", output_id="id-o")},
)
THERE = {"t": TopicInfo("t", "id-t", 0), "t.compacted": TopicInfo("t.compacted", "id-o", 0)}
FIT = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime", "max.message.bytes": "2000000"}


class Brokers:
    """An Admin whose brokers do not know the topics of `late` until they were asked so many times for them."""

    def __init__(self, late: Mapping[str, float]) -> None:
        self.late = dict(late)
        self.config = dict(FIT)

    def describe(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        found = {name: THERE[name] for name in names if name in THERE and self.late.get(name, 0) <= 0}
        for name in names:
            self.late[name] = self.late.get(name, 0) - 1
        return found

    def list_topics(self) -> list[str]:
        return sorted(name for name in THERE if self.late.get(name, 0) <= 0)

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        return dict.fromkeys(names, self.config)


@pytest.fixture(autouse=True)
def _no_time_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(gone.described, "__kwdefaults__", {"clock": clock, "sleep": clock.sleep})


def gateway(late: Mapping[str, float], /, config: Mapping[str, str] | None = None, **named: Any) -> KafkaGateway:
    settings = {"name": "c", "connector.class": "keyfold.CompactedTopic"}
    connector = ConnectorConfig.model_validate({**settings, **(named or {"topics": "t"})})
    admin: Any = Brokers(late)
    admin.config |= config or {}
    return KafkaGateway(connector, ClientSettings({}, {}, {}), admin, MemoryStorage())


DEAD = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "t.dead"}
THEIR_TIMES = {"cleanup.policy": "delete", "message.timestamp.type": "CreateTime", "retention.ms": "1000"}


class DeadLetters(Brokers):
    """There is a dead letter topic, whose settings only `allowed` principals may read."""

    def __init__(self, *, allowed: bool) -> None:
        super().__init__({})
        self.allowed = allowed

    def describe(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        wanted = list(names)
        found = {"t.dead": TopicInfo("t.dead", "id-d", 1)} if "t.dead" in wanted else {}
        return found | super().describe(wanted)

    def topic_config(self, name: str) -> dict[str, str]:
        if not self.allowed:
            raise NotAllowedError("no")
        return THEIR_TIMES


@pytest.mark.parametrize(("allowed", "told"), [(True, 1), (False, 0)])
def test_dead_letters_that_may_expire_at_once_are_told_of_once(allowed: bool, told: int) -> None:
    """A topic that was there is left as it is; a principal that may not read its settings needs no right for that."""
    asking, brokers = gateway({}, None, **{"topics": "t", **DEAD}), DeadLetters(allowed=allowed)
    asking._admin = brokers  # type: ignore[assignment]
    with capture_logs() as lines:
        assert [asking.discover(STATE), asking.discover(STATE)] == [(), ()]
    assert [line["topic"] for line in lines if "dead letters" in line["event"]] == ["t.dead"] * told


@pytest.mark.parametrize("late", ["t", "t.compacted"])
@pytest.mark.parametrize("named", [{"topics": "t"}, {"topics.regex": "t"}], ids=["by name", "by pattern"])
def test_what_is_unknown_for_a_moment_is_not_deleted(late: str, named: dict[str, str]) -> None:
    """A source stays open and an output is no error where any broker knows them within ten seconds."""
    assert gateway({late: 15}, None, **named).discover(STATE) == ()


class Settling(Brokers):
    """Does not answer the first questions about settings."""

    def __init__(self, silent: int) -> None:
        super().__init__({})
        self.silent = silent

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        self.silent -= 1
        if self.silent >= 0:
            raise UnreachableError("away")
        return super().topic_configs(names)


def test_questions_are_asked_again_as_the_connector_says() -> None:
    """errors.retry.timeout: not in a take-over, and not for longer than it says; a stop ends it."""
    for timeout, armed, stopped, answered in (
        ("60000", True, False, True),
        ("0", True, False, False),
        ("60000", False, False, False),
        ("60000", True, True, False),
    ):
        retry = {"errors.retry.timeout": timeout, "errors.retry.delay.max.ms": "1"}
        found = gateway({}, None, topics="t", **retry)
        admin: Any = Settling(2)
        found._admin = admin
        if armed:
            found.retry_until(lambda stopped=stopped: stopped)  # type: ignore[misc]
        if answered:
            assert found.discover(STATE) == ()
        else:
            with pytest.raises(UnreachableError):
                found.discover(STATE)


def test_a_source_that_stays_unknown_is_closed() -> None:
    """After ten seconds in which nobody has known it."""
    assert gateway({"t": 1000}).discover(STATE) == (CloseTopic(topic="t", reason=DELETED),)


def test_an_output_that_stays_unknown_was_deleted() -> None:
    """Only the look at all topics, step T3, decides that."""
    with pytest.raises(OutputError, match="was deleted"):
        gateway({"t.compacted": 1000}).discover(STATE)


def test_what_was_never_there_is_not_waited_for() -> None:
    """A topic that the catalog does not know is missing at once: the connector is started again until it is there."""
    admin: Any = Brokers({})
    with pytest.raises(SourceMissingError):
        gateway({"u": 0}, topics="t,u").discover(STATE)
    closed = replace(STATE, topics={"t": replace(STATE.topics["t"], closed=DELETED)})
    assert gateway({"t": 1000}).discover(closed) == ()
    clock = Clock()
    assert gone.described(admin.describe, ["absent"], known=[], clock=clock, sleep=clock.sleep) == {}
    assert clock.now == 0


@pytest.mark.parametrize(
    ("altered", "text"),
    [
        ({"message.timestamp.type": "LogAppendTime"}, "message.timestamp.type is LogAppendTime"),
        ({"cleanup.policy": "compact,delete", "retention.ms": "1000"}, "keys would expire"),
        ({"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}, "has to contain compact"),
    ],
)
def test_an_output_that_was_altered_is_found_at_each_look(altered: dict[str, str], text: str) -> None:
    """Settings that break a promise now make the connector FAILED, however the topic was made."""
    with pytest.raises(OutputError, match=text) as raised:
        gateway({}, altered).discover(STATE)
    assert "t.compacted" in raised.value.message
    assert "--alter" in raised.value.action


@pytest.mark.parametrize(
    "altered",
    [
        {"max.message.bytes": "1000", "min.insync.replicas": "2", "compression.type": "zstd", "segment.ms": "1"},
        {"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "-1"},
    ],
)
def test_what_breaks_no_promise_is_left_to_its_owner(altered: dict[str, str]) -> None:
    """What only may refuse single records is a warning, and a topic that may delete but keeps all is none."""
    assert gateway({}, altered).discover(STATE) == ()
