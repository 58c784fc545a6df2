"""Carries out a change of offsets between T2 and T3 of a take-over: steps G1 to G4 of docs/protocol.md.

Only then does no other process publish: the older owners' transactions are over, and ours have not begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import structlog
from msgspec import UNSET, Struct
from msgspec.structs import replace

from compactor.catalog.catalog import Catalog
from compactor.catalog.requests import Request
from compactor.errors import OffsetChangeError, PositionError
from compactor.failpoints import hit
from compactor.generation.carried import write_carried
from compactor.generation.plan import ChangePlan, FoundPartition, FoundTopic, OffsetChange, actions_of, plan_change
from compactor.generation.tombstones import Compare as CompareKey
from compactor.generation.tombstones import write_tombstones
from compactor.model.actions import Publish
from compactor.model.fence import Fence
from compactor.model.log import PartitionLog, Run, generation_of
from compactor.model.output_partitions import with_output_partition
from compactor.model.position import Position, ResumePoint
from compactor.model.publish_plan import PublishTarget
from compactor.model.record import TopicPartition
from compactor.model.state import BY_BYTES, CatalogState, Topic, apply
from compactor.publish.named_ids import read_shut_out
from compactor.publish.plan import bucket_plans
from compactor.publish.resume import check_catalog, resume_point
from compactor.runs import paths
from compactor.runs.writer import RunTarget
from connectors.chain.key_identity import compared, key_identity_of
from connectors.chain.spec import ChainSpec
from connectors.config.connector import ConnectorConfig
from connectors.config.engine_settings import needs_index
from connectors.data.record import Header
from connectors.errors import UnreachableError
from connectors.kafka.admin import Admin, TopicInfo
from connectors.kafka.client_settings import ClientSettings
from connectors.placeholders import resolve
from connectors.runtime.kafka_broker import KafkaBroker
from connectors.sinks import output_topic
from connectors.sinks.output_keys import live_keys
from connectors.sinks.output_records import Compare, by_bytes
from connectors.sinks.output_topic import WantedOutput
from connectors.sinks.partitioner import moved_keys
from connectors.source.source_errors import CUT_DELETED, TRUNCATED, UNNAMED

Choose = Callable[[CatalogState], OffsetChange]
"""What is to be changed, given the catalog as it is once it is taken over."""

MAY_BE_DONE: Final = "What was asked may have been done: see keyfold describe before you run the command again."
"""The next action if nothing tells whether step G3 was committed."""

_log = structlog.get_logger()


class ChangedLog(Struct, frozen=True, kw_only=True):
    """What became of one log: the next source offset to publish, its generation, and how many keys lead it.

    `skipped` counts the offsets that were given up and are in no output. `tombstones` are sent for those keys that do
    not come again.
    """

    topic: str
    partition: int
    offset: int
    generation: int
    tombstones: int = 0
    skipped: int = 0


def every_log(
    topic: str | None = None, partition: int | None = None, *, anew: bool = True, accepts_loss: bool = False
) -> Choose:
    """Returns the choice of all logs, or those of `topic`, or its `partition`, from their start; `anew` as there.

    Of topics that the connector's file no longer names only what `topic` asks for.
    """

    def choose(state: CatalogState) -> OffsetChange:
        named = {name for name, known in state.topics.items() if topic == name or known.closed != UNNAMED}
        mine = [log.tp for log in state.logs if topic in (None, log.topic) and log.topic in named]
        asked = [tp for tp in mine if partition in (None, tp.partition)]
        return OffsetChange(offsets=dict.fromkeys(asked), anew=anew, accepts_loss=accepts_loss)

    return choose


def asked_by(request: Request) -> Choose:
    """Returns what a `resync` asks for: all logs that it names, from their start, or from its time or offset on."""
    chosen = every_log(request.topic, request.partition, accepts_loss=request.accepts_loss)

    def choose(state: CatalogState) -> OffsetChange:
        change = chosen(state)
        return replace(change, offsets=dict.fromkeys(change.offsets, request.since_offset), since_ms=request.since_ms)

    return choose


def after_truncates(
    offsets: Mapping[TopicPartition, int], fences: Mapping[str, Fence] = MappingProxyType({})
) -> Choose:
    """Returns the choice that begins each of the logs again after its truncate at one of `offsets`.

    What was not published below it is superseded, so its loss is accepted. All logs of the topics of `fences` begin
    again with what they keep, and go on at their ends. They keep the catalog's rules.
    """

    def choose(state: CatalogState) -> OffsetChange:
        starts: dict[TopicPartition, int | None] = {tp: offset + 1 for tp, offset in offsets.items()}
        ends = {log.tp: log.end for topic in fences for log in state.logs_of(topic)}
        return OffsetChange(offsets=starts | ends, anew=True, accepts_loss=True, fences=fences, keeps_rules=True)

    return choose


class OffsetChanger:
    """Changes the offsets of a connector that this process has just taken over: its producers are fenced."""

    def __init__(
        self,
        catalog: Catalog,
        broker: KafkaBroker,
        admin: Admin,
        connector: ConnectorConfig,
        clients: ClientSettings,
    ) -> None:
        self._catalog = catalog
        self._broker = broker
        self._admin = admin
        self._connector = connector
        self._clients = clients
        self._newest: dict[TopicPartition, int] = {}
        # What the last `change` has done for good (G3), whatever it raised after that; None before.
        self.changed: tuple[ChangedLog, ...] | None = None
        # Whether the last `change` ended in G3, so that nothing here says whether it was done.
        self.is_in_doubt = False

    def change(self, choose: Choose, now_ms: int) -> tuple[ChangedLog, ...]:
        """Takes steps G1 to G4; returns what became of each log that has changed, by partition.

        Raises OffsetChangeError, and nothing is changed; PositionError if the group is another catalog's;
        UnreachableError, OutputError, NotAllowedError, StorageError. After G3 the change stands, whatever is raised.
        """
        self.changed, self.is_in_doubt = None, False
        asked = self._connector
        rules = {"order": asked.order, "identity": asked.key_identity, "scope": asked.scope, "fill": asked.fill}
        change = choose(self._catalog.state)
        change = change if change.keeps_rules else replace(change, **rules)
        change = (
            change if change.since_ms is None else at_time(self._admin, self._catalog.state, change, change.since_ms)
        )
        topics = self._topics(change)  # G1
        held = self._resolve(change, topics, now_ms)
        partitions = self._partitions(topics, held)
        hit("generation.read")
        plan = plan_change(self._catalog.state, change, topics, partitions)
        leads = self._leads(plan, partitions, now_ms)  # G2
        carried = self._carried(plan, change.fences, held, now_ms)
        plan = plan.above(self._newest).carrying(carried)
        hit("generation.before-commit")
        before = self._catalog.state
        self.is_in_doubt = True
        after = self._catalog.commit(lambda _: tuple(actions_of(plan, leads, carried)), now_ms)  # G3
        self.is_in_doubt = False
        self.changed = tuple(_changed(before.log(tp), after.log(tp), leads.get(tp)) for tp in plan.partitions)
        for log in self.changed:
            _log.warning("offset changed", **{name: getattr(log, name) for name in log.__struct_fields__})
        hit("generation.after-commit")
        self._commit_positions(after, plan, held)  # G4
        hit("generation.position")
        return self.changed

    def _topics(self, change: OffsetChange) -> dict[str, FoundTopic]:
        """Returns the ids of the topics and outputs concerned; an output that is gone is made if all begins again."""
        state = self._catalog.state
        named = sorted({tp.topic for tp in change.offsets if tp.topic in state.topics})
        outputs = {state.topics[name].output for name in named} - {None}
        described = self._admin.describe([*named, *(output for output in outputs if output is not None)])
        return {
            name: FoundTopic(
                described[name].id,
                self._output_id(change, state.topics[name], described),
                is_cut=state.topics[name].closed in (TRUNCATED, CUT_DELETED),
                partitions=described[name].partitions,
                outputs=described.get(state.topics[name].output or "", described[name]).partitions,
            )
            for name in named
            if name in described
        }

    def _output_id(self, change: OffsetChange, topic: Topic, described: Mapping[str, TopicInfo]) -> str | None:
        if topic.output is None:
            return None
        logs = [log.tp for log in self._catalog.state.logs_of(topic.topic)]
        if all(change.offsets.get(tp, 0) is None for tp in logs):
            partitions = described[topic.topic].partitions if topic.outputs is UNSET else topic.outputs
            if change.scope not in (None, self._catalog.state.scope):  # it never grows for a change that may be refused
                partitions = described.get(topic.output, described[topic.topic]).partitions
            wanted = WantedOutput(topic.topic, topic.output, partitions, topic.output_id)
            return output_topic.ensure(self._admin, self._connector, [wanted])[topic.output]
        return described[topic.output].id if topic.output in described else ""

    def _resolve(
        self, change: OffsetChange, topics: Mapping[str, FoundTopic], now_ms: int
    ) -> dict[TopicPartition, ResumePoint | None]:
        """Returns from which point each log would be published on, None if unknown; the catalog catches up first."""
        state = self._catalog.state
        named = {tp.topic for tp in change.offsets} if state.is_of_topics else set()
        logs = [log for log in state.logs if log.topic in topics and (log.tp in change.offsets or log.topic in named)]
        tps = [log.tp for log in logs]
        positions, _ = read_shut_out(self._catalog, self._broker, tps, state.buckets)  # G4 writes them again
        self._newest = {tp: position.generation for tp, position in positions.items() if position is not None}
        points = {log.tp: self._resume(state, log, positions.get(log.tp)) for log in logs}
        missed = [
            Publish(topic=tp.topic, partition=tp.partition, end=point.publish_end, output=point.publish_output)
            for tp, point in points.items()
            if point is not None and point.publish_end is not None and point.publish_end > state.log(tp).published
        ]
        self._catalog.commit(lambda _: missed, now_ms)
        return points

    def _resume(self, state: CatalogState, log: PartitionLog, position: Position | None) -> ResumePoint | None:
        check_catalog(state, log, position)  # a position of another catalog's is not ours to change
        try:
            return resume_point(
                log,
                state.topics[log.topic],
                state.catalog_id,
                position,
                lambda: self._broker.tail(state, log),
                connector=state.connector,
            )
        except PositionError:
            return None

    def _partitions(
        self, topics: Mapping[str, FoundTopic], held: Mapping[TopicPartition, ResumePoint | None]
    ) -> dict[TopicPartition, FoundPartition]:
        state = self._catalog.state
        described = self._admin.describe(sorted(topics))
        wanted = [tp for tp in held if tp.topic in described and tp.partition < described[tp.topic].partitions]
        starts, ends = self._admin.starts(wanted), self._admin.ends(wanted)
        placed = {log.tp for topic in described for log in with_output_partition(state, topic)}
        outputs = {
            tp: TopicPartition(output, tp.partition)
            for tp in wanted
            if tp in placed and (output := self._output(state, topics, tp))
        }
        output_ends = self._admin.ends(outputs.values())
        return {
            tp: FoundPartition(
                start=starts[tp],
                end=ends[tp],
                position=None if (resume := held[tp]) is None else resume.start,
                output_end=output_ends[outputs[tp]] if tp in outputs else None,
            )
            for tp in wanted
        }

    def _output(self, state: CatalogState, topics: Mapping[str, FoundTopic], tp: TopicPartition) -> str | None:
        """Returns the output of `tp`, None if it has none, or it is gone."""
        return state.topics[tp.topic].output if topics[tp.topic].output_id else None

    def _leads(
        self, plan: ChangePlan, partitions: Mapping[TopicPartition, FoundPartition], now_ms: int
    ) -> dict[TopicPartition, Run]:
        """Takes step G2: writes the tombstones of each generation that begins."""
        leads: dict[TopicPartition, Run] = {}
        after = apply(self._catalog.state, plan.rules)
        for tp in plan.generations:
            output, end = self._catalog.state.topics[tp.topic].output, partitions[tp].output_end
            if output is None or end is None:
                continue
            keys = self._live_keys(output, tp, end)
            epoch, most = self._catalog.epoch, self._connector.segment_bytes
            moved = moved_keys(keys, tp.partition, after.topics[tp.topic].outputs)
            compare = self._comparison(after.key_identity)
            lead = write_tombstones(self._catalog.storage, tp, keys, epoch, now_ms, most, compare, moved=moved)
            leads |= {tp: lead} if lead is not None else {}
        return leads

    def _carried(
        self,
        plan: ChangePlan,
        fences: Mapping[str, Fence],
        held: Mapping[TopicPartition, ResumePoint | None],
        now_ms: int,
    ) -> dict[TopicPartition, Run]:
        """Takes step G2 for topics that were truncated: writes what their logs keep from after that."""
        state, storage, connector = self._catalog.state, self._catalog.storage, self._connector
        target = RunTarget(
            storage=storage,
            prefix=paths.prefix(self._catalog.epoch, "generation"),
            max_bytes=connector.segment_bytes,
            arrived_ms=now_ms,
            is_indexed=needs_index(connector),
            has_identities=state.key_identity is not None,
        )
        runs: dict[TopicPartition, Run] = {}
        for tp in (tp for tp in plan.generations if tp.topic in fences):
            log, resume = state.log(tp), held[tp]
            sent = log.published if resume is None else resume.start
            run = write_carried(storage, log, fences[tp.topic], state.order, sent, target, now_ms)
            runs |= {} if run is None else {tp: run}
        return runs

    def _commit_positions(
        self, state: CatalogState, plan: ChangePlan, held: Mapping[TopicPartition, ResumePoint | None]
    ) -> None:
        """Takes step G4: has the group hold the new positions, also those of an earlier try that ended before this.

        The latter only if nothing of the generation was sent yet (`held`): else a position says how far that came.
        """
        unsent = [tp for tp, resume in held.items() if resume is not None and resume.start == state.log(tp).published]
        positions = self._broker.positions(unsent)
        missed = [
            tp
            for tp in unsent
            if (position := positions.get(tp)) and position.generation < generation_of(state.log(tp))
        ]
        self._commit({tp: _position(state, state.log(tp)) for tp in sorted({*plan.partitions, *missed})})

    def _live_keys(self, output: str, tp: TopicPartition, end: int) -> list[bytes]:
        self._check_all_is_stable(TopicPartition(output, tp.partition), end)
        output_keys = live_keys(self._clients.consumer(), output, tp, end)
        for number, generation in output_keys.generations.items():
            other = TopicPartition(tp.topic, number)
            self._newest[other] = max(self._newest.get(other, 1), generation)
        return output_keys.live

    def _comparison(self, identity: str | None) -> CompareKey | None:
        """Returns how an `identity` compares keys, None if by bytes; histories on the broker in memory have another."""
        return comparison_of_keys(self._connector.chain_spec(), identity)

    def _check_all_is_stable(self, place: TopicPartition, end: int) -> None:
        """Raises if records lie above the last stable offset `end`: nothing tells which keys they leave."""
        if self._admin.high_watermarks([place])[place] > end:
            raise UnreachableError(
                f"Output partition {place} has a transaction that is open: what lies behind it cannot be read yet.",
                "It is somebody else's, as ours were ended: ask again once it is over (transaction.timeout.ms).",
            )

    def _commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Commits `positions` as a publish without records does: in transactions that a newer owner has shut out."""
        state, held = self._catalog.state, self._broker.positions(list(positions))
        targets = (_target(state, tp, position, held.get(tp)) for tp, position in positions.items())
        publisher = self._broker.publisher(state)
        for plan in bucket_plans(state, targets):
            publisher.publish(plan, iter(()))


def at_time(admin: Admin, state: CatalogState, change: OffsetChange, since_ms: int) -> OffsetChange:
    """Returns `change` with the offset of the first record since `since_ms` of each partition that there is.

    A partition without such a record begins at its end. The ends are asked for first: what comes later is read.
    Raises OffsetChangeError if a topic has no such record, unless that loss is accepted; UnreachableError.
    """
    described = admin.describe({tp.topic for tp in change.offsets})
    there = [tp for tp in change.offsets if tp.topic in described and tp.partition < described[tp.topic].partitions]
    ends = admin.ends(there)
    since = admin.offsets_since(there, since_ms)
    if not change.accepts_loss:
        _check_any_since(state, there, since)
    return replace(change, offsets={**change.offsets, **ends, **since})


def _check_any_since(state: CatalogState, there: Iterable[TopicPartition], since: Iterable[TopicPartition]) -> None:
    """Raises OffsetChangeError if a topic has no record of the time that is asked for: all its keys would go."""
    empty = sorted({tp.topic for tp in there} - {tp.topic for tp in since})
    if empty:
        raise OffsetChangeError(
            f"Connector {state.connector}: topic {empty[0]}"
            + (f", as {len(empty) - 1} others," if len(empty) > 1 else "")
            + " has no record since the time that --since names: all keys of its output would get tombstones.",
            "Look at the time and its zone. If the table is empty now, ask again with --accept-loss and --topic.",
        )


def _position(state: CatalogState, log: PartitionLog) -> Position:
    """Returns the position at the published offset of `log`, as a publish would have committed it."""
    return Position(
        offset=log.published,
        catalog_id=state.catalog_id,
        output_id=state.topics[log.topic].output_id,
        output_offset=log.output.output_offset if log.output else None,
        generation=generation_of(log),
        start=log.generation.start if log.generation else 0,
        identity=state.key_identity,
        winners=state.winners,
        buckets=state.buckets or None,
    )


def _target(state: CatalogState, tp: TopicPartition, position: Position, held: Position | None) -> PublishTarget:
    log, topic = state.log(tp), state.topics[tp.topic]
    return PublishTarget(
        topic=tp.topic,
        partition=tp.partition,
        bucket=log.bucket,
        output=topic.output,
        start=position.offset,
        end=position.offset,
        committed=None if held is None else held.offset,
        output_offset=position.output_offset,
        generation=log.generation,
        outputs=None if topic.outputs is UNSET else topic.outputs,
        fence=topic.fence or None,
    )


def _changed(before: PartitionLog, after: PartitionLog, lead: Run | None) -> ChangedLog:
    again = generation_of(after) > generation_of(before)
    return ChangedLog(
        topic=after.topic,
        partition=after.partition,
        offset=after.position,
        generation=generation_of(after),
        tombstones=lead.records if lead else 0,
        skipped=sum(gap.end - gap.start for gap in after.gaps) if again else after.published - before.published,
    )


def comparison_of_keys(spec: ChainSpec, name: str | None) -> CompareKey | None:
    """Returns how the identity `name` compares keys of which nothing else is known; None if it is by their bytes."""
    identity = key_identity_of(replace(spec, identity=name or BY_BYTES), resolve)
    return None if identity is None else lambda key: compared(identity, (), key)


def comparison_of_records(connector: ConnectorConfig) -> Compare:
    """Returns how the keys of records are compared, which may have the id of a schema in their headers."""
    identity = key_identity_of(connector.chain_spec(), resolve)
    if identity is None:
        return by_bytes

    def compare(headers: Sequence[tuple[str, object]], key: bytes) -> tuple[bytes | None, str | None]:
        return compared(identity, [Header(name, value) for name, value in headers], key)

    return compare
