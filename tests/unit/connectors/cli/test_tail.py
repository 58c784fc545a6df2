from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError

from connectors.cli import tail
from connectors.errors import ConnectorError, UsageError
from tests.support.cli import invoke, own_logging, worker_file


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


@pytest.mark.parametrize(
    ("data", "shown"),
    [(None, None), (b"", ""), ("Zürich".encode(), "Zürich"), (b"\xff\x00", {"base64": "/wA="}), (b"a\nb", "a\nb")],
)
def test_bytes_are_shown_as_text_where_they_are_text(data: bytes | None, shown: object) -> None:
    """UTF-8 reads as text; anything else is an object with base64, so the two cannot be mixed up."""
    assert json.loads(msgspec.json.encode(tail.shown(data))) == shown


def test_a_line_has_the_fields_of_the_record() -> None:
    """Partition, offset, timestamp and its type, key, value and headers in their order."""
    message: Any = _Message(key=b"k", value=None, headers=[("h", b"\xff"), ("h", None), ("g", b"x")], timestamp=(2, 5))
    assert msgspec.json.encode(tail.line(message)) == (
        b'{"partition":2,"offset":7,"timestamp":5,"timestamp_type":"LogAppendTime","key":"k","value":null,'
        b'"headers":[["h",{"base64":"/w=="}],["h",null],["g","x"]]}'
    )


def test_max_ends_after_so_many_records(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Never a record more, however the polls bring them."""
    consumer: Any = _Consumer([_Message(), _Message()], [], [_Message(), _Message(), _Message()])
    tail.follow(consumer, 3)
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
    tail.follow(consumer, limit, "k")
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
        tail.follow(consumer, 1)
    assert consumer.polls == []


def test_a_topic_that_is_gone_ends_it() -> None:
    """A deleted topic is an error, not silence."""
    consumer: Any = _Consumer([_Message(error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))])
    with pytest.raises(ConnectorError, match="Topic t cannot be read any more"):
        tail.follow(consumer, None)


def test_no_broker_is_exit_code_4(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the deadline, with what to check; nothing on stdout."""
    monkeypatch.setattr(tail, "_TIMEOUT_S", 0.5)
    result = invoke("tail", "orders", "--worker", worker_file(tmp_path))
    assert (result.exit_code, result.stdout) == (4, "")
    assert "Connection refused" in result.stderr
    assert "next: Start the brokers, or correct bootstrap.servers." in result.stderr
