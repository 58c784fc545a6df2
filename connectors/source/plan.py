"""Plans which offsets a connector's portion has, and which task reads them: pure.

A topic is first introduced: the batch that meets it ends at its log start and reads nothing of it, so every
range begins at an offset that stands in the start position. A partition that a known topic has gained begins
at offset 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate, pairwise

import msgspec

from compactor.model.record import RangeRead, TopicPartition
from connectors.source import source_errors


class TopicOffsets(msgspec.Struct, frozen=True):
    """The next offset to read of each partition of one topic, and the id of the topic that they count in."""

    id: str
    partitions: dict[int, int]


Offsets = Mapping[str, TopicOffsets]
"""The position of a connector in all its topics, by name."""


class SourceTopic(msgspec.Struct, frozen=True):
    """A source topic as the broker has it: its id, and how many partitions."""

    id: str
    partitions: int


class SourceRange(msgspec.Struct, frozen=True):
    """The offsets [lo, hi) of one partition of the topic with that id."""

    topic: str
    topic_id: str
    partition: int
    lo: int
    hi: int

    @property
    def size(self) -> int:
        """The number of offsets in the range; records may be fewer."""
        return self.hi - self.lo

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the offsets belong to."""
        return TopicPartition(self.topic, self.partition)


SourceRanges = tuple[SourceRange, ...]
"""Ranges that are read together, by one task or as one portion; never two of one partition."""


def admit(backlog: Mapping[TopicPartition, int], limit: int | None) -> dict[TopicPartition, int]:
    """Decides how many offsets of each partition's backlog a batch of `limit` offsets takes.

    Shares are in proportion to the backlog. Each partition with a backlog gets at least 1, so with more such
    partitions than `limit` the batch is that much larger.
    """
    total = sum(backlog.values())
    if limit is None or total <= limit:
        return dict(backlog)
    marks = [limit * reached // total for reached in accumulate(backlog.values(), initial=0)]
    shares = (upper - lower for lower, upper in pairwise(marks))
    return {tp: max(share, min(1, size)) for (tp, size), share in zip(backlog.items(), shares, strict=True)}


def known(start: Offsets, topics: Mapping[str, SourceTopic]) -> dict[TopicPartition, int]:
    """Returns our position in every partition that exists now, of the topics in `start`."""
    return {
        TopicPartition(name, number): start[name].partitions.get(number, 0)
        for name in sorted(start.keys() & topics.keys())
        for number in range(topics[name].partitions)
    }


def recreated(start: Offsets, topics: Mapping[str, SourceTopic]) -> frozenset[str]:
    """Returns the topics of `start` that have another id now."""
    return frozenset(name for name in start.keys() & topics.keys() if start[name].id != topics[name].id)


def advance(
    connector: str,
    start: Offsets,
    topics: Mapping[str, SourceTopic],
    ends: Mapping[TopicPartition, int],
    limit: int | None,
) -> dict[str, TopicOffsets]:
    """Returns the end of a batch from `start`, given the last stable offsets; partitions without one stay.

    Topics of `start` that are not in `topics` (deleted, no longer matched) keep their offsets.
    Raises SourceChangedError if a log ends below our position.
    """
    positions = known(start, topics)
    for tp in positions.keys() & ends.keys():
        if ends[tp] < positions[tp]:
            raise source_errors.truncated(connector, tp, positions[tp], ends[tp])
    taken = admit({tp: ends.get(tp, position) - position for tp, position in positions.items()}, limit)
    moved: dict[str, dict[int, int]] = {name: dict(topic.partitions) for name, topic in start.items()}
    for tp, count in taken.items():
        moved[tp.topic][tp.partition] = positions[tp] + count
    return {name: TopicOffsets(start[name].id, partitions) for name, partitions in moved.items()}


def introduce(
    names: Iterable[str], topics: Mapping[str, SourceTopic], log_starts: Mapping[TopicPartition, int]
) -> dict[str, TopicOffsets]:
    """Returns the positions of topics first seen: the log start of each of their partitions.

    A topic waits for a later batch if one of its log starts is not known.
    """
    partitions = {name: [TopicPartition(name, number) for number in range(topics[name].partitions)] for name in names}
    return {
        name: TopicOffsets(topics[name].id, {tp.partition: log_starts[tp] for tp in tps})
        for name, tps in partitions.items()
        if all(tp in log_starts for tp in tps)
    }


def ranges(connector: str, start: Offsets, end: Offsets) -> list[SourceRange]:
    """Returns the ranges between two positions, by topic and partition.

    Raises SourceChangedError if they count in topics of different ids, or an end is below its start.
    """
    between: list[SourceRange] = []
    for name in sorted(start.keys() & end.keys()):
        before, after = start[name], end[name]
        if before.id != after.id:
            raise source_errors.recreated(connector, name, before.id, after.id)
        for number, hi in sorted(after.partitions.items()):
            lo = before.partitions.get(number, 0)
            if hi < lo:
                raise source_errors.truncated(connector, TopicPartition(name, number), lo, hi)
            if hi > lo:
                between.append(SourceRange(name, after.id, number, lo, hi))
    return between


def size(of: Iterable[SourceRange]) -> int:
    """Counts the offsets of all ranges."""
    return sum(each.size for each in of)


def reached(start: Offsets, stated: Iterable[RangeRead]) -> dict[str, TopicOffsets]:
    """Returns the position that reading goes on from after `start`, once what was read is `stated`."""
    moved = {name: dict(topic.partitions) for name, topic in start.items()}
    for read in stated:
        moved[read.tp.topic][read.tp.partition] = max(read.hi, moved[read.tp.topic].get(read.tp.partition, 0))
    return {name: TopicOffsets(start[name].id, partitions) for name, partitions in moved.items()}


def splits(whole: Iterable[SourceRange], tasks_max: int, smallest: int = 20_000) -> list[SourceRanges]:
    """Cuts ranges into at most `tasks_max` splits of about as many offsets each, none planned under `smallest` offsets.

    The ranges are laid end to end and that line is cut: so a split has at most one piece of a partition, if `whole` has
    one range for each. A cut near the edge of its range, by a tenth of a split, moves to that edge.
    """
    queue = list(reversed(list(whole)))
    left = sum(item.size for item in queue)
    tasks = max(1, min(tasks_max, left // smallest))
    made: list[SourceRanges] = []
    while queue and len(made) < tasks - 1:
        split = _fill(queue, left / (tasks - len(made)))
        left -= sum(item.size for item in split)
        made.append(split)
    return [*made, tuple(reversed(queue))] if queue else made


def _fill(queue: list[SourceRange], target: float) -> SourceRanges:
    """Takes about `target` offsets from the end of `queue`, putting the rest of a cut range back."""
    taken: list[SourceRange] = []
    left = target
    sliver = target / 10
    while queue and (not taken or left > sliver):
        item = queue.pop()
        if item.size > left + sliver:
            cut = item.lo + max(1, round(left))
            queue.append(msgspec.structs.replace(item, lo=cut))
            taken.append(msgspec.structs.replace(item, hi=cut))
            break  # the rest is of the same partition
        taken.append(item)
        left -= item.size
    return tuple(taken)
