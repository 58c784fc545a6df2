"""Changes offsets as `OffsetChanger` does, on the broker in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from compactor.catalog.catalog import Catalog
from compactor.generation.plan import OffsetChange
from compactor.generation.tombstones import Compare
from compactor.model.position import Position
from compactor.model.record import TopicPartition
from compactor.model.state import BY_BYTES, NO_FILL, Topic
from connectors.kafka.admin import TopicInfo
from connectors.runtime.offset_change import OffsetChanger
from tests.support.memory.broker import MemoryBroker
from tests.support.memory.journal import OutputRecord

_SEGMENT_BYTES = 1 << 20


class MemoryOffsetChanger(OffsetChanger):
    """Takes the steps on `broker`, which all of `source` is announced to.

    `rules`: order, key_identity, scope and fill, if they are others than the catalog's.
    """

    def __init__(self, catalog: Catalog, broker: MemoryBroker, source: Any, **rules: str) -> None:
        outside: Any = broker
        state = catalog.state
        known = {"order": state.order, "scope": state.scope, "fill": state.fill or NO_FILL}
        known |= {"key_identity": state.key_identity or BY_BYTES}
        connector: Any = SimpleNamespace(
            segment_bytes=_SEGMENT_BYTES,
            publish_unchanged="send",
            state_index="auto",
            **(known | rules),
        )
        clients: Any = None
        super().__init__(catalog, outside, admin(broker, source.see_end), connector, clients)
        self._memory = broker

    def _live_keys(self, output: str, tp: TopicPartition, end: int) -> list[bytes]:
        assert self._memory.topics[tp.topic].output == output
        return live_keys(self._memory.output.records.get(tp, ()), end)

    def _output_id(self, change: OffsetChange, topic: Topic, found: Mapping[str, TopicInfo]) -> str | None:
        return topic.output_id  # outputs are there, and stay

    def _comparison(self, identity: str | None) -> Compare | None:
        return None if identity is None else self._memory.compare

    def _commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        for tp, position in positions.items():
            fence = self._catalog.state.topics[tp.topic].fence
            at = {} if fence is UNSET else {"fence": fence.value, "fence_at": fence.offsets.get(tp.partition)}
            self._memory.overwrite(tp, replace(position, **at))


def live_keys(records: Iterable[OutputRecord], end: int) -> list[bytes]:
    """Returns the keys whose last record below offset `end` has a value, sorted."""
    last = {one.key: one.value for one in records if one.offset < end}
    return sorted(key for key, value in last.items() if key is not None and value is not None)


def admin(
    broker: MemoryBroker, source_end: Callable[[TopicPartition], int], outputs: Mapping[str, int] | None = None
) -> Any:
    """Answers for the source, whose partitions all begin at 0, and for the output, of which all is stable.

    `outputs`: the number of output partitions of topics that have not as many as their source (compaction.scope=topic).
    """
    sources, places = {topic.output: topic for topic in broker.topics.values() if topic.output}, outputs or {}

    def describe(names: Iterable[str]) -> dict[str, TopicInfo]:
        known = {name: (topic.id, len(topic.ends)) for name, topic in broker.topics.items()}
        known |= {
            name: (str(topic.output_id), places.get(topic.name, len(topic.ends))) for name, topic in sources.items()
        }
        return {name: TopicInfo(name, *known[name]) for name in names if name in known}

    def ends(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: end(tp) for tp in partitions}

    def end(tp: TopicPartition) -> int:
        if tp.topic in sources:
            return broker.output.ends.get(TopicPartition(sources[tp.topic].name, tp.partition), 0)
        return source_end(tp)

    return SimpleNamespace(
        list_topics=lambda: [*broker.topics],
        describe=describe,
        starts=lambda partitions: dict.fromkeys(partitions, 0),
        ends=ends,
        high_watermarks=ends,
    )
