"""The rows of the overview are drawn as often as they change."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from connectors.metrics.measured import measured
from connectors.ui.drawn_rows import MOST_ROWS, DrawnRows
from connectors.ui.history import EVERY_MS, SampleHistory
from connectors.ui.overview import Row, row
from tests.support.clocks import ManualClock
from tests.support.measured import NOW_MS, RUNNING, connector, state

MADE = connector("a", state(), RUNNING)
A_ROW = replace(
    row(MADE, measured(MADE), NOW_MS),
    snapshot_ms=NOW_MS - 90_000,
)


def history() -> SampleHistory:
    return SampleHistory(None, ManualClock())  # type: ignore[arg-type]  # it takes what a test gives it


def test_a_row_that_shows_the_same_is_not_drawn_again() -> None:
    """To draw it takes many times as long as to see that it is the same."""
    rows = DrawnRows(history())
    first = rows.html(A_ROW, NOW_MS)
    assert rows.html(replace(A_ROW), NOW_MS + 1) is first
    assert first.startswith('<!--part--><tr id="row-a"')
    assert first.endswith("</tr><!--/part-->")


@pytest.mark.parametrize(
    ("changed", "now_ms", "text"),
    [
        (replace(A_ROW, records_published=1_234), NOW_MS, "1,234"),
        (replace(A_ROW, since_ms=A_ROW.since_ms + 1, target="x"), NOW_MS, "1 min 30 s ago"),
        (A_ROW, NOW_MS + 1_000, "1 min 31 s ago"),
    ],
)
def test_a_row_that_shows_something_else_is_drawn_again(changed: Row, now_ms: int, text: str) -> None:
    """Also if it is the time that has gone on, or another connector with its name."""
    rows = DrawnRows(history())
    first = rows.html(A_ROW, NOW_MS)
    again = rows.html(changed, now_ms)
    assert again is not first
    assert text in again


def test_a_new_sample_is_drawn() -> None:
    """The line of what was published goes on."""
    samples = history()
    rows = DrawnRows(samples)
    before = rows.html(A_ROW, NOW_MS)
    for at in range(3):
        samples.take([replace(A_ROW, records_published=100 * at)], at * EVERY_MS)
    assert "polyline" not in before
    assert "now 10, at most 10" in rows.html(A_ROW, NOW_MS)


def test_rows_of_connectors_that_are_gone_are_not_kept_for_ever() -> None:
    """However many names there were, so many rows are kept at most; then all are drawn again once."""
    rows = DrawnRows(history())
    first = rows.html(A_ROW, NOW_MS)
    for number in range(MOST_ROWS):
        rows.html(replace(A_ROW, name=f"b{number}"), NOW_MS)
    assert rows.html(A_ROW, NOW_MS) is not first
