"""The topics of a source in memory."""

from __future__ import annotations

from collections.abc import Iterable

from compactor.model.record import TopicPartition
from connectors.config.topics import TopicPattern
from connectors.source.plan import SourceTopic
from connectors.source.topics import NoAnswerError, PartitionOffsets, SourceTopics


class MemoryCluster(SourceTopics):
    """Answers from lists of (log start, log end) that a test changes; `away` makes every request fail."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[str, list[tuple[int, int]]]] = {}
        self.away = False
        self.requests = 0

    def put(self, name: str, *logs: tuple[int, int], topic_id: str | None = None) -> None:
        """Makes or changes a topic with one (log start, log end) for each partition."""
        self.topics[name] = (topic_id or f"id-{name}", list(logs))

    def named(self, names: Iterable[str]) -> dict[str, SourceTopic]:
        """See SourceTopics."""
        self._answer()
        return {
            name: SourceTopic(self.topics[name][0], len(self.topics[name][1])) for name in names if name in self.topics
        }

    def matching(self, pattern: TopicPattern) -> dict[str, SourceTopic]:
        """See SourceTopics."""
        return self.named(name for name in self.topics if pattern.matches(name))

    def log_starts(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """See SourceTopics."""
        return self._offsets(partitions, 0)

    def log_ends(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """See SourceTopics."""
        return self._offsets(partitions, 1)

    def _offsets(self, partitions: Iterable[TopicPartition], which: int) -> PartitionOffsets:
        wanted = list(partitions)
        if self.away:
            return PartitionOffsets({}, dict.fromkeys(wanted, "away"))
        self.requests += 1
        there = [key for key in wanted if key.topic in self.topics]
        offsets = {key: self.topics[key.topic][1][key.partition][which] for key in there}
        return PartitionOffsets(offsets, dict.fromkeys(set(wanted) - set(there), "no such topic"))

    def _answer(self) -> None:
        self.requests += 1
        if self.away:
            raise NoAnswerError("away")
