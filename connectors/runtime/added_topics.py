"""Adds the topics and partitions that a connector sees for the first time to its catalog, and their outputs (T3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import UNSET

from compactor.model.actions import AddPartition, AddTopic, AnyAction
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState, Topic, deal
from connectors.config.connector import ConnectorConfig
from connectors.config.topic_clashes import refuse_loop
from connectors.errors import OutputError
from connectors.kafka.admin import Admin, TopicInfo
from connectors.sinks import output_topic
from connectors.sinks.output_topic import WantedOutput


def added_topics(
    admin: Admin,
    connector: ConnectorConfig,
    state: CatalogState,
    sources: Iterable[TopicInfo],
    others: Callable[[], Iterable[ConnectorConfig]],
    starts: Mapping[TopicPartition, int] | None = None,
) -> tuple[AnyAction, ...]:
    """Returns the actions that add topics and partitions to the catalog; creates or grows their outputs first.

    `starts`: the offsets at which partitions begin, if that is not the source's start. `others` gives the connectors
    of the worker. Raises OutputError, UnreachableError, and what `refuse_loop` raises.
    """
    grown = [info for info in sources if len(state.logs_of(info.name)) < info.partitions]
    actions: list[AnyAction] = []
    refuse_loop(connector, others(), [info.name for info in grown if info.name not in state.topics])
    _check_own(connector, state, grown)
    wanted = _wanted_outputs(admin, connector, state, grown)
    ids = output_topic.ensure(admin, connector, [*wanted.values()])
    for info in grown:
        if info.name not in state.topics:
            output = wanted.get(info.name)
            actions.append(
                AddTopic(
                    topic=info.name,
                    topic_id=info.id,
                    output=None if output is None else output.name,
                    output_id=None if output is None else ids[output.name],
                    outputs=output.partitions if output is not None and state.is_of_topics else UNSET,
                )
            )
    new = [
        tp
        for info in grown
        for tp in (TopicPartition(info.name, number) for number in range(info.partitions))
        if tp not in state.by_partition()
    ]
    return (*actions, *_add_partitions(admin, state, new, starts or {}))


def check_spread(connector: ConnectorConfig, topic: Topic, outputs: Mapping[str, TopicInfo]) -> None:
    """Raises OutputError if the output of `topic` has another number of partitions than keys are spread over."""
    if topic.outputs is UNSET or topic.output is None:
        return
    partitions = outputs[topic.output].partitions
    if partitions != topic.outputs:
        raise OutputError(
            f"Connector {connector.name}: output topic {topic.output} has {partitions} partitions, and had "
            f"{topic.outputs} at the connector's first start (compaction.scope=topic): keys would go to others.",
            "Kafka takes no partition of a topic away: start under a new connector name, with another output topic.",
        )


def _wanted_outputs(
    admin: Admin, connector: ConnectorConfig, state: CatalogState, sources: Iterable[TopicInfo]
) -> dict[str, WantedOutput]:
    """Returns the output topic of each of the `sources` that has one, by the source's name."""
    named = {info.name: (info, output) for info in sources if (output := connector.output_topic(info.name)) is not None}
    ids = {topic.topic: topic.output_id for topic in state.topics.values()}
    outputs = [output for _, output in named.values()]
    there = admin.describe(outputs) if state.is_of_topics else {}
    return {
        name: WantedOutput(name, output, _partitions_of(connector, state, info, there.get(output)), ids.get(name))
        for name, (info, output) in named.items()
    }


def _partitions_of(connector: ConnectorConfig, state: CatalogState, source: TopicInfo, output: TopicInfo | None) -> int:
    """Returns how many partitions the output of `source` has to have.

    If keys are spread over them, their number is that of the catalog, or of an `output` that is there: no source
    partition could speak for one beyond its own number. Raises OutputError if that has more than the source.
    """
    if not state.is_of_topics:
        return source.partitions
    known = state.topics.get(source.name)
    if known is not None and known.outputs is not UNSET:
        return known.outputs
    if output is None:
        return source.partitions
    if output.partitions > source.partitions:
        raise OutputError(
            f"Connector {connector.name}: output topic {output.name} has {output.partitions} partitions, its source "
            f"{source.name} has {source.partitions}: with compaction.scope=topic it may not have more.",
            "Name another output.topic, or give the source as many partitions.",
        )
    return output.partitions


def _check_own(connector: ConnectorConfig, state: CatalogState, grown: Iterable[TopicInfo]) -> None:
    """Raises OutputError if two source topics would have one output: routers may give them one name."""
    topics = {known.output: known.topic for known in state.topics.values() if known.output is not None}
    for info in grown:
        output = connector.output_topic(info.name)
        other = topics.setdefault(output, info.name) if output is not None else info.name
        if other != info.name:
            raise OutputError(
                f"Connector {connector.name}: {output} would be the output topic of {other} and {info.name}.",
                "Change RegexRouter so that each topic has an output of its own, or leave one of them out.",
            )


def _add_partitions(
    admin: Admin, state: CatalogState, new: Sequence[TopicPartition], starts: Mapping[TopicPartition, int]
) -> list[AnyAction]:
    if not new:
        return []
    ends = admin.ends(new)
    low = admin.starts(new)
    dealt = deal(new, state.logs, state.buckets, whole_topics=state.is_of_topics)
    return [
        AddPartition(
            topic=tp.topic,
            partition=tp.partition,
            bucket=bucket,
            start=starts.get(tp, 0 if tp.topic in state.topics else low[tp]),
            backlog_end=ends[tp],
        )
        for tp, bucket in zip(new, dealt, strict=True)
    ]
