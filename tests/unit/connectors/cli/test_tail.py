from __future__ import annotations

import json
from collections import deque
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from structlog.testing import capture_logs

from compactor.errors import KeyfoldError
from connectors.cli.commands import tail as command
from connectors.errors import EXIT_FAILED, EXIT_UNREACHABLE, EXIT_USAGE, ConnectorError, UsageError, exit_code
from connectors.operations import tail
from tests.support.cli import invoke, own_logging, worker_file
from tests.support.clocks import ManualClock


class _Message:
    """What `tail` asks of a confluent_kafka.Message."""

    def __init__(self, **given: Any) -> None:
        self._given = {"error": None, "topic": "t", "partition": 2, "offset": 7, "timestamp": (1, 99), **given}

    def __getattr__(self, name: str) -> Any:
        return lambda: self._given.get(name)


class _Consumer:
    """Hands out prepared polls."""

    def __init__(self, *polls: list[_Message]) -> None:
        self.polls = list(polls)
        self.asked: list[int] = []

    def consume(self, count: int, timeout: float) -> list[_Message]:
        assert timeout > 0
        self.asked.append(count)
        return self.polls.pop(0)[:count]


def test_a_line_has_the_fields_of_the_record() -> None:
    """Partition, offset, timestamp and its type, key, value and headers in their order."""
    message: Any = _Message(key=b"k", value=None, headers=[("h", b"\xff"), ("h", None), ("g", b"x")], timestamp=(2, 5))
    assert msgspec.json.encode(command.line(message)) == (
        b'{"partition":2,"offset":7,"timestamp":5,"timestamp_type":"LogAppendTime","key":"k","value":null,'
        b'"headers":[["h",{"base64":"/w=="}],["h",null],["g","x"]]}'
    )
    raw = command.line(message, text=False)
    assert (
        msgspec.json.encode((raw.key, raw.value, raw.headers))
        == b'["aw==",null,[["h","/w=="],["h",null],["g","eA=="]]]'
    )


def test_max_ends_after_so_many_records(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Never a record more, however the polls bring them."""
    consumer: Any = _Consumer([_Message(), _Message()], [], [_Message(), _Message(), _Message()])
    command.write(tail.follow(consumer, 3))
    assert consumer.asked == [3, 1, 1]
    assert capfdbinary.readouterr().out.count(b"\n") == 3


@pytest.mark.parametrize("limit", [2, 3])
def test_only_records_with_the_key_are_shown_and_counted(capfdbinary: pytest.CaptureFixture[bytes], limit: int) -> None:
    """--key with --max: what has another key, or none, is passed over."""
    polls = (
        [_Message(key=b"a"), _Message(key=b"k", offset=1), _Message()],
        [_Message(key=b"k", offset=n) for n in (4, 5)],
    )
    consumer: Any = _Consumer(*polls)
    command.write(tail.follow(consumer, limit, "k"))
    assert [json.loads(one)["offset"] for one in capfdbinary.readouterr().out.splitlines()] == [1, 4, 5][:limit]


def test_a_partition_that_is_not_there_is_a_usage_error() -> None:
    """--partition P: only that one, and the error says how many there are."""
    assert tail.chosen("t", [0, 1, 2], None) == [0, 1, 2]
    assert tail.chosen("t", [0, 1, 2], 1) == [1]
    with pytest.raises(UsageError, match=r"Topic t has no partition 3.*It has 3, from 0"):
        tail.chosen("t", [0, 1, 2], 3)


def test_passing_trouble_does_not_end_it() -> None:
    """What librdkafka mends by itself is logged, and reading goes on."""
    passing = _Message(error=KafkaError(KafkaError._ALL_BROKERS_DOWN))
    consumer: Any = _Consumer([passing], [_Message()])
    with own_logging():
        deque(tail.follow(consumer, 1))
    assert consumer.polls == []


def test_a_topic_that_is_gone_ends_it() -> None:
    """A deleted topic is an error, not silence."""
    consumer: Any = _Consumer([_Message(error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))])
    with pytest.raises(ConnectorError, match="Topic t cannot be read any more"):
        deque(tail.follow(consumer, None))


@pytest.mark.parametrize(
    ("code", "exit_with"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, EXIT_USAGE),
        (KafkaError.TOPIC_EXCEPTION, EXIT_USAGE),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, EXIT_FAILED),
        (KafkaError.LEADER_NOT_AVAILABLE, EXIT_UNREACHABLE),
    ],
)
def test_what_a_broker_says_of_the_topic_has_its_exit_code(code: int, exit_with: int) -> None:
    """A name that is not there or is none is usage; what passes by itself is as if no broker had answered."""
    topics = {"t": SimpleNamespace(error=KafkaError(code), partitions={})}
    consumer: Any = SimpleNamespace(list_topics=lambda _topic, timeout: SimpleNamespace(topics=topics))
    with pytest.raises(KeyfoldError, match=r"Topic t\b") as caught:
        tail.partitions(consumer, "t")
    assert exit_code(caught.value) == exit_with


def test_a_stop_while_it_connects_is_no_error(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C and SIGTERM end it with 0 from its beginning on, not only once it reads."""
    monkeypatch.setattr(tail, "_consumer", Mock(side_effect=KeyboardInterrupt))
    result = invoke("tail", "orders", "--worker", worker_file(tmp_path))
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_brokers_that_are_away_are_named_twice_a_minute() -> None:
    """Where all are away, not for each of them; silence would look as if no records came."""
    clock = ManualClock()
    warnings, away = tail.BrokerWarnings(clock), KafkaError(KafkaError._ALL_BROKERS_DOWN)
    said = []
    for error, seconds in [(KafkaError(KafkaError._TRANSPORT), 0), (away, 0), (away, 29), (away, 1)]:
        clock.advance(seconds * 1000)
        with capture_logs() as logs:
            warnings(error)
        said.append(len(logs))
    assert said == [0, 1, 0, 1]


GONE, AWAY = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), KafkaException(KafkaError(KafkaError._TRANSPORT))


@pytest.mark.parametrize(
    ("answers", "ends"),
    [
        ([None, None, None], False),
        ([GONE, GONE], True),
        ([GONE, None, GONE], False),
        ([GONE, AWAY, GONE], True),
        ([AWAY, AWAY, AWAY], False),
    ],
)
def test_a_topic_that_two_looks_do_not_find_ends_it(answers: list[Any], ends: bool) -> None:
    """One broker may not know it yet; brokers that are away say nothing of it. It is looked at every ten seconds."""
    clock, left = ManualClock(), list(answers)

    def metadata(topic: str, timeout: float) -> Any:
        answer = left.pop(0)
        if isinstance(answer, KafkaException):
            raise answer
        return SimpleNamespace(topics={topic: SimpleNamespace(error=answer)})

    def look_on() -> None:
        watch = tail.TopicWatch(Mock(list_topics=metadata), "t", clock)
        for _ in range(10 * len(answers)):
            clock.advance(1000)
            watch.look()

    with pytest.raises(ConnectorError, match="Topic t was deleted") if ends else nullcontext():
        look_on()
    assert left == []


def test_what_is_followed_is_looked_at_after_each_poll() -> None:
    """What the look raises ends it."""
    consumer: Any = _Consumer([], [], [_Message()])
    look = Mock(side_effect=[None, ConnectorError("gone", "")])
    with pytest.raises(ConnectorError, match="gone"):
        deque(tail.follow(consumer, 1, None, look))
    assert len(consumer.polls) == 1


def test_no_broker_is_exit_code_4(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the deadline, with what to check; nothing on stdout."""
    monkeypatch.setattr(tail, "_TIMEOUT_S", 0.5)
    result = invoke("tail", "orders", "--worker", worker_file(tmp_path))
    assert (result.exit_code, result.stdout) == (4, "")
    assert "Connection refused" in result.stderr
    assert "next: Start the brokers, or correct bootstrap.servers." in result.stderr


class _Marks:
    """A consumer of partitions that have 5 offsets each."""

    def get_watermark_offsets(self, _partition: object, timeout: float) -> tuple[int, int]:
        assert timeout > 0
        return 2, 7


def test_offsets_of_all_partitions_are_counted() -> None:
    """What is there already is the sum; a broker that does not say it makes it unknown."""
    partitions = [TopicPartition("t", number) for number in (0, 1)]
    assert tail.count_offsets(_Marks(), partitions, ManualClock()) == 10  # type: ignore[arg-type]
    silent = Mock(get_watermark_offsets=Mock(side_effect=AWAY))
    assert tail.count_offsets(silent, partitions, ManualClock()) is None


@pytest.mark.parametrize(
    ("offsets", "is_whole", "said"),
    [
        (10, False, "From the end of t: what comes now. --from-beginning prints what is there (10 offsets)."),
        (1, False, "From the end of t: what comes now. --from-beginning prints what is there (1 offset)."),
        (None, False, "From the end of t: what comes now. --from-beginning prints what is there."),
        (10, True, "From the beginning of t (10 offsets), then what comes; without --from-beginning only what comes."),
        (0, False, "t is empty; waiting for its first record."),
        (0, True, "t is empty; waiting for its first record."),
    ],
)
def test_it_says_where_it_begins(offsets: int | None, is_whole: bool, said: str) -> None:
    """The sentence also says how to begin elsewhere."""
    assert command.beginning("t", offsets, is_whole=is_whole).startswith(said)


def test_silence_is_explained_once() -> None:
    """A second after the last record."""
    clock, told = ManualClock(), list[int]()
    silence = tail.Silence(clock, lambda: told.append(clock.at_ms))
    begin_ms = clock.at_ms
    clock.advance(900)
    silence.polled(1)
    clock.advance(900)
    silence.polled(0)
    assert told == []
    for _ in range(3):
        clock.advance(100)
        silence.polled(0)
    assert told == [begin_ms + 1_900]
