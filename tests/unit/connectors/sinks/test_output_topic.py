"""What an output topic's settings have to be, and how long a reader may stay away from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from compactor.model.record import TopicPartition
from connectors.config.connector import ConnectorConfig
from connectors.errors import OutputError, UnreachableError
from connectors.kafka.admin import Admin, TopicInfo
from connectors.sinks.output_topic import (
    FOREVER,
    HEADER_ROOM,
    WantedOutput,
    dead_letter_warning,
    ensure,
    ensure_dead_letters,
    faults,
    new_config,
    resume_safe_ms,
    warnings,
)

FIT = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
UNLIMITED = {"retention.ms": "-1", "retention.bytes": "-1"}


def connector(**named: Any) -> ConnectorConfig:
    settings = {"name": "c", "connector.class": "keyfold.CompactedTopic", "topics": "t"}
    return ConnectorConfig.model_validate(settings | named)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (FIT, []),
        (FIT | {"cleanup.policy": "delete"}, ["has to contain compact", "keys would expire"]),
        (FIT | {"cleanup.policy": "compact,delete"}, ["keys would expire"]),
        (FIT | {"message.timestamp.type": "LogAppendTime"}, ["has to be CreateTime"]),
    ],
)
def test_settings_that_break_a_promise_are_all_named(config: dict[str, str], words: list[str]) -> None:
    """Without compaction the output grows for ever, with retention live keys vanish, LogAppendTime loses times."""
    found = faults(connector(), config)
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))


def test_a_connectors_own_cleanup_policy_is_allowed() -> None:
    """An output that deletes is what a connector that deletes asks for."""
    deleting: Any = SimpleNamespace(cleanup_policy=frozenset(("compact", "delete")))
    assert faults(deleting, FIT | {"cleanup.policy": "compact,delete"}) == []


@pytest.mark.parametrize(
    ("config", "source", "words"),
    [
        ({"max.message.bytes": "1052684"}, {"max.message.bytes": "1048588"}, []),
        ({"max.message.bytes": "1048588"}, {"max.message.bytes": "1048588"}, ["may need 1052684"]),
        (
            {"max.message.bytes": "2000000", "message.timestamp.after.max.ms": "3600000"},
            {},
            ["message.timestamp.after.max.ms is 3600000"],
        ),
    ],
)
def test_settings_that_may_refuse_single_records_are_warned_of(
    config: dict[str, str], source: dict[str, str], words: list[str]
) -> None:
    """They are no fault: errors.tolerance decides about a refused record."""
    found = warnings(connector(), config, source)
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))


def test_a_new_output_is_fit() -> None:
    """What is made passes the check of what exists, and asks for no warning."""
    source = {"max.message.bytes": "5000000"}
    config = new_config(connector(), source)
    assert faults(connector(), config) == []
    assert warnings(connector(), config, source) == []
    assert config["max.message.bytes"] == str(5_000_000 + HEADER_ROOM)
    assert config["message.timestamp.before.max.ms"] == str(FOREVER)
    assert "retention.ms" not in config
    assert "min.compaction.lag.ms" not in config


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"cleanup.policy": "compact", "delete.retention.ms": "5000", "retention.ms": "1000"}, 5000),
        ({"cleanup.policy": "compact", "delete.retention.ms": "5000", "retention.bytes": "1000"}, 5000),
        ({"cleanup.policy": "compact,delete", "delete.retention.ms": "5000", "retention.ms": "1000"}, 0),
        ({"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "1000"}, 0),
        ({"cleanup.policy": "compact,delete", "delete.retention.ms": "5000", **UNLIMITED}, 5000),
        ({"cleanup.policy": "delete", "retention.ms": "1000", "retention.bytes": "-1"}, 0),
        ({"cleanup.policy": "delete", **UNLIMITED}, None),
        ({"cleanup.policy": "delete"}, 0),
    ],
)
def test_resuming_is_safe_while_tombstones_stay_and_never_where_retention_takes(
    config: dict[str, str], expected: int | None
) -> None:
    """Tombstones go after delete.retention.ms; what retention takes it may take at once."""
    assert resume_safe_ms(config) == expected


BY_AGE = {"message.timestamp.type": "CreateTime", "cleanup.policy": "delete", "retention.ms": "604800000"}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, True),
        ({"cleanup.policy": "compact,delete"}, True),
        ({"message.timestamp.type": "LogAppendTime"}, False),
        ({"retention.ms": "-1"}, False),
        ({"cleanup.policy": "compact"}, False),
    ],
)
def test_dead_letters_that_may_go_at_once_are_told_of(changes: dict[str, str], told: bool) -> None:
    """Where a topic deletes by age and goes by the time that a record brings along, an old record is gone at once."""
    text = dead_letter_warning(BY_AGE | changes)
    assert (text is not None) == told
    assert text is None or ("retention.ms is 604800000" in text and "message.timestamp.type=LogAppendTime" in text)


def test_an_output_that_keeps_what_expires_in_the_log_is_named() -> None:
    """With compact,delete in the connector and compact alone on an existing output, records stay there for ever."""
    config = FIT | {"message.timestamp.before.max.ms": str(FOREVER), "message.timestamp.after.max.ms": str(FOREVER)}
    largest = {"max.message.bytes": str(1_048_588 + HEADER_ROOM)}
    (found,) = warnings(connector(**{"cleanup.policy": "compact,delete"}), config | largest, {})
    assert "what expires in the log stays there" in found


class LaggingAdmin(Admin):
    """A mock of brokers of which one learns of new topics later than the others: a real one lags when it likes."""

    def __init__(self, lags: int) -> None:
        self.made: dict[str, int] = {}
        self.requests: list[int] = []
        self._lags = lags

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, f"id-{name}", self.made[name]) for name in topics if name in self.made}

    def create_topics(self, topics: Sequence[NewTopic]) -> set[str]:
        self.requests.append(len(topics))
        self.made |= {one.topic: one.num_partitions for one in topics}
        return {one.topic for one in topics}

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        asked = set(names)
        if asked & self.made.keys() and self._lags:
            self._lags -= 1
            raise UnreachableError("127.0.0.1 does not know the topic at the moment.", "It is asked for again.")
        return {name: {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"} for name in asked}


def test_a_broker_that_does_not_know_a_new_topic_yet_is_asked_again() -> None:
    """A start would fail, and by chance each start after it, where one of a thousand topics is new to a broker."""
    admin = LaggingAdmin(lags=2)
    wanted = [WantedOutput(f"s{number}", f"o{number}", 3) for number in range(120)]
    found = ensure(admin, connector(), wanted)
    assert found == {f"o{number}": f"id-o{number}" for number in range(120)}
    assert admin.requests == [50, 50, 20]
    assert set(admin.made.values()) == {3}
    later = LaggingAdmin(lags=1)
    later.made = admin.made
    with pytest.raises(UnreachableError):  # of one that was there it counts at once
        ensure(later, connector(), wanted[:1])


class StandingAdmin(Admin):
    """A mock of brokers that have these topics, and a record in each of those of `used`."""

    def __init__(self, *topics: TopicInfo, used: Iterable[str] = (), policy: str = "compact") -> None:
        self.topics = {info.name: info for info in topics}
        self.changed: list[str] = []
        self._used = set(used)
        self._policy = policy

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        return {name: self.topics[name] for name in topics if name in self.topics}

    def create_topics(self, topics: Sequence[NewTopic]) -> set[str]:
        self.changed += [one.topic for one in topics]
        return {one.topic for one in topics}

    def grow(self, topic: str, partitions: int) -> None:
        self.changed.append(topic)
        self.topics[topic] = TopicInfo(topic, self.topics[topic].id, partitions)

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        return {name: FIT | {"cleanup.policy": self._policy} for name in names}

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: int(tp.topic in self._used) for tp in partitions}


@pytest.mark.parametrize(
    "there", [[], [TopicInfo("__consumer_offsets", "1", 50, internal=True)], [TopicInfo("o", "1", 1, internal=True)]]
)
def test_internal_topics_are_neither_made_nor_grown_nor_taken(there: list[TopicInfo]) -> None:
    """By their names, or because the brokers say so: a router may give any name once the connector runs."""
    name = there[0].name if there else "__transaction_state"
    admin = StandingAdmin(*there)
    with pytest.raises(OutputError, match=f"{name} is an internal topic"):
        ensure(admin, connector(), [WantedOutput("a", "fine", 3), WantedOutput("s", name, 60)])
    letters: Any = SimpleNamespace(name="c", dead_letter_topic=name, dead_letter_replication_factor=1)
    with pytest.raises(OutputError, match=f"{name} is an internal topic"):
        ensure_dead_letters(admin, letters)
    assert admin.changed == []


@pytest.mark.parametrize(
    ("known", "used", "grows"), [("id-o", True, True), (None, False, True), (None, True, False), ("older", True, False)]
)
def test_a_topic_grows_only_if_it_is_the_connectors_or_empty(known: str | None, used: bool, grows: bool) -> None:
    """In one of somebody else's, keys would go to other partitions than before."""
    admin = StandingAdmin(TopicInfo("o", "id-o", 2), used=["o"] * used)
    wanted = [WantedOutput("s", "o", 3, known)]
    if grows:
        assert ensure(admin, connector(), wanted) == {"o": "id-o"}
    else:
        with pytest.raises(OutputError, match="output topic o has 2 partitions, its source s has 3"):
            ensure(admin, connector(), wanted)
    assert admin.changed == ["o"] * grows


def test_an_unfit_topic_is_not_grown() -> None:
    """It is refused before anything is changed."""
    admin = StandingAdmin(TopicInfo("o", "id-o", 2), policy="delete")
    with pytest.raises(OutputError, match="has to contain compact"):
        ensure(admin, connector(), [WantedOutput("s", "o", 3), WantedOutput("s", "new", 3)])
    assert admin.changed == []
