"""The overview: how many connectors are in which state, and each in a row, what fails or is late first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from compactor.metrics import FRESHNESS_BOUNDS_S, Freshness
from connectors.metrics.measured import MeasuredConnector
from connectors.rest.views import cause_of
from connectors.runtime.status import ConnectorState
from connectors.runtime.supervised_connector import Connector
from connectors.ui.conditions import LATE_MS, Pill, condition
from connectors.ui.texts import brief_error, page_of

PAGE_ROWS: Final = 100
"""Connectors on one page of the overview: some 100 KB of HTML, which a phone lays out at once."""
LATE: Final = "late"
_SHARE: Final = 0.99


class Row(Struct, frozen=True, kw_only=True):
    """A connector: offsets that are not taken in and not published, times in ms; None if that is not known.

    `since_ms` is that of its spec. `late_ms` is how long its oldest record waits; 99 of 100 published records were
    visible within `fresh_s`.
    """

    name: str
    since_ms: int
    state: str
    pills: tuple[Pill, ...]
    rank: int
    is_late: bool
    note: str | None
    target: str
    tasks: int
    partitions: int
    source_lag: int | None
    unpublished: int
    late_ms: int
    fresh_s: float | None
    snapshot_ms: int | None
    records_published: int


class Tile(Struct, frozen=True):
    """A counter of the overview: what it counts, how many, and by which word of the filter these are shown."""

    label: str
    number: int
    tone: str
    filter: str


class Overview(Struct, frozen=True, kw_only=True):
    """What the page shows: the tiles count all connectors, `rows` are those of `page`, of `pages`, under the filter."""

    now_ms: int
    tiles: tuple[Tile, ...]
    rows: tuple[Row, ...]
    filter: str
    total: int
    page: int
    pages: int


def row(connector: Connector, measured: MeasuredConnector, now_ms: int, late_ms: int = LATE_MS) -> Row:
    """Returns the row of a connector as it was measured at `now_ms`; from `late_ms` of lag on it is late."""
    current = condition(connector, measured, now_ms, late_ms)
    known = [log.source.offsets for log in measured.logs if log.source is not None]
    return Row(
        name=connector.name,
        since_ms=connector.spec.since_ms,
        state=connector.status.state.value,
        pills=current.pills,
        rank=current.rank,
        is_late=current.is_late,
        note=brief_error(cause_of(connector)),
        target=connector.spec.target.value,
        tasks=measured.tasks,
        partitions=len(measured.logs),
        source_lag=sum(known) if known else None,
        unpublished=int(measured.total("unpublished_offsets")),
        late_ms=current.late_ms,
        fresh_s=fresh_within(measured.freshness),
        snapshot_ms=measured.snapshot_ms,
        records_published=measured.counters.get("records_published", 0),
    )


def fresh_within(freshness: Freshness) -> float | None:
    """Returns the bound (s) within which 99 of 100 records became visible; None without any, inf if above all."""
    total, seen = sum(freshness.records), 0
    if total == 0:
        return None
    for bound, records in zip(FRESHNESS_BOUNDS_S, freshness.records, strict=False):
        seen += records
        if seen >= _SHARE * total:
            return bound
    return float("inf")


def overview(rows: Iterable[Row], now_ms: int, wanted: str = "", page: int = 1) -> Overview:
    """Puts the rows in order and takes those of a page; `wanted` is a state, or late, or "" for all."""
    every = sorted(rows, key=lambda each: (each.rank, -each.late_ms if each.is_late else 0, each.name))
    chosen = [each for each in every if _is_wanted(each, wanted)]
    on_page, number, pages = page_of(chosen, page, PAGE_ROWS)
    return Overview(
        now_ms=now_ms,
        tiles=tiles(every),
        rows=on_page,
        filter=wanted,
        total=len(every),
        page=number,
        pages=pages,
    )


def _is_wanted(each: Row, wanted: str) -> bool:
    return wanted == "" or (each.is_late if wanted == LATE else each.state == wanted)


def tiles(rows: Sequence[Row]) -> tuple[Tile, ...]:
    """Returns the counters: all, those that fail or are late, then the other states that there are."""
    states = Counter(each.state for each in rows)
    late = sum(each.is_late for each in rows)
    others = [state for state in (ConnectorState.RESTARTING, ConnectorState.UNASSIGNED) if states[state]]
    return (
        Tile("Connectors", len(rows), "idle", ""),
        Tile("Failed", states[ConnectorState.FAILED], "bad", ConnectorState.FAILED.value),
        Tile("Late", late, "warn", LATE),
        Tile("Running", states[ConnectorState.RUNNING], "good", ConnectorState.RUNNING.value),
        *(Tile(state.value.capitalize(), states[state], "warn", state.value) for state in others),
        Tile("Paused", states[ConnectorState.PAUSED], "idle", ConnectorState.PAUSED.value),
        Tile("Stopped", states[ConnectorState.STOPPED], "idle", ConnectorState.STOPPED.value),
    )
