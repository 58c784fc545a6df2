"""The ends of output partitions: whose leader has only just been chosen, and who is asked for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from compactor.model import record
from connectors.sinks import output_reader


class Answers:
    """A consumer whose questions for the ends are answered with these, one after the other."""

    def __init__(self, answers: Iterator[tuple[int, int] | int]) -> None:
        self._answers = answers

    def get_watermark_offsets(self, _target: TopicPartition, _timeout_s: float) -> tuple[int, int]:
        answer = next(self._answers)
        if isinstance(answer, int):
            raise KafkaException(KafkaError(answer))
        return answer

    def close(self) -> None:
        pass


def reader(
    monkeypatch: pytest.MonkeyPatch, *answers: tuple[int, int] | int, settled_s: float = output_reader.SETTLED_S
) -> output_reader.OutputPartitionReader:
    """One that is answered so."""
    consumed_by(monkeypatch, Answers(iter(answers)))
    return output_reader.OutputPartitionReader({}, TopicPartition("o", 0), settled_s)


def consumed_by(monkeypatch: pytest.MonkeyPatch, consumer: Answers) -> None:
    """Has readers use this consumer."""
    monkeypatch.setattr(output_reader, "Consumer", lambda _config: consumer)


def test_a_leader_that_does_not_know_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Right after a topic was made its leader may say that it is none: that is no failure of the connector."""
    settling = KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE
    assert reader(monkeypatch, *settling, (3, 7)).bounds() == (3, 7)


def test_other_errors_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waiting does not mend, and what has lasted too long."""
    with pytest.raises(KafkaException):
        reader(monkeypatch, KafkaError.TOPIC_AUTHORIZATION_FAILED, (3, 7)).bounds()
    with pytest.raises(KafkaException):
        reader(monkeypatch, KafkaError.NOT_LEADER_FOR_PARTITION, (3, 7), settled_s=0.0).bounds()


class EndedError(Exception):
    """Ends a reading."""


class Silent(Answers):
    """A consumer of brokers that send nothing; it has waited for these times (s)."""

    def __init__(self) -> None:
        super().__init__(iter(()))
        self.waited: list[float] = []

    def get_watermark_offsets(self, _target: TopicPartition, timeout_s: float) -> tuple[int, int]:
        self.waited.append(timeout_s)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def assign(self, _at: list[TopicPartition]) -> None:
        pass

    def position(self, _of: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition("o", 0, -1001)]

    def consume(self, _most: int, _timeout_s: float) -> list[object]:
        self.waited.append(0)
        return []


def test_a_silent_broker_is_waited_for_as_long_as_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is waited for sets it, and ends a reading between two polls."""
    silent = Silent()
    consumed_by(monkeypatch, silent)

    def left_s() -> float:
        if len(silent.waited) >= 3:
            raise EndedError
        return 1.5

    short = output_reader.OutputPartitionReader({}, TopicPartition("o", 0), 0.0, left_s)
    with pytest.raises(KafkaException):
        short.bounds()
    assert silent.waited == [1.5]
    with pytest.raises(EndedError):
        [*short.read(0, 9)]


PLACES = [record.TopicPartition("o", 0), record.TopicPartition("o", 1)]


class Member:
    """A consumer that has these ends of partitions 0 and 1, or none at all."""

    def __init__(self, *ends: int, error: int | None = None) -> None:
        self._ends = ends
        self._error = error

    def offsets_for_times(self, asked: list[TopicPartition], _timeout_s: float) -> list[TopicPartition]:
        assert {one.offset for one in asked} == {-1}
        if self._error is not None:
            raise KafkaException(KafkaError(self._error))
        return [TopicPartition(one.topic, one.partition, self._ends[one.partition]) for one in asked]


class Admin:
    """An admin client that counts the questions for ends."""

    def __init__(self) -> None:
        self.asked = 0

    def ends(self, places: Iterable[record.TopicPartition]) -> dict[record.TopicPartition, int]:
        self.asked += 1
        return dict.fromkeys(places, 9)


def test_the_member_is_asked_for_the_ends() -> None:
    """One request and no future for each partition; without a partition nobody is asked."""
    member: Any = Member(3, 0)
    admin: Any = Admin()
    assert output_reader.stable_ends(member, admin, PLACES) == dict(zip(PLACES, (3, 0), strict=True))
    assert output_reader.stable_ends(member, admin, []) == {}
    assert admin.asked == 0


@pytest.mark.parametrize(
    "member", [Member(3, -1), Member(error=KafkaError._TIMED_OUT)], ids=["one without an answer", "none answered"]
)
def test_the_admin_client_is_asked_where_the_member_has_no_answer(member: Any) -> None:
    """A missing end is never taken for an empty partition: the admin client waits for the leader, or says why not."""
    admin: Any = Admin()
    assert output_reader.stable_ends(member, admin, PLACES) == dict.fromkeys(PLACES, 9)
    assert admin.asked == 1


@pytest.mark.parametrize("digits", [b"9" * 5_000, b"9" * 20, b"\xb2", b"-1", b""])
def test_headers_with_no_number_are_not_keyfolds(digits: bytes) -> None:
    """Another writer may say anything: it is no position, and ends no look at an output."""
    topic, partition = ("keyfold.source.topic", b"t"), ("keyfold.source.partition", b"0")
    offset, number = ("keyfold.source.offset", digits), ("keyfold.generation", digits)
    assert output_reader.source_offset([topic, partition, offset], record.TopicPartition("t", 0)) is None
    assert output_reader.keyfold_source([topic, partition, offset]) is None
    assert output_reader.keyfold_source([topic, ("keyfold.source.partition", digits), (offset[0], b"1")]) is None
    assert output_reader.named_generation([number]) == 1
