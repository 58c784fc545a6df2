"""A topic that one broker does not know at one moment is not a deleted one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from compactor.errors import NotVisibleError
from compactor.model.actions import CloseTopic, ReopenTopic
from compactor.model.log import OutputPoint, empty
from compactor.model.record import RangeRead, TopicPartition
from compactor.model.state import CatalogState, Topic, rejection_of
from connectors.config.connector import ConnectorConfig
from connectors.errors import (
    DataLossError,
    NotAllowedError,
    OutputError,
    SourceChangedError,
    SourceClosedError,
    SourceMissingError,
    UnreachableError,
)
from connectors.kafka.admin import TopicInfo, described
from connectors.kafka.client_settings import ClientSettings
from connectors.runtime.kafka_broker import SETTINGS_AT_ONCE, KafkaBroker
from connectors.source import source_errors
from connectors.source.source_errors import DELETED, UNNAMED
from tests.support.clocks import ManualClock
from tests.support.memory.storage import MemoryStorage

STATE = CatalogState(
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
        self.there = dict(THERE)
        self.bounds: dict[str, tuple[int, int]] = {}

    def describe(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        names = list(names)
        found = {name: self.there[name] for name in names if name in self.there and self.late.get(name, 0) <= 0}
        for name in names:
            self.late[name] = self.late.get(name, 0) - 1
        return found

    def list_topics(self) -> list[str]:
        return sorted(name for name in self.there if self.late.get(name, 0) <= 0)

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        return dict.fromkeys(names, self.config)

    def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.bounds.get(tp.topic, (0, 10))[0] for tp in partitions}

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.bounds.get(tp.topic, (0, 10))[1] for tp in partitions}


class Gateway(KafkaBroker):
    """What the engine asks for one connector, with the `brokers` that it asks."""

    def __init__(
        self, connector: ConnectorConfig, brokers: Any, others: Callable[[], Iterable[ConnectorConfig]] = tuple
    ) -> None:
        super().__init__(connector, ClientSettings({}, {}, {}), brokers, MemoryStorage(), visible_ms=0, others=others)
        self.brokers = brokers


@pytest.fixture(autouse=True)
def _no_time_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(0)
    monkeypatch.setattr(described, "__kwdefaults__", {"clock": clock})


def gateway(
    late: Mapping[str, float], /, config: Mapping[str, str] | None = None, brokers: Any = None, **named: Any
) -> Gateway:
    settings = {"name": "c", "connector.class": "keyfold.CompactedTopic"}
    connector = ConnectorConfig.model_validate({**settings, **(named or {"topics": "t"})})
    asked: Any = Brokers(late) if brokers is None else brokers
    asked.config |= config or {}
    return Gateway(connector, asked)


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
    asking = gateway({}, None, DeadLetters(allowed=allowed), **{"topics": "t", **DEAD})
    with capture_logs() as lines:
        assert [asking.discover(STATE), asking.discover(STATE)] == [(), ()]
    assert [line["topic"] for line in lines if "dead letters" in line["event"]] == ["t.dead"] * told


def test_a_topic_that_would_make_a_loop_is_not_taken_up() -> None:
    """Another connector of the worker reads the output, and writes what this one would read; known topics stay."""
    settings = {"connector.class": "CompactedTopic", "topics.regex": "[a-z]+(-[a-z]+-a)*"}
    own = ConnectorConfig.model_validate({**settings, "name": "c", "output.topic": "${topic}-b"})
    back = {**settings, "topics.regex": "[a-z]+(-[a-z]+-a)*-b", "output.topic": "${topic}-a"}
    other = ConnectorConfig.model_validate({**back, "name": "d"})
    brokers = Brokers({})
    brokers.there["u"] = TopicInfo("u", "id-u", 1)
    read = RangeRead(tp=TopicPartition("u", 0), topic_id="id-u", lo=0, hi=1, start=0, records=1)
    with pytest.raises(OutputError, match="comes back to it by connector d"):
        Gateway(own, brokers, lambda: [own, other]).admit(STATE, [read])


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
        found = gateway({}, None, Settling(2), topics="t", **retry)
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
    clock = ManualClock(0)
    assert described(admin.describe, ["absent"], known=[], clock=clock) == {}
    assert clock.at_ms == 0


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


def test_of_many_outputs_some_are_looked_at_each_time_in_turn() -> None:
    """All of them at the take-over; later no output is left out, however many there are, and one that is new is in."""
    made = gateway({})
    asked: list[list[str]] = []

    def topic_configs(names: Iterable[str]) -> dict[str, dict[str, str]]:
        asked.append(list(names))
        return dict.fromkeys(asked[-1], FIT)

    made.brokers.topic_configs = topic_configs
    outputs = {f"{number}.compacted": Topic(topic=str(number), topic_id="i", output=None, output_id=None)
               for number in range(2 * SETTINGS_AT_ONCE + 10)}  # fmt: skip
    made._check_settings(outputs)
    assert set(asked.pop()) >= set(outputs)
    for _ in range(3):
        made._check_settings(outputs)
    assert [len(names) for names in asked] == [SETTINGS_AT_ONCE] * 3
    assert set().union(*asked) == set(outputs)
    outputs["new"] = Topic(topic="source", topic_id="i", output=None, output_id=None)
    made._check_settings(outputs)
    assert {"new", "source"} <= set(asked[-1])


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


BOTH = {"topics.regex": "[tu]"}
OTHER = {"u": TopicInfo("u", "id-u", 1), "u.compacted": TopicInfo("u.compacted", "id-p", 1)}


def two(**closed: str) -> CatalogState:
    """The catalog of topics t and u, read up to 5; `closed` says why one of them is not read."""
    topics = {**STATE.topics, "u": Topic(topic="u", topic_id="id-u", output="u.compacted", output_id="id-p")}
    topics = {name: replace(topic, closed=closed.get(name)) for name, topic in topics.items()}
    logs = tuple(replace(empty(TopicPartition(name, 0), 0, 0, 0), end=5) for name in ("t", "u"))
    return replace(STATE, topics=topics, logs=logs)


def beside(t: TopicInfo | None, bounds: tuple[int, int] = (0, 10), named: Mapping[str, str] = BOTH) -> Gateway:
    """The gateway of a connector of both topics, where `u` is sound and the brokers have `t` so."""
    made = gateway({}, None, **{**BOTH, **named})
    admin = made.brokers
    admin.there |= {**OTHER, "t": t} if t else OTHER
    admin.bounds = {"t": bounds}
    if t is None:
        del admin.there["t"]
    return made


SAME, ANEW = TopicInfo("t", "id-t", 1), TopicInfo("t", "id-2", 1)


def test_a_recreated_topic_among_others_is_set_aside_alone() -> None:
    """It is closed, with the reason, and stays so; deleted at last, it is that. Alone it is the connector's error."""
    assert beside(ANEW).discover(two()) == (CloseTopic(topic="t", reason=source_errors.RECREATED),)
    assert beside(ANEW).discover(two(t=DELETED)) == (CloseTopic(topic="t", reason=source_errors.RECREATED),)
    assert beside(ANEW).discover(two(t=source_errors.RECREATED)) == ()
    assert beside(None).discover(two(t=source_errors.RECREATED)) == (CloseTopic(topic="t", reason=DELETED),)
    assert beside(ANEW).look_into(two()) == (CloseTopic(topic="t", reason=source_errors.RECREATED),)
    with pytest.raises(SourceChangedError, match="was recreated"):
        beside(ANEW, named={"topics.regex": "t"}).discover(two(u=UNNAMED))


@pytest.mark.parametrize(
    ("bounds", "loss", "kind"),
    [
        ((0, 5), "fail", None),
        ((5, 9), "fail", None),
        ((0, 4), "fail", source_errors.TRUNCATED),
        ((0, 4), "skip", source_errors.TRUNCATED),
        ((6, 9), "fail", source_errors.LOST),
        ((6, 9), "skip", None),
    ],
)
def test_a_log_that_does_not_go_on_sets_its_topic_aside(bounds: tuple[int, int], loss: str, kind: str | None) -> None:
    """At a take-over, by what the brokers say of its ends; where no other topic is left, the connector is FAILED."""
    expected = (CloseTopic(topic="t", reason=kind),) if kind else ()
    assert beside(SAME, bounds, {"on.data.loss": loss}).look_into(two()) == expected
    if kind:
        with pytest.raises((SourceChangedError, DataLossError)):
            beside(SAME, bounds, {"on.data.loss": loss, "topics.regex": "t"}).look_into(two())


def test_what_was_set_aside_is_not_read_on_when_it_looks_sound_again() -> None:
    """A log that was cut and has grown again lacks records that nobody can tell; lost ones may be let go."""
    for kind in (source_errors.TRUNCATED, source_errors.LOST):
        assert beside(SAME).discover(two(t=kind)) == ()
        assert beside(SAME).look_into(two(t=kind)) == ()
    skipping = {"on.data.loss": "skip"}
    assert beside(SAME, named=skipping).discover(two(t=source_errors.TRUNCATED)) == ()
    assert beside(SAME, named=skipping).discover(two(t=source_errors.LOST)) == (ReopenTopic(topic="t"),)
    assert beside(SAME).discover(two(t=DELETED)) == (ReopenTopic(topic="t"),)


def test_a_topic_with_a_bad_record_stays_aside_until_the_next_start() -> None:
    """A look at the topics opens it no more than it closes it; recreated, deleted or unnamed, it is that."""
    aside = two(t=rejection_of("the record at topic t, partition 0, offset 5 cannot be folded: null key."))
    with capture_logs() as logs:
        assert beside(SAME).discover(aside) == ()
        assert beside(SAME).look_into(aside) == ()
    assert [line for line in logs if "set aside" in line["event"]] == []
    assert beside(ANEW).discover(aside) == (CloseTopic(topic="t", reason=source_errors.RECREATED),)
    assert beside(None).discover(aside) == (CloseTopic(topic="t", reason=DELETED),)
    with pytest.raises(
        SourceClosedError, match=r"t \(record rejected: one of its records is bad.*offset 5.*null key\)"
    ):
        beside(SAME, named={"topics.regex": "t"}).discover(replace(aside, topics={"t": aside.topics["t"]}))


def test_a_topic_that_was_cut_is_not_read_on_after_nobody_knew_it() -> None:
    """It is deleted then, and neither read nor reopened if it is back all the same."""
    deleted = beside(None).discover(two(t=source_errors.TRUNCATED))
    assert deleted == (CloseTopic(topic="t", reason=source_errors.CUT_DELETED),)
    gone_since = two(t=source_errors.CUT_DELETED)
    assert beside(None).discover(gone_since) == ()
    assert source_errors.left_out(gone_since) == {"t"}
    assert not source_errors.is_faulty(gone_since.topics["t"])
    assert beside(SAME).discover(gone_since) == (CloseTopic(topic="t", reason=source_errors.TRUNCATED),)
    assert beside(SAME).look_into(gone_since) == (CloseTopic(topic="t", reason=source_errors.TRUNCATED),)


def test_a_sound_topic_that_is_unknown_for_a_moment_fails_nobody_beside_one_that_is_set_aside() -> None:
    """The rest of step T3 waits as its beginning does before it takes the one that is set aside for the only one."""
    made = beside(ANEW)
    admin = made.brokers
    admin.late = {"u": 3}
    assert made.look_into(two(t=source_errors.RECREATED)) == ()
    admin.late = {"u": 1000}
    with pytest.raises(SourceChangedError):
        made.look_into(two(t=source_errors.RECREATED))


def test_brokers_that_do_not_tell_the_ends_set_nothing_aside() -> None:
    """Reading finds it out: a take-over does not wait for a partition without a leader."""
    made = beside(SAME, (0, 4))
    admin = made.brokers
    admin.ends = Mock(side_effect=UnreachableError("away"))
    assert made.look_into(two()) == ()


def test_a_partition_of_another_topic_is_not_taken_in() -> None:
    """What a batch brings of a name that has passed to another topic is left out: the batch is then refused."""
    read = RangeRead(tp=TopicPartition("t", 1), topic_id="id-t", lo=0, hi=3, start=0, records=3)
    assert beside(replace(ANEW, partitions=2)).admit(two(), [read]) == ()


def published_and(visible: int, *, letters: int = 0, **config: str) -> Gateway:
    """The gateway of topics t and u, whose outputs are published up to 12 and visible up to `visible` and 12."""
    made = beside(SAME, named={**BOTH, **config})
    admin = made.brokers
    admin.bounds |= {"t.compacted": (0, visible), "u.compacted": (0, 12), "t.dead": (0, letters)}
    admin.there |= {"t.dead": TopicInfo("t.dead", "id-d", 1)}
    admin.high_watermarks = lambda places: dict.fromkeys(places, 7)
    return made


@pytest.mark.parametrize(
    ("visible", "letters", "waits_for_letters", "said"),
    [
        pytest.param(12, 7, True, None, id="all is visible"),
        pytest.param(11, 7, True, "t.compacted-0 is visible up to offset 11, published up to 12", id="an output"),
        pytest.param(12, 6, True, "t.dead-0 is visible up to offset 6, published up to 7", id="letters"),
        pytest.param(12, 6, False, None, id="letters of others"),
    ],
)
def test_what_readers_do_not_see_is_named(
    visible: int, letters: int, waits_for_letters: bool, said: str | None
) -> None:
    """By the output or dead letter topic, with how far it is visible; only the topics concerned wait."""
    made = published_and(visible, letters=letters, **DEAD)
    state = two()
    state = replace(state, logs=tuple(replace(log, output=OutputPoint(5, 12)) for log in state.logs))
    assert list(made.hidden(state, {"t", "u"})) == (["t"] if visible < 12 else [])
    if said is None:
        made.check_visible(state, letters=waits_for_letters)
    else:
        with pytest.raises(NotVisibleError, match=f"Connector c: .*{said}"):
            made.check_visible(state, letters=waits_for_letters)
        made.retry_until(lambda: True)
        made.check_visible(state, letters=waits_for_letters)  # a worker that is to end says nothing of it
