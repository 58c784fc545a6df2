"""Draws the rows of the overview: each as often as what it shows changes, not each time that a page is made."""

from __future__ import annotations

from typing import Final, TypeAlias

from markupsafe import Markup

from connectors.ui.history import SampleHistory
from connectors.ui.overview import Row
from connectors.ui.templates import render
from connectors.ui.texts import time_tag

MOST_ROWS: Final = 2_000
"""Rows that are kept drawn, some 2 KB each: those of twenty full overviews. Beyond that all are drawn again."""

_Shown: TypeAlias = tuple[Row, int | None, Markup]


class DrawnRows:
    """Keeps the rows as they were drawn last; threads share it, and two of them may draw a row at once."""

    def __init__(self, history: SampleHistory) -> None:
        self._history = history
        self._kept: dict[str, tuple[_Shown, Markup]] = {}

    def html(self, row: Row, now_ms: int) -> Markup:
        """Returns the HTML of a row, the same text for as long as it shows the same."""
        shown = (row, self._history.taken_ms, time_tag(row.snapshot_ms, now_ms))
        kept = self._kept.get(row.name)
        if kept is not None and kept[0] == shown:
            return kept[1]
        rates = self._history.of(row.name, row.since_ms).rates
        drawn = Markup(render("overview_row.html", row=row, rates=rates, snapshot=shown[2]))  # noqa: S704  # a template
        if len(self._kept) >= MOST_ROWS:
            self._kept = {}
        self._kept[row.name] = (shown, drawn)
        return drawn
