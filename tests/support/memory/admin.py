"""The admin client in memory, as far as planning asks it, and the consumer that is asked for ends."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import OffsetSpec

from compactor.model.record import TopicPartition
from connectors.kafka.admin import TopicInfo


class MemoryAdmin:
    """Implements what planning asks of Admin over the ends of partitions, which all begin at 0; notes the questions.

    Topics in `refused`, and all while `away`, are answered with an error; a request as a whole fails while `broken`.
    """

    def __init__(self, ends: dict[TopicPartition, int] | None = None) -> None:
        self.ends = ends or {}
        self.refused: set[str] = set()
        self.away = False
        self.broken = False
        self.described: list[set[str]] = []
        self.asked: list[set[TopicPartition]] = []

    def list_topics(self) -> Iterable[str]:
        """See Admin."""
        self._answer()
        return sorted({key.topic for key in self.ends})

    def describe_each(self, topics: Iterable[str]) -> dict[str, TopicInfo | KafkaError]:
        """See Admin."""
        names = set(topics)
        self.described.append(names)
        self._answer()
        counts = {name: sum(key.topic == name for key in self.ends) for name in names}
        found = {name: TopicInfo(name, f"id-{name}", count) for name, count in counts.items() if count}
        if self.away:
            return dict.fromkeys(names, KafkaError(KafkaError._TRANSPORT))
        return {**found, **dict.fromkeys(names & self.refused, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))}

    def offsets_each(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec
    ) -> dict[TopicPartition, int | KafkaError]:
        """See Admin."""
        wanted = set(partitions)
        self.asked.append(wanted)
        self._answer()
        known = self.ends if spec is OffsetSpec.latest() else dict.fromkeys(self.ends, 0)
        if self.away:
            return dict.fromkeys(wanted, KafkaError(KafkaError._TRANSPORT))
        unknown = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return {key: unknown if key.topic in self.refused else known.get(key, unknown) for key in wanted}

    def offsets_for_times(self, partitions: list[Partition], timeout: float) -> list[Any]:
        """See confluent_kafka.Consumer: the last stable offsets; as with librdkafka, one error is that of all."""
        wanted = [TopicPartition(one.topic, one.partition) for one in partitions]
        found = self.offsets_each(wanted, OffsetSpec.latest())
        for answer in found.values():
            if isinstance(answer, KafkaError):
                raise KafkaException(answer)
        return [SimpleNamespace(topic=tp.topic, partition=tp.partition, offset=found[tp], error=None) for tp in wanted]

    def close(self) -> None:
        """See confluent_kafka.Consumer."""

    def _answer(self) -> None:
        if self.broken:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
