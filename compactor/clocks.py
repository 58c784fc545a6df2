"""Watches the clocks that records and worker bring along: counts what cannot be right, says it once.

Nothing depends on it. A record stamped in the future ages from its arrival (`reading.first_young`, `log.aged_from`);
where the worker's clock steps back nothing that was decided moves back (`schedule.publishable`, `tombstones.horizon`).
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from compactor.metrics import Counters
from compactor.runs.file_stats import FileStats

_log = structlog.get_logger()


class Clocks:
    """Of one life of a connector."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._latest_ms: int | None = None
        self._said: set[str] = set()

    def told(self, now_ms: int) -> None:
        """The worker's clock says `now_ms`."""
        before, self._latest_ms = self._latest_ms, now_ms
        if before is None or now_ms >= before:
            return
        self._counters.add("clock_steps_back", 1)
        self._once("the clock was set back; nothing that was published or folded moves back", by_ms=before - now_ms)

    def stamped(self, parts: Iterable[FileStats]) -> None:
        """Records of `parts` have arrived."""
        for part in parts:
            if part.future:
                where = {"topic": part.topic, "partition": part.partition, "up_to_offset": part.file.last}
                self._once("records are stamped in the future; they age from their arrival", **where)

    def _once(self, event: str, **where: object) -> None:
        if event not in self._said:
            self._said.add(event)
            _log.warning(event, **where)
