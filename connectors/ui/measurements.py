"""Measures the worker's connectors for all pages that are open: once a second at most, however many ask."""

from __future__ import annotations

import threading
from typing import Final

from connectors.metrics.measured import MeasuredConnector, measured
from connectors.metrics.source_lag import SourceLagOf
from connectors.rest.context import RestContext
from connectors.runtime.supervised_connector import Connector
from connectors.ui.conditions import LATE_MS
from connectors.ui.overview import Row, row

KEPT_MS: Final = 1_000
"""How long (ms) rows count: ten pages then cost as much as one, and no person notices a second."""


class Measurements:
    """Measures connectors, and makes the rows of the overview; threads share it."""

    def __init__(self, context: RestContext, lag: SourceLagOf) -> None:
        self._context = context
        self._lag = lag
        # The rows of the last measurement and its time by the monotonic clock (ms); replaced under the lock.
        self._rows: tuple[Row, ...] = ()
        self._measured_ms: int | None = None
        self._lock = threading.Lock()

    @property
    def late_ms(self) -> int:
        """From how much lag (ms) on a connector is late."""
        return self._context.worker.health_max_lag_ms or LATE_MS

    def of(self, connector: Connector) -> MeasuredConnector:
        """Measures one connector now."""
        return measured(connector, self._lag(connector, self._context.clock.now_ms()))

    def rows(self) -> tuple[Row, ...]:
        """Returns the rows of all connectors, at most KEPT_MS old."""
        with self._lock:
            now_ms = self._context.clock.monotonic_ms()
            if self._measured_ms is None or now_ms - self._measured_ms >= KEPT_MS:
                self._rows = tuple(self._measure())
                self._measured_ms = now_ms
            return self._rows

    def forget(self) -> None:
        """Forgets the rows: something was changed, and is to be seen at once."""
        with self._lock:
            self._measured_ms = None

    def _measure(self) -> list[Row]:
        now_ms = self._context.clock.now_ms()
        return [row(each, self.of(each), now_ms, self.late_ms) for each in self._context.herder.connectors()]
