"""The engine's Broker (`compactor.ports`) in memory: topics, positions and the changelog.

What Spark's tasks must reach lies in the files of a store, the rest in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from compactor.generation.tombstones import Compare
from compactor.model.actions import AddPartition, AddTopic, AnyAction
from compactor.model.log import PartitionLog, generation_of
from compactor.model.output_partitions import that_may_hold
from compactor.model.position import Position, Tail, Unknown
from compactor.model.record import RangeRead, TopicPartition
from compactor.model.state import CatalogState, deal
from compactor.ports import Publisher
from compactor.storage.base import Storage
from tests.support.memory.journal import CommittedPosition, Event, Journal, JournalEntry, OutputTopic
from tests.support.memory.publisher import EVERYTHING, MemoryPublisher, PublishFault


class MemoryTopic(Struct, kw_only=True):
    """A source topic: `ends` has the last stable offset of each partition. `output` None: nothing is published."""

    name: str
    id: str
    output: str | None
    ends: list[int]

    @property
    def output_id(self) -> str | None:
        """Id of the output topic, if there is one."""
        return None if self.output is None else f"id-{self.output}"


class MemoryBroker:
    """Implements Broker for one connector, whose folder is `connector` (None: no other worker can own it).

    `storage` keeps the output and the positions. `most_records` is the size of a transaction; `fault` is what the next
    publisher fails at. `source_headers` False: the output does not say where its records come from. `compare` finds
    by what keys of the output are compared while they have an identity. `late`: the source topics of which
    readers do not see all that was published, as markers are late.
    """

    def __init__(self, storage: Storage, connector: Storage | None = None, most_records: int = EVERYTHING) -> None:
        self.topics: dict[str, MemoryTopic] = {}
        self.starts: dict[TopicPartition, int] = {}
        self.safe_ms: int | None = None
        self.source_headers = True
        self.late: set[str] = set()
        self.most_records = most_records
        self.fault: PublishFault | None = None
        self.compare: Compare = lambda _: (None, None)
        self._storage = storage
        self._connector = connector
        self._journal = Journal(storage)

    @property
    def output(self) -> OutputTopic:
        """What a read_committed reader of the output sees, and the committed positions."""
        return self._journal.read()

    @property
    def entries(self) -> Sequence[JournalEntry]:
        """All journal entries of the output, in order."""
        self._journal.read()
        return tuple(self._journal.entries)

    def add_topic(self, name: str, partitions: int, *, published: bool = True) -> MemoryTopic:
        """Makes an empty source topic; its id is `id-<name>`."""
        output = f"{name}.compacted" if published else None
        self.topics[name] = MemoryTopic(name=name, id=f"id-{name}", output=output, ends=[0] * partitions)
        return self.topics[name]

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See Broker."""
        there = {tp for topic in self.topics.values() for tp in _partitions(topic)}
        return {tp: self.topics[tp.topic].ends[tp.partition] for tp in partitions if tp in there}

    def fence(self, buckets: Iterable[int]) -> None:
        """See Broker."""
        for bucket in buckets:
            self._journal.open(bucket)

    def overwrite(self, tp: TopicPartition, position: Position | None) -> None:
        """Sets a committed position, as an operator does, or deletes it (None), as an expiry does."""
        self.overwrite_all({tp: position})

    def overwrite_all(self, positions: Mapping[TopicPartition, Position | None]) -> None:
        """Sets several committed positions, all of them or none."""
        held = tuple(CommittedPosition(*tp, position) for tp, position in positions.items())
        self._journal.append(lambda _: JournalEntry(event=Event.OVERWRITTEN, positions=held))

    def admit(self, state: CatalogState, reads: Sequence[RangeRead]) -> tuple[AnyAction, ...]:
        """See Broker. A partition begins where it was read first, others of its topic at 0."""
        known = state.by_partition()
        names = sorted({read.tp.topic for read in reads if read.tp not in known})
        topics = [self.topics[name] for name in names if name in self.topics]
        starts = {read.tp: read.lo for read in reversed(reads)}
        added = [_added(topic, state) for topic in topics if topic.name not in state.topics]
        new = [tp for topic in topics for tp in _partitions(topic) if tp not in known]
        if not state.is_of_topics:
            return (*added, *(self._partition(state, number, tp, starts) for number, tp in enumerate(new)))
        buckets = dict(zip(new, deal(new, state.logs, state.buckets, whole_topics=True), strict=True))
        return (*added, *(replace(self._partition(state, 0, tp, starts), bucket=buckets[tp]) for tp in new))

    def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Position | None]:
        """See Broker."""
        held = self.output.positions
        return {tp: held.get(tp) for tp in partitions}

    def tail(self, state: CatalogState, log: PartitionLog) -> Tail:
        """See Broker."""
        places = [other.tp for other in that_may_hold(state, log)]
        sent = [one for place in places for one in self.output.records.get(place, ()) if one.tp == log.tp]
        sent = [one for one in sent if one.generation == generation_of(log) and not one.is_synthetic]
        records = sorted(sent, key=lambda one: one.source_offset)
        if not records or state.topics[log.topic].output is None:
            return None
        return records[-1].source_offset if self.source_headers else Unknown.UNKNOWN

    def publisher(self, state: CatalogState) -> MemoryPublisher:
        """See Broker; `fault` is used up."""
        fault, self.fault = self.fault, None
        ids = {topic.output: topic.output_id for topic in state.topics.values() if topic.output and topic.output_id}
        return MemoryPublisher(
            storage=self._storage,
            connector=self._connector,
            output_ids=ids,
            most_records=self.most_records,
            fault=fault,
        )

    def local_publisher(self, state: CatalogState, stopped: Callable[[], bool]) -> Publisher:
        """See Broker. A fault that kills its process only fails the publish here: the process is the test's."""
        publisher = self.publisher(state)
        fault = publisher.fault
        return replace(publisher, fault=replace(fault, dies=False)) if fault else publisher

    def output_starts(self, state: CatalogState, topic: str) -> Mapping[int, int]:
        """See Broker: `starts`, 0 where it says nothing."""
        return {log.partition: self.starts.get(log.tp, 0) for log in state.logs if log.topic == topic}

    def hidden(self, state: CatalogState, topics: Collection[str]) -> Mapping[str, str]:
        """See Broker: those of `late`, without a wait."""
        return {topic: f"{topic} has no markers yet." for topic in sorted(self.late.intersection(topics))}

    def resume_safe_ms(self, state: CatalogState, topic: str) -> int | None:
        """See Broker: `safe_ms`, where there is an output."""
        return None if state.topics[topic].output is None else self.safe_ms

    def _partition(
        self, state: CatalogState, number: int, tp: TopicPartition, starts: Mapping[TopicPartition, int]
    ) -> AddPartition:
        return AddPartition(
            topic=tp.topic,
            partition=tp.partition,
            bucket=(len(state.logs) + number) % state.buckets,
            start=starts.get(tp, 0),
            backlog_end=self.topics[tp.topic].ends[tp.partition],
        )


def _partitions(topic: MemoryTopic) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for number in range(len(topic.ends))]


OUTPUTS: Final = 2
"""Partitions of an output over which keys are spread (scope=topic)."""


def _added(topic: MemoryTopic, state: CatalogState) -> AddTopic:
    outputs = OUTPUTS if state.is_of_topics and topic.output is not None else UNSET
    return AddTopic(
        topic=topic.name, topic_id=topic.id, output=topic.output, output_id=topic.output_id, outputs=outputs
    )
