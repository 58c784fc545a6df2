"""The ends of an output partition whose leader has only just been chosen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

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


def reader(monkeypatch: pytest.MonkeyPatch, *answers: tuple[int, int] | int) -> output_reader.OutputPartitionReader:
    """One that is answered so."""
    given = iter(answers)
    monkeypatch.setattr(output_reader, "Consumer", lambda _config: Answers(given))
    return output_reader.OutputPartitionReader({}, TopicPartition("o", 0))


def test_a_leader_that_does_not_know_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Right after a topic was made its leader may say that it is none: that is no failure of the connector."""
    settling = KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE
    assert reader(monkeypatch, *settling, (3, 7)).bounds() == (3, 7)


def test_other_errors_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waiting does not mend, and what has lasted too long."""
    with pytest.raises(KafkaException):
        reader(monkeypatch, KafkaError.TOPIC_AUTHORIZATION_FAILED, (3, 7)).bounds()
    monkeypatch.setattr(output_reader, "SETTLED_S", 0.0)
    with pytest.raises(KafkaException):
        reader(monkeypatch, KafkaError.NOT_LEADER_FOR_PARTITION, (3, 7)).bounds()
