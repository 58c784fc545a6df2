"""Rebuilds the catalog of a connector that has lost its storage, from its output: steps R1 to R6 of docs/protocol.md.

The records come from the output, what they are from its headers, and how far they go from the committed positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import structlog
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from compactor.catalog.aside import set_aside
from compactor.catalog.catalog import Catalog
from compactor.errors import PositionError, RebuildError
from compactor.failpoints import hit
from compactor.generation.tombstones import Compare, write_tombstones
from compactor.model.actions import AddTopic, AnyAction, RenewTopic, RestoreLog
from compactor.model.log import PartitionLog, Run, generation_of
from compactor.model.order import FIELD
from compactor.model.position import Position
from compactor.model.record import TopicPartition, by_topic
from compactor.model.state import CatalogState, deal
from compactor.rebuild.pieces import Pieces
from compactor.rebuild.plan import (
    LostLog,
    check,
    check_of_topic,
    check_outputs,
    check_rules,
    fences_of,
    ids_of,
    position_of,
    restored,
    whole_topics,
)
from compactor.runs import paths
from compactor.runs.writer import RunTarget
from connectors.clock import SYSTEM_CLOCK
from connectors.config.connector import ConnectorConfig
from connectors.config.selection import select
from connectors.config.stores import connector_storage
from connectors.config.worker import WorkerConfig
from connectors.kafka import groups
from connectors.kafka.admin import TopicInfo
from connectors.kafka.client_settings import ClientSettings
from connectors.operations.standing_result import told
from connectors.runtime.offset_change import comparison_of_keys, comparison_of_records
from connectors.runtime.takeover import Fenced, abandoned_s, claimed, draw_start, ids_to_have, take_over
from connectors.sinks.output_keys import live_keys
from connectors.sinks.output_records import Bound, OutputRecords
from connectors.sinks.output_visibility import require_stable
from connectors.sinks.partitioner import moved_keys
from connectors.sinks.position_transaction import PositionTransaction
from connectors.sinks.producer_session import read_positions

# How often a rebuild begins again if another worker has published meanwhile. One that publishes all the time has not
# lost its storage, which the error then says.
_TRIES: Final = 3

# Transactional ids that are initialised in a second (R5), at least: 52 were, on two cores with a broker on them. With
# fewer, the positions would be undecided for longer than they need; with more, a busy broker would abort them.
_IDS_PER_S: Final = 25

_log = structlog.get_logger()


class RebuiltLog(Struct, frozen=True, kw_only=True):
    """What a log was rebuilt as: published up to `offset`, with so many `records`; `lost` offsets are given up."""

    topic: str
    partition: int
    offset: int
    generation: int
    records: int
    lost: int


def rebuild(
    worker: WorkerConfig,
    connector: ConnectorConfig,
    *,
    accepts_loss: bool = False,
    report: Callable[[tuple[RebuiltLog, ...]], object] = lambda _: None,
) -> tuple[RebuiltLog, ...]:
    """Makes a new catalog of `connector` in its storage; the next run goes on from it.

    `report` is called with what was rebuilt if an error follows that. Raises RebuildError if nothing is lost, or the
    output does not tell enough, and nothing was changed; ConflictError if a worker runs it; UnreachableError,
    StorageError.
    """
    storage = connector_storage(worker, connector.name)
    clients, now_ms = ClientSettings.of(worker, connector), SYSTEM_CLOCK.now_ms()
    logs: list[RebuiltLog] = []
    with claimed(storage, connector.name, abandoned_s(storage)), told(logs, report):
        set_aside(storage)
        buckets = ids_to_have(Catalog.open(storage, connector.name).state, connector)
        _, broker = take_over(
            storage,
            connector,
            clients,
            buckets,
            now_ms,
            change=lambda fenced: logs.extend(Rebuilder(fenced).rebuild(now_ms, accepts_loss=accepts_loss)),
            start=draw_start(worker),
            rebuilds=True,
        )
        broker.close()
    return tuple(logs)


Held = Mapping[TopicPartition, Position | None]
"""The position of each partition, None if there is none."""


class Remains(NamedTuple):
    """What there is of a lost catalog: source topics, its logs, all positions, and below which number its ids are."""

    topics: Mapping[str, TopicInfo]
    logs: Sequence[LostLog]
    held: Held
    ids: int


class Rebuilder:
    """Gives a catalog that this process has just taken over the logs of the one that was lost."""

    def __init__(self, fenced: Fenced) -> None:
        self._catalog = fenced.catalog
        self._broker = fenced.broker
        self._admin = fenced.admin
        self._connector = fenced.connector
        self._clients = fenced.clients

    def rebuild(self, now_ms: int, *, accepts_loss: bool) -> tuple[RebuiltLog, ...]:
        """Takes steps R1 to R6; returns what became of each log, by partition."""
        for _ in range(_TRIES):
            remains = self._look(accepts_loss=accepts_loss)  # R1
            hit("rebuild.read")
            logs, made = self._restored(remains.logs, now_ms, accepts_loss=accepts_loss)  # R2
            hit("rebuild.before-commit")
            fences = fences_of(remains.logs) if self._catalog.state.order.startswith(FIELD) else ()
            actions = (*self._topics(remains.topics), *fences, *made)
            self._catalog.commit(partial(_always, actions), now_ms)  # R3
            hit("rebuild.after-commit")
            if self._replace_positions(made, remains._replace(logs=logs)):  # R4 to R6
                hit("rebuild.committed")
                return tuple(map(_rebuilt, made))
        raise RebuildError(
            f"Connector {self._connector.name}: another worker publishes while it is rebuilt.",
            "Its storage is not lost, then: stop that worker, and see where its storage.location is.",
        )

    def _look(self, *, accepts_loss: bool) -> Remains:
        """Takes step R1: returns what there is of the lost catalog; no older owner has a transaction open then."""
        names = select(self._connector, self._admin.list_topics())
        sources = self._admin.describe(names)
        partitions = [TopicPartition(name, number) for name in sources for number in range(sources[name].partitions)]
        held = self._broker.positions(partitions)
        self._lost(held)
        held, ids = self._shut_out(partitions, held)
        lost = self._lost(held)
        state = self._catalog.state
        for tp, position in sorted(lost.items()):
            check_rules(tp, position, self._connector.name, state.key_identity, state.winners)
        outputs = self._outputs(lost)
        starts, ends = self._admin.starts(list(lost)), self._admin.ends(list(lost))
        counts = {name: info.partitions for name, info in self._admin.describe(outputs.values()).items()}
        # With one winner over a topic, the output may have fewer partitions than the source.
        places = {
            tp: TopicPartition(outputs[tp.topic], tp.partition)
            for tp in lost
            if not self._is_of_topics or tp.partition < counts[outputs[tp.topic]]
        }
        if self._is_of_topics:
            check_outputs(lost, {topic: counts[output] for topic, output in outputs.items()}, self._connector.name)
        output_ends = self._output_ends({place: lost[tp].output_offset or 0 for tp, place in places.items()})
        logs = [
            LostLog(
                topic=tp.topic,
                partition=tp.partition,
                position=position,
                source_start=starts[tp],
                source_end=ends[tp],
                output_end=output_ends[places[tp]] if tp in places else 0,
                has_output=tp in places,
            )
            for tp, position in sorted(lost.items())
        ]
        topics = {name: sources[name] for name in sorted({log.topic for log in logs})}
        return Remains(topics, self._checked(logs, accepts_loss=accepts_loss), held, ids)

    def _checked(self, logs: Sequence[LostLog], *, accepts_loss: bool) -> list[LostLog]:
        """Returns `logs`, by whole topics if a key has one winner over each. Raises RebuildError if one is refused."""
        checked = whole_topics(logs) if self._is_of_topics else list(logs)
        for log in checked:
            check(log, self._connector.name, accepts_loss=accepts_loss)
            if self._is_of_topics:
                check_of_topic(log, self._connector.name)
        return checked

    def _shut_out(self, partitions: Sequence[TopicPartition], held: Held) -> tuple[Held, int]:
        """Initialises each transactional id that an older owner can have used; returns the positions and `ids_of` them.

        `held` are the positions as they were before. The owner's open transactions would hide records of the output,
        also those of partitions of topics that are gone.
        """
        done = 0
        while (ids := ids_of(held, self._catalog.state.buckets)) > done:
            self._broker.fence(range(done, ids))
            held, done = self._broker.positions(partitions), ids
        return held, done

    def _output_ends(self, reached: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Returns the ends of output partitions, below which no record is hidden. Raises NotVisibleError.

        `reached`: the offset of each that the position names.
        """
        require_stable(f"Connector {self._connector.name} cannot be rebuilt", reached, self._admin)
        return self._admin.ends(reached)

    def _lost(self, held: Held) -> dict[TopicPartition, Position]:
        """Returns the positions of other catalogs. Raises RebuildError if there are none, or one says nothing."""
        ours = self._catalog.state.catalog_id
        lost = {tp: at for tp, at in held.items() if at is not None and at.catalog_id != ours}
        self._check_any(held, lost)
        return lost

    def _check_any(self, held: Held, lost: Mapping[TopicPartition, Position]) -> None:
        name, group = self._connector.name, self._connector.group_id
        if not any(held.values()):
            raise RebuildError(
                f"Connector {name}: group {group} has committed nothing for its topics, so that there is nothing to "
                "rebuild from.",
                "Run it: it begins with what the source has. Or name the topics that it had.",
            )
        if not lost:
            raise RebuildError(
                f"Connector {name}: its committed positions are those of the catalog in "
                f"{self._catalog.storage.location}: nothing is lost.",
                "Run it.",
            )
        strange = next((tp for tp, position in sorted(lost.items()) if position.catalog_id is None), None)
        if strange is not None:
            raise RebuildError(
                f"Connector {name}: the position {lost[strange].offset} of {strange} was not committed by keyfold, so "
                "that it says nothing of the output.",
                "Begin anew instead: keyfold delete CONNECTOR.json --outputs, then run it.",
            )

    def _outputs(self, lost: Mapping[TopicPartition, Position]) -> dict[str, str]:
        """Returns the output of each topic. Raises RebuildError if it is not the one that the positions count in."""
        name = self._connector.name
        wanted = {tp.topic: self._connector.output_topic(tp.topic) for tp in lost}
        topics = self._admin.describe([output for output in wanted.values() if output is not None])
        for tp, position in sorted(lost.items()):
            output = wanted[tp.topic]
            if output is None:
                raise RebuildError(
                    f"Connector {name}: topic {tp.topic} is not published, so that nothing tells what was kept of it.",
                    "Leave it out of topics; or delete the connector, and run it anew.",
                )
            if output not in topics or topics[output].id != position.output_id:
                raise RebuildError(
                    f"Connector {name}: the output {output} is not the one in which the position of {tp} counts: it is "
                    "gone, or was recreated.",
                    "Begin anew instead: keyfold delete CONNECTOR.json --outputs, then run it.",
                )
        return {topic: output for topic, output in wanted.items() if output is not None}

    def _restored(
        self, lost: Sequence[LostLog], now_ms: int, *, accepts_loss: bool
    ) -> tuple[list[LostLog], list[RestoreLog]]:
        """Takes step R2: writes the records of each log, or its tombstones; returns `lost` as the output tells it."""
        state = self._catalog.state
        order = sorted({*state.by_partition(), *(log.tp for log in lost)})
        buckets = dict(zip(order, self._dealt(order), strict=True))
        logs, made = list[LostLog](), list[RestoreLog]()
        for topic, of_topic in by_topic(lost).items():
            read, pieces = self._read(topic, of_topic, now_ms, accepts_loss=accepts_loss)
            outputs = sum(log.has_output for log in read) if self._is_of_topics else UNSET
            for log in read:
                runs = self._runs(log, pieces, outputs, now_ms)
                made.append(restored(log, *runs, buckets[log.tp]))
            logs += read
        return logs, made

    def _dealt(self, order: Sequence[TopicPartition]) -> Sequence[int]:
        """Returns the bucket of each log."""
        buckets = max(1, self._catalog.state.buckets)
        if self._is_of_topics:
            return deal(order, (), buckets, whole_topics=True)
        return [number % buckets for number in range(len(order))]

    @property
    def _is_of_topics(self) -> bool:
        return self._catalog.state.is_of_topics

    def _read(
        self, topic: str, lost: Sequence[LostLog], now_ms: int, *, accepts_loss: bool
    ) -> tuple[list[LostLog], Pieces]:
        """Reads each output partition of `topic` twice, keys first; returns `lost` as it tells, and its records."""
        bounds = {log.partition: Bound(log.position.generation, log.position.offset) for log in lost}
        spread = sum(log.has_output for log in lost) if self._is_of_topics else None
        records = self._output_records(topic, bounds, spread)
        holds_tombstones = self._is_of_topics and self._catalog.state.key_identity is not None
        pieces, logs = Pieces(self._target(now_ms), holds_tombstones=holds_tombstones), list[LostLog]()
        is_sent_in_part = self._is_of_topics and any(log.position.fold_end is not None for log in lost)
        for log in lost:
            logs.append(log)
            if not log.has_output or log.begins_again:
                continue
            last = records.last(log.partition, log.output_end)
            if len(last.earlier) and (is_sent_in_part or log.position.fold_end is not None):
                logs[-1] = replace(log, has_earlier=True)
            else:
                pieces.add(records.rows(log.partition, last.offsets))
                pieces.add_earlier(records.earlier_rows(log.partition, last.earlier))
        pieces.settle()
        return self._checked(logs, accepts_loss=accepts_loss), pieces

    def _output_records(self, topic: str, bounds: Mapping[int, Bound], spread: int | None) -> OutputRecords:
        output, compare = self._connector.output_topic(topic) or "", comparison_of_records(self._connector)
        return OutputRecords(self._clients.consumer(), output, topic, bounds, spread, compare)

    def _live_keys(self, lost: LostLog) -> tuple[list[bytes], Compare | None]:
        """Returns the keys that live in the output partition of `lost`, and how they are compared."""
        output = self._connector.output_topic(lost.topic) or ""
        keys = live_keys(self._clients.consumer(), output, lost.tp, lost.output_end).live
        return keys, comparison_of_keys(self._connector.chain_spec(), self._catalog.state.key_identity)

    def _runs(
        self, lost: LostLog, pieces: Pieces, outputs: int | UnsetType, now_ms: int
    ) -> tuple[Run | None, Run | None]:
        """Returns the run of records of `lost`, and that of its offsets below 0: of tombstones if it begins again.

        `outputs`: over how many output partitions keys go by themselves; unset if they stay in theirs.
        """
        if not lost.begins_again:
            run = pieces.run(lost.tp, lost.position.start, lost.position.offset, now_ms)
            return run, pieces.lead(lost.tp, lost.position.start, now_ms)
        if not lost.has_output:
            return None, None
        keys, compare = self._live_keys(lost)
        catalog, most = self._catalog, self._connector.segment_bytes
        moved = moved_keys(keys, lost.partition, outputs)
        return None, write_tombstones(catalog.storage, lost.tp, keys, catalog.epoch, now_ms, most, compare, moved=moved)

    def _target(self, now_ms: int) -> RunTarget:
        return RunTarget(
            storage=self._catalog.storage,
            prefix=paths.prefix(self._catalog.epoch, "rebuild"),
            max_bytes=self._connector.segment_bytes,
            arrived_ms=now_ms,
        )

    def _topics(self, topics: Mapping[str, TopicInfo]) -> list[AnyAction]:
        known, actions = self._catalog.state.topics, list[AnyAction]()
        outputs = {name: self._connector.output_topic(name) for name in topics}
        ids = self._admin.describe([output for output in outputs.values() if output is not None])
        for name, info in topics.items():
            output = outputs[name]
            output_id = ids[output].id if output is not None else None
            spread = ids[output].partitions if output is not None and self._is_of_topics else UNSET
            if name in known:
                actions.append(RenewTopic(topic=name, topic_id=info.id, output_id=output_id))
            else:
                actions.append(
                    AddTopic(topic=name, topic_id=info.id, output=output, output_id=output_id, outputs=spread)
                )
        return actions

    def _replace_positions(self, made: Sequence[RestoreLog], remains: Remains) -> bool:
        """Takes steps R4 to R6 for the positions of `made`; False if others have moved the group since R1."""
        state, ids = self._catalog.state, remains.ids
        positions = {
            log.tp: position_of(action, log, state.catalog_id, ids, state.winners)
            for action, log in zip(made, remains.logs, strict=True)
        }
        return self._put(positions, remains.held, ids)

    def _put(self, positions: Mapping[TopicPartition, Position], held: Held, ids: int) -> bool:
        """Has the group hold `positions` in place of `held`; False if it holds others by now."""
        group, name = self._connector.group_id, self._connector.transactional_id(0)
        transaction = PositionTransaction(self._clients, name, group, ids / _IDS_PER_S)
        try:
            self._catalog.refresh()  # a newer owner that came before our producer has positions of its own to commit
            if not transaction.put(positions):  # R4
                return False
            hit("rebuild.positions")
            self._broker.fence(range(1, ids))  # R5
            hit("rebuild.fence")
            if not self._stands(held):
                return False
            if transaction.commit():  # R6
                return True
            if transaction.has_timed_out:
                raise self._too_slow(ids, transaction.timeout_ms)
            return False
        finally:
            transaction.abort()  # nothing if it is committed
            transaction.close()

    def _too_slow(self, ids: int, timeout_ms: int) -> RebuildError:
        return RebuildError(
            f"Connector {self._connector.name}: its {ids} transactional ids were not initialised within {timeout_ms} "
            "ms, after which the brokers abort the transaction that holds its new positions.",
            "Ask again once the brokers are less busy; or raise their transaction.max.timeout.ms, for more than 15 "
            "minutes also producer.override.transaction.timeout.ms of the connector.",
        )

    def _stands(self, held: Held) -> bool:
        """Returns whether the group still holds the positions of R1, apart from those that are not decided."""
        config = self._clients.admin()
        reader = groups.member(config, self._connector.group_id, "read_uncommitted")  # does not wait for our own
        try:
            return read_positions(self._admin, self._connector.group_id, list(held), reader) == held
        except PositionError:
            return False
        finally:
            reader.close()


def _always(actions: tuple[AnyAction, ...], _: CatalogState) -> tuple[AnyAction, ...]:
    return actions


def _rebuilt(action: RestoreLog) -> RebuiltLog:
    log: PartitionLog = action.log
    _log.warning("log rebuilt", topic=log.topic, partition=log.partition, offset=log.position)
    return RebuiltLog(
        topic=log.topic,
        partition=log.partition,
        offset=log.position,
        generation=generation_of(log),
        records=sum(run.records for run in log.runs),
        lost=sum(gap.end - gap.start for gap in log.gaps),
    )
