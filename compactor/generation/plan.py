"""Decides what a change of offsets does to each log. Pure.

to the offset at which it stands already                  nothing
forward by name, in the output's own generation           a gap, stated and counted (`Skip`)
back, or to the source's start                            a new generation (`BeginGeneration`)
to a start of the source that lies above the position     the same if the loss is accepted: it is counted as a gap
anywhere, source or output recreated, or the source cut   a new generation of all logs of the topic
anywhere, the output still holds the generation before    a new generation: a gap would keep those records
with compaction.scope=topic                               a new generation of all logs of the topic, or nothing
after a truncate by the order (`fences`)                  a new generation of all logs of the topic, each at its own end
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from compactor.errors import OffsetChangeError
from compactor.model.actions import (
    AnyAction,
    BeginGeneration,
    Refill,
    Reidentify,
    RenewTopic,
    Reorder,
    Rescope,
    SetFence,
    Skip,
)
from compactor.model.fence import Fence
from compactor.model.log import Gap, Generation, PartitionLog, Run, first_end_of, generation_of, lost_by
from compactor.model.record import TopicPartition
from compactor.model.state import BY_BYTES, BYTES, NO_FILL, OF_TOPIC, CatalogState, Topic


class OffsetChange(Struct, frozen=True, kw_only=True):
    """What an operator asks for: the next source offset to publish of each partition; None is the source's start.

    `anew`: a generation begins even if a log stands there already. `accepts_loss`: it begins even if the source no
    longer has records that the earlier generation began with. `order`, `identity`, `scope` and `fill` are what the
    connector's file says of them; None: what the catalog has, as if `keeps_rules`. `since_ms`: in place of the source's
    start, the first record of this time or a later one. `fences`: what truncates have left of topics, of which
    `offsets` has all logs, each with its end.
    """

    offsets: Mapping[TopicPartition, int | None]
    anew: bool = False
    accepts_loss: bool = False
    order: str | None = None
    identity: str | None = None
    scope: str | None = None
    fill: str | None = None
    since_ms: int | None = None
    fences: Mapping[str, Fence] = {}
    keeps_rules: bool = False


class FoundTopic(Struct, frozen=True):
    """The ids that a source topic and its output have now; `output_id` is None if nothing is published.

    `is_cut`: records of the source were taken back, and which is not known. `partitions` and `outputs` count the
    partitions of the source and of its output.
    """

    topic_id: str
    output_id: str | None
    is_cut: bool = False
    partitions: int = 0
    outputs: int = 0


class FoundPartition(Struct, frozen=True, kw_only=True):
    """What the brokers say of a partition: the source's log start and last stable offset, and the output's end.

    `position` is the source offset from which publishing would go on, None if neither group nor output have one;
    `output_end` is None without an output.
    """

    start: int
    end: int
    position: int | None
    output_end: int | None = None


NewRule = Reorder | Reidentify | Rescope | Refill
"""An action by which a rule of the catalog changes."""


class ChangePlan(Struct, frozen=True, kw_only=True):
    """The changes of logs, by partition; a partition without any stays as it is. `rules` of the catalog change, too."""

    rules: tuple[NewRule, ...] = ()
    renewed: tuple[RenewTopic, ...] = ()
    skips: tuple[Skip, ...] = ()
    generations: Mapping[TopicPartition, Generation] = {}
    lost: Mapping[TopicPartition, Gap] = {}
    """What was not published below the generations that begin, and is given up."""
    fences: tuple[SetFence, ...] = ()

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that change, sorted."""
        return tuple(sorted({*(skip.tp for skip in self.skips), *self.generations}))

    def carrying(self, carried: Mapping[TopicPartition, Run]) -> ChangePlan:
        """Returns the plan with each generation that begins with what its log keeps, `carried`, from there on."""
        starts = {tp: replace(self.generations[tp], start=run.start) for tp, run in carried.items()}
        return replace(self, generations={**self.generations, **starts})

    def above(self, newest: Mapping[TopicPartition, int]) -> ChangePlan:
        """Returns the plan with each generation numbered above the `newest` of its partition.

        A catalog that is an older copy does not know of them.
        """
        numbers = {tp: max(generation.number, newest.get(tp, 0) + 1) for tp, generation in self.generations.items()}
        return replace(
            self,
            generations={tp: replace(generation, number=numbers[tp]) for tp, generation in self.generations.items()},
        )


def plan_change(
    state: CatalogState,
    change: OffsetChange,
    topics: Mapping[str, FoundTopic],
    partitions: Mapping[TopicPartition, FoundPartition],
) -> ChangePlan:
    """Decides what `change` does to the logs of `state`, given what the brokers say of their topics and partitions.

    Raises OffsetChangeError, and nothing is changed, if one of the offsets is not possible.
    """
    renewed, skips, generations = dict[str, RenewTopic](), list[Skip](), dict[TopicPartition, Generation]()
    lost = dict[TopicPartition, Gap]()
    for tp, offset in sorted(change.offsets.items()):
        log, reported = _known(state, tp, topics, partitions)
        topic = state.topics[tp.topic]
        ids = topics[tp.topic]
        recreated = ids.is_cut or (topic.topic_id, topic.output_id) != (ids.topic_id, ids.output_id)
        if recreated:
            _check_whole_topic(state, change, topic)
        is_fenced = tp.topic in change.fences
        to = reported.start if offset is None else offset if is_fenced else _within(state, tp, offset, reported)
        if topic.closed is not None or recreated:
            renewed[tp.topic] = RenewTopic(topic=tp.topic, topic_id=ids.topic_id, output_id=ids.output_id)
        if not recreated and _is_gap(log, offset, reported, change):
            _check_nothing_is_sent(state, log, reported)
            skips.append(Skip(topic=tp.topic, partition=tp.partition, end=to))
        elif recreated or change.anew or not _stands_at(log, to, reported):
            if topic.topic_id == ids.topic_id and not is_fenced:
                _check_loss(state, log, to, reported, change)
                lost |= _lost(log, to, reported)
            generations[tp] = Generation(
                number=generation_of(log) + 1,
                start=to,
                first_end=max(to, reported.end),
                output_offset=reported.output_end,
            )
    rules = tuple(_new_rules(state, change, topics, generations))
    if state.is_of_topics:
        _check_settled(state, skips, partitions)
        _check_topics_as_a_whole(state, generations)
    return ChangePlan(
        rules=rules,
        renewed=tuple(renewed.values()),
        skips=tuple(skips),
        generations=generations,
        lost=lost,
        fences=tuple(_new_fences(state, change, generations)),
    )


def _new_fences(
    state: CatalogState, change: OffsetChange, generations: Mapping[TopicPartition, Generation]
) -> Iterator[SetFence]:
    """Yields the fences that are asked for. A topic of which all logs are read again has none: its truncates come, too.

    So does one that goes on under another order, or that an operator wants to get rid of a fence of.
    """
    yield from (SetFence(topic=topic, fence=fence) for topic, fence in change.fences.items())
    for name in sorted({tp.topic for tp in generations} - change.fences.keys()):
        is_whole = all(log.tp in generations for log in state.logs_of(name))
        if is_whole and state.topics[name].fence is not UNSET:
            yield SetFence(topic=name, fence=None)


def actions_of(
    plan: ChangePlan, leads: Mapping[TopicPartition, Run], carried: Mapping[TopicPartition, Run] = MappingProxyType({})
) -> Iterator[AnyAction]:
    """Yields the actions of `plan`; `leads` are the tombstones that a generation begins with (`tombstones.py`).

    `carried` is what its log keeps (`carried.py`).
    """
    yield from plan.rules
    yield from plan.renewed
    yield from plan.skips
    yield from plan.fences
    for tp, generation in plan.generations.items():
        lead = leads.get(tp)
        yield BeginGeneration(
            topic=tp.topic,
            partition=tp.partition,
            generation=generation,
            # Between its last tombstone and the start of the generation the log has nothing.
            lead=None if lead is None else replace(lead, end=generation.start),
            gap=plan.lost.get(tp),
            carried=carried.get(tp, UNSET),
        )


def _known(
    state: CatalogState,
    tp: TopicPartition,
    topics: Mapping[str, FoundTopic],
    partitions: Mapping[TopicPartition, FoundPartition],
) -> tuple[PartitionLog, FoundPartition]:
    log = state.by_partition().get(tp)
    if log is None:
        known = ", ".join(sorted(state.topics)) or "none yet"
        raise OffsetChangeError(
            f"Connector {state.connector} keeps nothing of topic {tp.topic}, partition {tp.partition}.",
            f"Its topics are: {known}. What it has not read yet has no offset to change: run it first.",
        )
    reported = partitions.get(tp)
    if tp.topic not in topics or reported is None:
        what = f"topic {tp.topic}" if tp.topic not in topics else f"topic {tp.topic}, partition {tp.partition}"
        raise OffsetChangeError(
            f"Connector {state.connector}: {what} is in the catalog, and the brokers do not have it.",
            "Create it with at least as many partitions as it had; or leave it out.",
        )
    return log, reported


def _new_rules(
    state: CatalogState,
    change: OffsetChange,
    topics: Mapping[str, FoundTopic],
    generations: Mapping[TopicPartition, Generation],
) -> Iterator[NewRule]:
    """Yields the actions by which the catalog gets the rules that are asked for; none if it has them.

    Raises OffsetChangeError unless every log begins again: what one keeps was decided about by those before.
    """
    fill, identity = state.winners.fill, state.key_identity or BY_BYTES
    if change.order not in (None, state.order):
        _check_all_begin_again(state, "order", state.order, change.order, generations)
        yield Reorder(order=change.order)
    if change.identity not in (None, identity):
        _check_all_begin_again(state, "key.identity", identity, change.identity, generations)
        yield Reidentify(identity=BYTES if change.identity == BY_BYTES else change.identity)
    if change.scope not in (None, state.scope):
        _check_all_begin_again(state, "scope", state.scope, change.scope, generations)
        yield Rescope(scope=change.scope, outputs=_outputs(state, change.scope, topics))
    if change.fill not in (None, fill):
        _check_all_begin_again(state, "fill", fill, change.fill, generations)
        yield Refill(fill=UNSET if change.fill == NO_FILL else change.fill)


def _outputs(state: CatalogState, scope: str, topics: Mapping[str, FoundTopic]) -> dict[str, int]:
    """Returns over how many output partitions the keys of each topic are spread by `scope`, all topics begin again.

    Raises OffsetChangeError for an output with a partition that no position could speak for, or with too few.
    """
    published = {name: topics[name] for name, topic in state.topics.items() if topic.output is not None}
    for name, topic in published.items():
        least, most = (1, topic.partitions) if scope == OF_TOPIC else (len(state.logs_of(name)), topic.outputs)
        if not least <= topic.outputs <= most:
            raise OffsetChangeError(
                f"Connector {state.connector}: output topic {state.topics[name].output} has {topic.outputs} "
                f"partitions, and its source {name} has {topic.partitions}: with compaction.scope={scope} it may have "
                f"{f'no more than {most}' if scope == OF_TOPIC else f'no fewer than {least}'}.",
                "Add partitions to the one that lacks some (kafka-topics.sh --alter --partitions), or delete the "
                "output, which is then made anew; and ask again.",
            )
    return {name: topic.outputs for name, topic in published.items()} if scope == OF_TOPIC else {}


def _check_all_begin_again(
    state: CatalogState, rule: str, was: str, now: str, generations: Mapping[TopicPartition, Generation]
) -> None:
    kept, name = sorted(log.tp for log in state.logs if log.tp not in generations), rule.replace(".", " ")
    if kept:
        raise OffsetChangeError(
            f"Connector {state.connector}: its {name} was {was} and is {now} now, and partition {kept[0]} would keep "
            f"what it has by the {name} before, as would {len(kept) - 1} others.",
            "Ask for all of it, without --topic: keyfold resync CONNECTOR.json. A topic that is gone, or that the file "
            f"no longer names, cannot be read again: set compaction.{rule} back, or start under a new connector name.",
        )


def _check_whole_topic(state: CatalogState, change: OffsetChange, topic: Topic) -> None:
    """Raises OffsetChangeError if a topic was recreated, or cut, and not all of it is to begin again from its start."""
    logs = [log.tp for log in state.logs_of(topic.topic)]
    if any(change.offsets.get(tp, 0) is not None for tp in logs):
        raise OffsetChangeError(
            f"Connector {state.connector}: topic {topic.topic} or its output {topic.output} was recreated, or records "
            f"of it were taken back, so that all of its {len(logs)} partitions begin anew from their start.",
            f"Ask for all of it: keyfold resync CONNECTOR.json --topic {topic.topic}.",
        )


def _check_settled(
    state: CatalogState, skips: Iterable[Skip], partitions: Mapping[TopicPartition, FoundPartition]
) -> None:
    """Raises OffsetChangeError if a topic has a gap, and of one of its logs a fold was begun and not sent as a whole.

    Its records may have been passed over for one in the gap, and would be missing (compaction.scope=topic). Otherwise
    each record that was passed over lost to one that was sent.
    """
    for log in (log for topic in {skip.topic for skip in skips} for log in state.logs_of(topic)):
        reported = partitions.get(log.tp)
        is_settled = log.published == log.folded_end and first_end_of(log) is None
        if reported is None or reported.position != log.published or not is_settled:
            raise OffsetChangeError(
                f"Connector {state.connector}: topic {log.topic}, partition {log.partition} is published as a whole "
                f"only up to {log.published}. With compaction.scope=topic its records may have been passed over for "
                "some of those that would be given up.",
                "Run the connector until it is published, then ask again; or have the topic read anew with keyfold "
                f"resync CONNECTOR.json --topic {log.topic}.",
            )


def _check_topics_as_a_whole(state: CatalogState, generations: Mapping[TopicPartition, Generation]) -> None:
    """Raises OffsetChangeError unless all logs of a topic begin again together (compaction.scope=topic)."""
    for topic in sorted({tp.topic for tp in generations}):
        left = [log.tp for log in state.logs_of(topic) if log.tp not in generations]
        if left:
            raise OffsetChangeError(
                f"Connector {state.connector}: partition {left[0]} would stay as it is, as would {len(left) - 1} "
                "others: with compaction.scope=topic all partitions of a topic begin again together.",
                f"Ask for all of it: keyfold resync CONNECTOR.json --topic {topic}.",
            )


def _within(state: CatalogState, tp: TopicPartition, offset: int, reported: FoundPartition) -> int:
    if not reported.start <= offset <= reported.end:
        raise OffsetChangeError(
            f"Connector {state.connector}: topic {tp.topic}, partition {tp.partition} cannot go on at offset {offset}: "
            f"the source holds the offsets from {reported.start} to {reported.end}.",
            "Ask for one of these; the last one is the next record that will come.",
        )
    return offset


def _is_gap(log: PartitionLog, offset: int | None, reported: FoundPartition, change: OffsetChange) -> bool:
    """Returns whether `offset` leaves a gap in the log as it is: only one that was named lies forward by intent.

    The source's start lies above the position if the source has lost records: no operator has asked for that.
    """
    if offset is None or change.anew or first_end_of(log) is not None:
        return False
    return reported.position is not None and offset > reported.position


def _unpublished_from(log: PartitionLog, reported: FoundPartition) -> int:
    """Returns the source offset from which nothing is in the output; if that is not known, nothing was read."""
    reached = log.end if reported.position is None else reported.position
    return max(reached, log.generation.start if log.generation else reached)


def _lost(log: PartitionLog, to: int, reported: FoundPartition) -> dict[TopicPartition, Gap]:
    """Returns the gap that a generation from `to` on leaves below it, if any.

    If nothing of the last generation is published, nothing may have counted yet what that one gave up.
    """
    first = min([_unpublished_from(log, reported), *(gap.start for gap in log.gaps if lost_by(log))])
    return {log.tp: Gap(first, to)} if first < to else {}


def _check_nothing_is_sent(state: CatalogState, log: PartitionLog, reported: FoundPartition) -> None:
    """Raises OffsetChangeError if a part of a fold was sent, or what an older copy of the catalog never read.

    Offsets that are given up leave the log, which then does not know what the output has of them. The next snapshot
    would lack them, although its readers go on above; the next record of a key with an identity would not retire their
    encodings of it.
    """
    if reported.position is not None and reported.position > log.published:
        raise OffsetChangeError(
            f"Connector {state.connector}: topic {log.topic}, partition {log.partition} has sent offsets up to "
            f"{reported.position} of what is published as a whole only up to {log.published}: what the output has of "
            "it would be forgotten.",
            "Run the connector until it is published, then ask again; or have the partition read anew with keyfold "
            "resync CONNECTOR.json.",
        )


def _stands_at(log: PartitionLog, to: int, reported: FoundPartition) -> bool:
    """Returns whether `log` goes on at `to` already: published up to there, or begun there and not published yet."""
    waits = first_end_of(log) is not None
    return bool(log.generation and log.generation.start == to) if waits else reported.position == to


_ACCEPT: Final = "Ask again with --accept-loss if they may go; or leave the partition as it is."


def _check_loss(
    state: CatalogState, log: PartitionLog, to: int, reported: FoundPartition, change: OffsetChange
) -> None:
    """Raises OffsetChangeError if the source has lost records since the log began and their loss is not accepted."""
    began = log.generation.start if log.generation else max(0, log.start)
    if reported.start > began and to <= reported.start and not change.accepts_loss:
        first = _unpublished_from(log, reported)
        lost = reported.start - first
        unread = f" The {lost} offsets from {first} on are in no output." if lost > 0 else ""
        raise OffsetChangeError(
            f"Connector {state.connector}: topic {log.topic}, partition {log.partition} began at offset {began}, and "
            f"the source begins at {reported.start} now: keys whose last record lay below that would be given up."
            f"{unread}",
            _ACCEPT,
        )
