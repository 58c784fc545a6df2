"""Measures the connectors of a worker, for one scrape: what their counters and catalogs say, in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct

from compactor.clean.log_to_clean import LogToClean
from compactor.metrics import Freshness
from compactor.model.log import PartitionLog, Run, RunFile
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from connectors.metrics.source_lag import SourceLag
from connectors.runtime.herder import Herder
from connectors.runtime.supervised_connector import Connector
from connectors.source.source_errors import left_out

LagOf: TypeAlias = Callable[[Connector], Mapping[TopicPartition, SourceLag]]


class MeasuredLog(Struct, frozen=True):
    """One partition: offsets not published yet, bytes as of LogToClean, and times in ms.

    `unpublished_records` are those of `unpublished_offsets`, of a file across `published` at most so many;
    `unpublished_bytes` are their bytes, such a file left out. `is_quarantined`: the cleaner leaves it alone, as Kafka's
    does an uncleanable partition. `is_held`: nothing more of it is published. `waiting_since_ms` is when the oldest
    records that are to be published were taken in, `oldest_ms` when the oldest cleanable record began to age; None if
    there is none. `source` is the lag of what is taken in to the source; None if that is not known.
    """

    topic: str
    partition: int
    unpublished_offsets: int
    waiting_since_ms: int | None
    clean_bytes: int
    cleanable_bytes: int
    unpublished_bytes: int
    unpublished_records: int
    tombstones: int
    dirty_ratio: float
    oldest_ms: int | None
    is_quarantined: bool
    is_held: bool
    source: SourceLag | None = None

    @property
    def uncleanable_bytes(self) -> int:
        """What would be folded, were it not in quarantine (Kafka's uncleanable-bytes)."""
        return self.cleanable_bytes if self.is_quarantined else 0


class MeasuredConnector(Struct, frozen=True):
    """A connector: state in lower case, tasks, counts of its newest run, logs, its newest snapshot (ms, bytes).

    `closed_topics` is how many of its source topics are not read any more, `open_topics` how many are.
    `waiting_since_ms` is when the outage began that it waits for; None if there is none.
    """

    name: str
    state: str
    tasks: int
    failures: int
    min_lag_ms: int
    counters: Mapping[str, int]
    freshness: Freshness
    logs: tuple[MeasuredLog, ...]
    snapshot_ms: int | None
    snapshot_bytes: int
    closed_topics: int
    open_topics: int
    waiting_since_ms: int | None = None

    def outage_ms(self, now_ms: int) -> int:
        """Returns for how long brokers, a store or a registry have not let it work; 0 if they do."""
        return 0 if self.waiting_since_ms is None else max(0, now_ms - self.waiting_since_ms)

    def lag_ms(self, now_ms: int) -> int:
        """Returns for how long the oldest records wait that are not published, beyond the lag that was asked for."""
        since = min((log.waiting_since_ms for log in self.logs if log.waiting_since_ms is not None), default=now_ms)
        return max(0, now_ms - since - self.min_lag_ms)

    def total(self, field: str) -> float:
        """Returns the sum of a field over all logs."""
        return sum(getattr(log, field) for log in self.logs)


def measure(herder: Herder, lag: LagOf) -> Iterator[MeasuredConnector]:
    """Measures every connector, FAILED and stopped ones too; `lag` gives the lag of each to its source."""
    return (measured(connector, lag(connector)) for connector in herder.connectors())


def measured(connector: Connector, lag: Mapping[TopicPartition, SourceLag] = MappingProxyType({})) -> MeasuredConnector:
    """Measures one connector; `lag` is its lag to its source."""
    supervisor = connector.supervisor
    state = connector.catalog_state
    snapshots = state.snapshots if state is not None else ()
    topics = state.topics.values() if state is not None else ()
    return MeasuredConnector(
        name=connector.name,
        state=connector.status.state.lower(),
        tasks=connector.tasks,
        failures=connector.status.failures,
        min_lag_ms=connector.spec.config.min_compaction_lag_ms,
        counters=supervisor.counters if supervisor is not None else {},
        freshness=supervisor.freshness if supervisor is not None else Freshness(),
        logs=_logs(state, lag),
        snapshot_ms=max((snapshot.created_ms for snapshot in snapshots), default=None),
        snapshot_bytes=sum(snapshot.bytes for snapshot in snapshots),
        waiting_since_ms=connector.status.waiting_since_ms,
        closed_topics=sum(topic.closed is not None for topic in topics),
        open_topics=sum(topic.closed is None for topic in topics),
    )


def _logs(state: CatalogState | None, lag: Mapping[TopicPartition, SourceLag]) -> tuple[MeasuredLog, ...]:
    if state is None:
        return ()
    closed = {topic.topic for topic in state.topics.values() if topic.closed is not None}
    faulty = left_out(state)
    return tuple(
        _log(
            log,
            lag.get(log.tp),
            is_closed=log.topic in closed,
            is_held=log.topic in faulty or (log.quarantine is not None and log.quarantine.publishing),
        )
        for log in state.logs
    )


def _log(log: PartitionLog, source: SourceLag | None, *, is_closed: bool, is_held: bool) -> MeasuredLog:
    to_clean = LogToClean.of(log)
    waiting = [] if is_closed or is_held else [run.arrived_ms for run in log.runs if run.end > log.published]
    return MeasuredLog(
        topic=log.topic,
        partition=log.partition,
        unpublished_offsets=log.end - log.position,
        waiting_since_ms=min(waiting, default=None),
        clean_bytes=to_clean.clean_bytes,
        cleanable_bytes=to_clean.cleanable_bytes + to_clean.straddling_bytes,
        unpublished_bytes=to_clean.uncleanable_bytes,
        unpublished_records=sum(_unpublished(log, run, file) for run in log.runs for file in run.files),
        tombstones=sum(run.tombstones for run in (*log.runs, *((log.base,) if log.base else ()))),
        dirty_ratio=to_clean.ratio,
        oldest_ms=to_clean.oldest_ms,
        is_quarantined=log.quarantine is not None,
        is_held=is_held,
        source=source,
    )


def _unpublished(log: PartitionLog, run: Run, file: RunFile) -> int:
    """Returns how many records of `file` are not published, at most: no more than there are offsets for."""
    offsets = min(file.last + 1, run.end) - max(file.first, run.start, log.published)
    return min(file.records, max(0, offsets))
