"""The order, the counters and the pages of the overview."""

from __future__ import annotations

import pytest

from compactor.metrics import Freshness
from compactor.model.record import TopicPartition
from connectors.metrics.measured import measured
from connectors.metrics.source_lag import SourceLag
from connectors.runtime.status import ConnectorState, Status
from connectors.ui.conditions import LATE_MS
from connectors.ui.overview import PAGE_ROWS, Row, fresh_within, overview, row
from tests.support.logs import base, log, run
from tests.support.measured import NOW_MS, connector, state, stopped

FAILED = Status(ConnectorState.FAILED, "Topic t is gone.\nMake it again.", 3)
WAITING = Status(ConnectorState.RESTARTING, "No broker answers.", 1, NOW_MS + 1, NOW_MS - 1)
PAUSED = Status(ConnectorState.PAUSED)
LOG = log(run(100, 150, 400), clean=base(100, 1_200), published=150)


def a_row(name: str, status: Status = Status(ConnectorState.RUNNING), behind_ms: int = 0) -> Row:  # noqa: B008
    """The row of a connector, the oldest unread record of which waits for `behind_ms`."""
    made = connector(name, state(LOG), status)
    lag = {TopicPartition("t", 0): SourceLag(7, NOW_MS - behind_ms if behind_ms else None)}
    return row(made, measured(made, lag), NOW_MS)


def test_what_fails_or_is_late_comes_first() -> None:
    """FAILED, then who waits for an outage, then the latest, then the others by name."""
    rows = [
        a_row("a"),
        a_row("late", behind_ms=LATE_MS),
        a_row("later", behind_ms=2 * LATE_MS),
        a_row("paused", PAUSED, 9 * LATE_MS),
        a_row("waits", WAITING),
        a_row("z-failed", FAILED),
        row(stopped("stopped"), measured(stopped("stopped")), NOW_MS),
    ]
    shown = overview(rows, NOW_MS)
    assert [each.name for each in shown.rows] == ["z-failed", "waits", "later", "late", "a", "paused", "stopped"]
    assert [each.is_late for each in shown.rows] == [False, False, True, True, False, False, False]


def test_the_counters_count_all_whatever_is_shown() -> None:
    """A tile leads to those that it counts."""
    rows = [a_row("a"), a_row("b", FAILED), a_row("c", behind_ms=LATE_MS)]
    for wanted, names in (("", ["b", "c", "a"]), ("FAILED", ["b"]), ("late", ["c"]), ("STOPPED", []), ("x", [])):
        shown = overview(rows, NOW_MS, wanted)
        assert [each.name for each in shown.rows] == names
        assert {tile.label: tile.number for tile in shown.tiles} == {
            "Connectors": 3, "Failed": 1, "Late": 1, "Running": 2, "Paused": 0, "Stopped": 0
        }  # fmt: skip


def test_the_first_line_of_the_trace_is_in_the_row() -> None:
    """The rest is on the connector's own page."""
    assert a_row("a", FAILED).note == "Topic t is gone."
    assert a_row("a").note is None


@pytest.mark.parametrize(("page", "first", "number"), [(0, 0, 1), (1, 0, 1), (2, PAGE_ROWS, 2), (9, 2 * PAGE_ROWS, 3)])
def test_many_connectors_have_pages(page: int, first: int, number: int) -> None:
    """A page that there is not is the nearest."""
    rows = [a_row(f"c{each:04}") for each in range(2 * PAGE_ROWS + 1)]
    shown = overview(rows, NOW_MS, page=page)
    assert (shown.page, shown.pages, shown.rows[0].name) == (number, 3, f"c{first:04}")
    assert len(shown.rows) <= PAGE_ROWS


@pytest.mark.parametrize(
    ("sent", "bound"),
    [((), None), (((0.05, 100),), 0.1), (((0.05, 99), (70, 1)), 0.1), (((0.05, 98), (70, 2)), float("inf"))],
)
def test_freshness_is_that_of_99_in_100(sent: tuple[tuple[float, int], ...], bound: float | None) -> None:
    """One in a hundred may be later."""
    freshness = Freshness()
    for age_s, records in sent:
        freshness = freshness.with_sent(age_s, records)
    assert fresh_within(freshness) == bound


def test_a_row_sums_the_lag_that_is_known() -> None:
    """Without an answer of the brokers it is not 0, but not known."""
    made = connector("a", state(LOG))
    assert row(made, measured(made), NOW_MS).source_lag is None
    assert a_row("a").source_lag == 7
