"""The page of a connector: how it is, its topics, partitions, folds and snapshots. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from compactor.clean.due import Reason
from compactor.model.actions import AddSnapshot
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from compactor.secret_forms import HIDDEN
from connectors.config.engine_settings import engine_settings
from connectors.config.fields import store_location
from connectors.metrics.measured import MeasuredConnector
from connectors.operations.describe import PartitionDescription, TopicDescription, partitions, topics
from connectors.operations.snapshots.opening import opening
from connectors.placeholders import has_placeholder
from connectors.rest.views import cause_of
from connectors.runtime.supervised_connector import Connector
from connectors.source.source_errors import advice, is_faulty, meaning_of
from connectors.ui.overview import Row, row
from connectors.ui.texts import page_of

PAGE_PARTITIONS: Final = 100
"""Partitions on one page of a connector, and topics in its list of them."""
PAGE_SNAPSHOTS: Final = 20
FULL_LAG: Final = 1_000
"""Offsets that a full bar of lag has at least: fewer are read in one batch, and would alarm for nothing."""
_DUE: Final = frozenset(
    reason.value
    for reason in (
        *(Reason.OVERDUE, Reason.INTERVAL, Reason.EXPIRED),
        *(Reason.UNSTAMPED, Reason.DIRTY, Reason.UNINDEXED),
    )
)


class PartitionRow(Struct, frozen=True):
    """A partition; `lag_share` is the lag as a part (0 to 100) of the page's `full_lag`."""

    log: PartitionDescription
    lag_share: int
    is_due: bool


class TopicRow(Struct, frozen=True):
    """A source topic; `closed` is why it is not read, with what to do, None if it is read."""

    topic: str
    output: str | None
    closed: str | None


class SnapshotRow(Struct, frozen=True):
    """A snapshot, and the command by which DuckDB opens it; None if the place is not known any more."""

    taken: AddSnapshot
    is_newest: bool
    opening: str | None


class FoldTotals(Struct, frozen=True):
    """What the folds of the newest run have done; `last_ms` is when a partition was folded last, None if none was."""

    last_ms: int | None
    full: int
    merges: int
    bytes_read: int
    bytes_written: int
    records_removed: int
    ms: int


class Detail(Struct, frozen=True, kw_only=True):
    """Everything on the page; `error` is what has failed and what to do, `due_mark` the dirty ratio of a fold.

    `is_known`: there is a catalog to show. `is_stored`: nothing runs the connector, and it was read from the store.
    `has_counts`: something has counted since the connector started.
    `full_lag` is the lag of a full bar: the largest of its partitions, or FULL_LAG if that is more.
    """

    now_ms: int
    row: Row
    is_known: bool
    is_stored: bool
    has_counts: bool
    error: str | None
    failures: int
    next_restart_ms: int | None
    waiting_since_ms: int | None
    file: str | None
    due_mark: float
    full_lag: int
    topics: tuple[TopicRow, ...]
    more_topics: int
    partitions: tuple[PartitionRow, ...]
    page: int
    pages: int
    snapshots: tuple[SnapshotRow, ...]
    more_snapshots: int
    folds: FoldTotals
    counters: Mapping[str, int]


def detail(
    connector: Connector,
    measured: MeasuredConnector,
    now_ms: int,
    late_ms: int,
    page: int = 1,
    stored: CatalogState | None = None,
) -> Detail:
    """Returns what the page shows of a connector, as it was measured at `now_ms`, with its partitions of `page`.

    `stored` is its catalog as the store has it, which is shown if nothing runs the connector.
    """
    known = connector.catalog_state
    state = known or stored or CatalogState()
    described = _partitions(connector, state, measured, now_ms)
    full_lag = max(FULL_LAG, max((log.lag or 0 for log in described), default=0))
    on_page, number, pages = page_of(described, page, PAGE_PARTITIONS)
    named = topics(state, {}, {})
    status = connector.status
    return Detail(
        now_ms=now_ms,
        row=row(connector, measured, now_ms, late_ms),
        is_known=known is not None or stored is not None,
        is_stored=known is None and stored is not None,
        has_counts=bool(measured.counters),
        error=cause_of(connector),
        failures=status.failures,
        next_restart_ms=status.next_restart_ms,
        waiting_since_ms=status.waiting_since_ms,
        file=None if connector.spec.file is None else str(connector.spec.file),
        due_mark=connector.spec.config.min_cleanable_dirty_ratio,
        full_lag=full_lag,
        topics=tuple(_topic(each, state) for each in named[:PAGE_PARTITIONS]),
        more_topics=max(0, len(named) - PAGE_PARTITIONS),
        partitions=tuple(_partition(log, full_lag) for log in on_page),
        page=number,
        pages=pages,
        snapshots=_snapshots(connector, state.snapshots),
        more_snapshots=max(0, len(state.snapshots) - PAGE_SNAPSHOTS),
        folds=_folds(state, measured.counters),
        counters=measured.counters,
    )


def _partitions(
    connector: Connector, state: CatalogState, measured: MeasuredConnector, now_ms: int
) -> tuple[PartitionDescription, ...]:
    behind = {TopicPartition(log.topic, log.partition): log.source for log in measured.logs}
    ends = {
        log.tp: max(0, log.end) + source.offsets for log in state.logs if (source := behind.get(log.tp)) is not None
    }
    return partitions(state, ends, engine_settings(connector.spec.config), now_ms)


def _partition(log: PartitionDescription, full_lag: int) -> PartitionRow:
    return PartitionRow(log, 100 * (log.lag or 0) // full_lag, log.fold.reason in _DUE)


def _topic(described: TopicDescription, state: CatalogState) -> TopicRow:
    topic, closed = state.topics[described.topic], described.closed
    if closed is not None and is_faulty(topic):
        closed = f"{meaning_of(closed)}. {advice(closed)}"
    return TopicRow(described.topic, described.output_topic, closed)


def _snapshots(connector: Connector, taken: Sequence[AddSnapshot]) -> tuple[SnapshotRow, ...]:
    newest = {each.topic: each.id for each in taken}
    ordered = sorted(taken, key=lambda each: each.created_ms, reverse=True)[:PAGE_SNAPSHOTS]
    place = _place(connector)
    return tuple(
        SnapshotRow(each, newest[each.topic] == each.id, None if place is None else opening(f"{place}/{each.path}"))
        for each in ordered
    )


def _place(connector: Connector) -> str | None:
    """Returns the place of its snapshots; None if that is not told, as what a placeholder stands for is not."""
    config = connector.spec.config
    text = config.shown.get("snapshot.location", "")
    if config.snapshot_location is None or HIDDEN in text or has_placeholder(text):
        return None
    return store_location(config.snapshot_location).rstrip("/")


def _folds(state: CatalogState, counters: Mapping[str, int]) -> FoldTotals:
    return FoldTotals(
        last_ms=max((log.last_full_fold_ms for log in state.logs if log.last_full_fold_ms is not None), default=None),
        full=counters.get("full_folds", 0),
        merges=counters.get("merges", 0),
        bytes_read=counters.get("fold_bytes_read", 0),
        bytes_written=counters.get("fold_bytes_written", 0),
        records_removed=counters.get("fold_records_removed", 0),
        ms=counters.get("fold_ms", 0),
    )
