"""Brings the changelog up to what is publishable: steps 5 to 12 of docs/protocol.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from compactor.catalog.catalog import Catalog
from compactor.clean.schedule import publishable
from compactor.failpoints import hit
from compactor.model.actions import AnyAction, PlanFold, Publish
from compactor.model.log import OutputPoint, PartitionLog, end_beyond, end_within
from compactor.model.position import Position, Resolved, resolve
from compactor.model.publish_plan import PublishPlan, PublishResult, PublishTarget
from compactor.model.record import TopicPartition
from compactor.model.state import State
from compactor.ports import Broker
from compactor.publish.executors import Sending
from compactor.quarantine import verify as inspection
from compactor.quarantine.isolation import Isolation
from compactor.runs.reader import first_young
from compactor.settings import EngineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from compactor.storage.base import Storage

CAREFUL: Final = 32
"""While anything is damaged, no more logs are sent at once than a scan reads by their own row groups: the damaged
page of one must not be read for the others. Those that share a row group cannot be told apart so."""

_log = structlog.get_logger()


class Changelog:
    """The published side of one connector: where each partition stands, and what is sent next.

    What the group holds is read once after a take-over and again after anything went wrong; between, this
    worker is the only one that moves it, and every publish checks that before it sends. `clock_ms` is for the log: how
    long a publish took; nothing is decided by it.
    """

    def __init__(
        self,
        spark: SparkSession,
        storage: Storage,
        catalog: Catalog,
        outside: Broker,
        isolation: Isolation,
        clock_ms: Callable[[], int] | None = None,
    ) -> None:
        self._clock_ms = clock_ms
        self._isolation = isolation
        self._sending = Sending(spark, storage, outside, isolation.stopping.is_set)
        self._storage = storage
        self._catalog = catalog
        self._outside = outside
        self._resolved: dict[TopicPartition, Resolved] = {}
        self._committed_ms: dict[TopicPartition, int] = {}
        self._seen_ms: dict[TopicPartition, int] = {}
        self._turn = 0
        self._last_turn: dict[TopicPartition, int] = {}

    def forget(self) -> None:
        """Positions are read again before the next transaction; call it whenever a publish failed."""
        self._resolved.clear()

    def uncertain(self) -> frozenset[TopicPartition]:
        """The logs of which it is not known, or cannot be told yet, how far they are published.

        Also one whose `published` lies inside a run that was folded when it came: no end is there, until the next fold
        passes it. So it is where a catalog was set back, and what had been published was taken in again.
        """
        resolved = dict(self._resolved)
        state = self._catalog.state
        unknown = (log.tp for log in _open(state) if log.tp not in resolved or resolved[log.tp].hold)
        inside = (log.tp for log in state.logs if end_within(log, log.published) != log.published)
        return frozenset((*unknown, *inside))

    def settle(self, now_ms: int) -> None:
        """Reads what the group holds of the logs that are not read yet, as every publish does first.

        Raises PositionError where going on could lose or repeat records, and what asking the brokers raises.
        """
        try:
            self._resolve(now_ms)
        except Exception:
            self.forget()
            raise

    def publish(self, settings: EngineSettings, now_ms: int) -> tuple[PublishResult, ...]:
        """Sends every fold that is due and commits it to the catalog; what was sent, per partition.

        Raises what the publisher raises, after forgetting all positions: whether a transaction took effect
        is then read back, not guessed.
        """
        while True:
            try:
                return self._publish(settings, now_ms)
            except Exception as error:
                self.forget()
                if not self._set_aside(error, now_ms) and not self._without_tasks(error):
                    raise

    def _set_aside(self, error: Exception, now_ms: int) -> bool:
        """Whether logs were to blame, whose files are damaged: then the others are published without them."""
        if not self._isolation.blames(error):
            return False
        logs = _open(self._catalog.state)
        return bool(self._isolation.set_aside(logs, inspection.unpublished, now_ms, publish=True))

    def _without_tasks(self, error: Exception) -> bool:
        """Whether it is to be tried again with Spark's fold; what the task that ended has left open is ended first.

        Positions cannot be read before. Raises FencedError where a newer owner is there, whom that would disturb.
        """
        if not self._sending.gives_up_tasks(error):
            return False
        self._outside.fence(range(self._catalog.refresh().buckets))
        return True

    def _publish(self, settings: EngineSettings, now_ms: int) -> tuple[PublishResult, ...]:
        self._resolve(now_ms)
        targets = self._targets(settings, now_ms)
        if not targets:
            return ()
        hit("publish.plan")
        began_ms = self._clock_ms() if self._clock_ms else None
        state = self._catalog.commit(lambda state: _plans(state, targets, now_ms), now_ms)
        sent = self._sending.send(state, _bucket_plans(state, targets), settings)
        hit("publish.before-commit")
        self._catalog.commit(lambda _: _publishes(sent), now_ms)
        hit("publish.after-commit")
        self._remember(sent, now_ms)
        self._tell(sent, began_ms)
        return sent

    def _tell(self, sent: Sequence[PublishResult], began_ms: int | None) -> None:
        """One line for a publish that moved records; one that only commits positions again is none."""
        moved = [one for one in sent if one.records or one.dead_letters]
        if not moved:
            return
        _log.debug(
            "published",
            way=self._sending.way,
            partitions=len(moved),
            records=sum(one.records for one in moved),
            bytes=sum(one.bytes for one in moved),
            dead_letters=sum(one.dead_letters for one in moved),
            transactions=sum(one.transactions for one in moved),
            ms=self._clock_ms() - began_ms if self._clock_ms and began_ms is not None else None,
        )

    def _resolve(self, now_ms: int) -> None:
        """Before step 5: what the group holds, made sense of; the catalog catches up where it lags behind."""
        state = self._catalog.state
        for log in state.logs:
            if state.topics[log.topic].closed is not None:
                self._resolved.pop(log.tp, None)  # the broker has no positions for a deleted topic, and takes none
        logs = [log for log in _open(state) if self._unresolved(log)]
        if not logs:
            return
        held = self._outside.positions([log.tp for log in logs])
        for log in logs:
            self._resolved[log.tp] = self._resolve_one(state, log, held)
            self._seen_ms.setdefault(log.tp, now_ms)
        self._catalog.commit(lambda state: _catch_up(state, self._resolved), now_ms)

    def _unresolved(self, log: PartitionLog) -> bool:
        resolved = self._resolved.get(log.tp)
        return resolved is None or (resolved.hold and log.end >= resolved.start)

    def _resolve_one(self, state: State, log: PartitionLog, held: Mapping[TopicPartition, Position | None]) -> Resolved:
        resolved = resolve(
            log,
            state.topics[log.topic],
            state.catalog_id,
            held.get(log.tp),
            lambda: self._outside.tail(state, log),
            connector=state.connector,
        )
        if resolved.hold:
            _log.warning(
                "committed position is above the log, waiting",
                topic=log.topic,
                partition=log.partition,
                position=resolved.start,
                log_end=log.end,
            )
        return resolved

    def _targets(self, settings: EngineSettings, now_ms: int) -> list[PublishTarget]:
        state = self._catalog.state
        found = (self._target(state, log, settings, now_ms) for log in _open(state))
        targets = [target for target in found if target is not None]
        if not any(log.quarantine and state.topics[log.topic].closed is None for log in state.logs):
            return targets
        return sorted(targets, key=self._turn_of)[:CAREFUL]  # who waited longest: else the same ones were always first

    def _turn_of(self, target: PublishTarget) -> int:
        """When a log was sent last; not by the clock, which may be set back."""
        return self._last_turn.get(target.tp, 0)

    def _target(self, state: State, log: PartitionLog, settings: EngineSettings, now_ms: int) -> PublishTarget | None:
        resolved = self._resolved[log.tp]
        if resolved.hold:
            return None
        end = self._end(log, resolved, settings, now_ms)
        if end <= resolved.start and not self._stale(log.tp, settings, now_ms):
            return None
        return PublishTarget(
            topic=log.topic,
            partition=log.partition,
            bucket=log.bucket,
            output=state.topics[log.topic].output,
            start=resolved.start,
            end=max(end, resolved.start),
            found=resolved.found,
            output_offset=resolved.output_offset,
        )

    def _end(self, log: PartitionLog, resolved: Resolved, settings: EngineSettings, now_ms: int) -> int:
        """Step 5: where the next fold ends. A fold that was sent in part must end where it would have."""
        if resolved.fold_end is not None:
            return end_beyond(log, resolved.fold_end)
        return publishable(
            log,
            settings.policy,
            now_ms,
            lambda newest_ms: first_young(self._storage, log, log.folded_end, newest_ms),
            bootstrap_fold=settings.bootstrap_fold,
        )

    def _stale(self, tp: TopicPartition, settings: EngineSettings, now_ms: int) -> bool:
        """Positions expire one by one (offsets.retention.minutes), so a quiet one is committed again in time.

        How old one is that an earlier life committed is not known: it is committed again soon.
        """
        if self._resolved[tp].found is None:
            return False
        first = tp not in self._committed_ms
        since_ms = self._seen_ms[tp] if first else self._committed_ms[tp]
        limit_ms = settings.first_refresh_ms if first else settings.position_refresh_ms
        return not 0 <= now_ms - since_ms < limit_ms  # a clock that was set back says nothing of how long it is ago

    def _remember(self, sent: Iterable[PublishResult], now_ms: int) -> None:
        self._turn += 1
        for one in sent:
            self._last_turn[one.tp] = self._turn
            self._committed_ms[one.tp] = now_ms
            self._resolved[one.tp] = Resolved(start=one.end, found=one.end, output_offset=one.output_offset)


def _open(state: State) -> tuple[PartitionLog, ...]:
    """The logs that are published: their topics are there, and what is to be sent can be read."""
    return tuple(
        log
        for log in state.logs
        if state.topics[log.topic].closed is None and not (log.quarantine and log.quarantine.publishing)
    )


def _plans(state: State, targets: Iterable[PublishTarget], now_ms: int) -> Sequence[AnyAction]:
    logs = state.by_partition()
    return [
        PlanFold(topic=target.topic, partition=target.partition, end=target.end, at_ms=now_ms)
        for target in targets
        if target.end > logs[target.tp].folded_end
    ]


def _bucket_plans(state: State, targets: Iterable[PublishTarget]) -> tuple[PublishPlan, ...]:
    buckets: dict[int, list[PublishTarget]] = {}
    for target in targets:
        buckets.setdefault(target.bucket, []).append(target)
    return tuple(
        PublishPlan(bucket=bucket, epoch=state.epoch, catalog_id=state.catalog_id, targets=tuple(found))
        for bucket, found in sorted(buckets.items())
    )


def _publishes(sent: Iterable[PublishResult]) -> Sequence[AnyAction]:
    return [
        Publish(
            topic=one.topic,
            partition=one.partition,
            end=one.end,
            output=OutputPoint(one.end, one.output_offset) if one.output_offset is not None else None,
        )
        for one in sent
    ]


def _catch_up(state: State, resolved: Mapping[TopicPartition, Resolved]) -> Sequence[AnyAction]:
    """Transactions that were committed while the catalog did not hear of it."""
    return [
        Publish(topic=log.topic, partition=log.partition, end=found.publish_end, output=found.publish_output)
        for log in state.logs
        if (found := resolved.get(log.tp)) and found.publish_end is not None and found.publish_end > log.published
    ]
