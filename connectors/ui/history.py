"""Keeps how much each connector published in the last hour, and how far it was from its source: a sample every 10 s."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable
from typing import Final

import structlog
from msgspec import Struct

from connectors.clock import Clock
from connectors.threads import CancellableThread
from connectors.ui.measurements import Measurements
from connectors.ui.overview import Row

EVERY_MS: Final = 10_000
"""How often (ms) a sample is taken: the measuring of 100 connectors takes some ms of a core."""
MOST_SAMPLES: Final = 360
"""Those of an hour, in 3 KB a connector."""

_log = structlog.get_logger()


class Samples(Struct, frozen=True):
    """The samples of a connector, the oldest first: records published a second, and offsets not taken in."""

    rates: tuple[float, ...] = ()
    lags: tuple[float, ...] = ()


class _Kept:
    """The samples of a connector, and what the last one has counted."""

    def __init__(self, published: int) -> None:
        self.published = published
        self.rates = array("f")
        self.lags = array("f")

    def add(self, published: int, lag: int, seconds: float) -> None:
        """Adds a sample. A count that has fallen began again from 0, as the connector was started again."""
        since = published - self.published if published >= self.published else published
        self.published = published
        for values, value in ((self.rates, since / seconds), (self.lags, float(lag))):
            values.append(value)
            if len(values) > MOST_SAMPLES:
                del values[0]


class SampleHistory:
    """Keeps samples of all connectors, and takes them on a thread of its own between `start` and `stop`."""

    def __init__(self, measurements: Measurements, clock: Clock) -> None:
        self._measurements = measurements
        self._clock = clock
        # By name, and since when it is that connector's; changed under the lock.
        self._kept: dict[tuple[str, int], _Kept] = {}
        # When the last sample was taken, by the monotonic clock (ms).
        self._taken_ms: int | None = None
        self._lock = threading.Lock()
        self._thread = CancellableThread("page-history", self._run)

    def start(self) -> None:
        """Begins to take samples."""
        self._thread.start()

    def stop(self) -> None:
        """Takes no more."""
        self._thread.stop()

    @property
    def taken_ms(self) -> int | None:
        """When the last sample was taken, by the monotonic clock (ms); None before the first."""
        return self._taken_ms

    def of(self, name: str, since_ms: int = 0) -> Samples:
        """Returns the samples of the connector that has the name since `since_ms`."""
        with self._lock:
            kept = self._kept.get((name, since_ms))
            return Samples() if kept is None else Samples(tuple(kept.rates), tuple(kept.lags))

    def take(self, rows: Iterable[Row], now_ms: int) -> None:
        """Takes a sample of each of `rows`, at a time of the monotonic clock; forgets connectors that are gone."""
        with self._lock:
            seconds = 0.0 if self._taken_ms is None else (now_ms - self._taken_ms) / 1000
            kept = {}
            for row in rows:
                key = (row.name, row.since_ms)
                kept[key] = before = self._kept.get(key) or _Kept(row.records_published)
                if seconds > 0:
                    before.add(row.records_published, row.source_lag or 0, seconds)
            self._kept, self._taken_ms = kept, now_ms

    def _run(self, stop: threading.Event) -> None:
        while True:
            try:
                self.take(self._measurements.rows(), self._clock.monotonic_ms())
            except Exception as error:  # noqa: BLE001  # it is only shown, and taken again
                _log.debug("no sample was taken", exc_info=error)
            if self._clock.wait_ms(EVERY_MS, stop):
                return
