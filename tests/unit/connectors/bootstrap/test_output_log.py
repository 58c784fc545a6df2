from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from msgspec.structs import replace

from connectors.bootstrap.output_log import Clients, Connections, OutputLog
from connectors.bootstrap.position import ReaderPosition
from connectors.errors import NotAllowedError, ResumeError, UnreachableError
from connectors.kafka.admin import Admin, TopicInfo
from tests.support.clocks import ManualClock

POSITION = ReaderPosition(
    snapshot="s", topic="t", output_topic="o", output_topic_id="O", offsets={"0": 0}, source_offsets={}
)
# A leader has moved: brokers that do not know of it yet say so.
MOVED = Message(topic="o", partition=0, offset=-1001, error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
CUT_OFF = Message(topic="o", partition=0, offset=2, error=KafkaError(KafkaError._AUTO_OFFSET_RESET))
REFUSED = Message(topic="o", partition=0, offset=-1001, error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))


class _Kafka:
    """The consumer and the admin client: `taken` is what each `consume` gives or raises."""

    def __init__(self) -> None:
        self.taken: list[list[Message] | BaseException] = []
        self.away: UnreachableError | None = None
        self.looks = 0

    def consume(self, _most: int, _timeout_s: float) -> list[Message]:
        taken = self.taken.pop(0) if self.taken else []
        if isinstance(taken, BaseException):
            raise taken
        return taken

    def offsets_for_times(self, places: list[TopicPartition], _timeout_s: float) -> list[TopicPartition]:
        return [TopicPartition(place.topic, place.partition, 9) for place in places]

    def position(self, places: list[TopicPartition]) -> list[TopicPartition]:
        if self.away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return places

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        self.looks += 1
        if self.away:
            raise self.away
        return {name: TopicInfo(name, "O", 1) for name in topics}

    def topic_config(self, _name: str) -> dict[str, str]:
        return {}

    def incremental_assign(self, _places: list[TopicPartition]) -> None: ...

    def close(self) -> None: ...


def _log_of(kafka: _Kafka, position: ReaderPosition = POSITION, clock: ManualClock | None = None) -> OutputLog:
    connections = Connections(cast("Consumer", kafka), cast("Admin", kafka))
    return OutputLog(Clients({}, {}), position, clock or ManualClock(), lambda _: connections)


def _record(offset: int) -> Message:
    return Message(topic="o", partition=0, offset=offset, key=b"k", value=b"v", timestamp=(1, 1))


def _offsets(messages: Iterable[Message]) -> list[int | None]:
    return [message.offset() for message in messages]


def test_an_outage_takes_no_record_away() -> None:
    """What came before a leader moved is handed out, though nobody answers then; the next poll looks at the topic."""
    kafka = _Kafka()
    log = _log_of(kafka)
    kafka.taken = [[_record(0)], []]
    assert _offsets(log.poll(0)) == [0]
    looks, kafka.away = kafka.looks, UnreachableError("Away.")
    kafka.taken = [[_record(1)], [_record(2), MOVED], [_record(3)], []]
    assert _offsets(log.poll(0)) == [1, 2]
    assert kafka.looks == looks
    assert _offsets(log.poll(0)) == [3]
    assert kafka.looks == looks + 1


def test_an_offset_that_is_gone_ends_the_reading_in_an_outage_too() -> None:
    """The topic cannot be looked at then, which changes nothing."""
    kafka = _Kafka()
    log = _log_of(kafka)
    assert log.poll(0) == []
    kafka.away, kafka.taken = UnreachableError("Away."), [[CUT_OFF]]
    with pytest.raises(ResumeError, match="o-0 has no offset 2 any more"):
        log.poll(0)


def test_a_position_is_read_from_until_its_time_is_over() -> None:
    """At the start, and while nothing tells that all was read: both times are named, and how to begin again."""
    clock, position = ManualClock(1_000), replace(POSITION, safe_until_ms=2_000)
    log = _log_of(_Kafka(), position, clock)
    clock.advance(1_000)
    assert log.poll(0) == []
    clock.advance(1)
    for late in (lambda: log.poll(0), lambda: _log_of(_Kafka(), position, clock)):
        with pytest.raises(ResumeError, match=r"until 1970-01-01T00:00:02\.000Z.*have forgotten deletions") as caught:
            late()
        assert "open_table" in caught.value.action
        assert "keyfold snapshot CONNECTOR.json" in caught.value.action


@pytest.mark.parametrize(
    ("after", "raised"),
    [
        pytest.param([REFUSED], NotAllowedError, id="refused"),
        pytest.param(KeyboardInterrupt(), KeyboardInterrupt, id="Ctrl-C"),
    ],
)
def test_a_poll_that_failed_with_records_is_not_jumped_over(
    after: list[Message] | BaseException, raised: type[BaseException]
) -> None:
    """The records that it had taken do not come again; the error says how to go on."""
    kafka = _Kafka()
    log = _log_of(kafka)
    kafka.taken = [[_record(0)], after, [_record(1)], []]
    with pytest.raises(raised):
        log.poll(0)
    for _ in range(2):
        with pytest.raises(ResumeError, match="an earlier poll failed") as caught:
            log.poll(0)
        assert "position that was stored last (resume)" in str(caught.value.action)
