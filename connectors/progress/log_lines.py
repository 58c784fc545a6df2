"""Keeps the last lines that this process has logged of each connector, as the worker's page shows them."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict, deque
from typing import Final

from msgspec import Struct
from structlog.typing import EventDict, WrappedLogger

from connectors.clock import SYSTEM_CLOCK, Clock

MOST_LINES: Final = 200
"""Lines that are kept of a connector."""
LINE_MAX: Final = 1_000
"""Characters of a line's event, and of its fields: an error with what to do next, without its traceback."""
MOST_BYTES: Final = 16 << 20
"""Memory of all lines: 40 usual ones of each of 1,000 connectors. All at their longest would take over 1 GB."""
MOST_CONNECTORS: Final = 1_000
"""Connectors of which lines are kept, those that have logged last: as many as a worker has."""
_ELSEWHERE: Final = ("timestamp", "level", "event", "connector", "logger", "exception", "stack")


class LogLine(Struct, frozen=True):
    """A line: when it was kept, its time (ISO 8601, UTC), level, event, and its fields as text."""

    kept_ms: int
    at: str
    level: str
    event: str
    fields: str


class LogLines:
    """Keeps the lines of each connector; threads share it. If memory is full, who has most loses the oldest."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        # By connector, the one that has logged last at the end; changed under the lock.
        self._lines: OrderedDict[str, deque[LogLine]] = OrderedDict()
        self._bytes: dict[str, int] = {}
        self._all_bytes = 0
        self._lock = threading.Lock()

    def keep(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Keeps the line of an event of a connector, in which secrets are masked already: a structlog processor."""
        name = event.get("connector")
        if isinstance(name, str):
            self._add(name, _line(event, self._clock.now_ms()))
        return event

    def _add(self, name: str, line: LogLine) -> None:
        with self._lock:
            self._lines.setdefault(name, deque()).append(line)
            self._lines.move_to_end(name)
            self._count(name, _bytes(line))
            if len(self._lines[name]) > MOST_LINES:
                self._drop_oldest(name)
            if len(self._lines) > MOST_CONNECTORS:
                self._forget(next(iter(self._lines)))
            while self._all_bytes > MOST_BYTES:
                self._drop_oldest(max(self._bytes, key=self._bytes.__getitem__))

    def _drop_oldest(self, name: str) -> None:
        self._count(name, -_bytes(self._lines[name].popleft()))

    def _forget(self, name: str) -> None:
        del self._lines[name]
        self._all_bytes -= self._bytes.pop(name)

    def _count(self, name: str, size: int) -> None:
        self._bytes[name] = self._bytes.get(name, 0) + size
        self._all_bytes += size

    def of(self, name: str, since_ms: int = 0) -> tuple[LogLine, ...]:
        """Returns the lines of the connector that has the name since `since_ms`, the newest first."""
        with self._lock:
            return tuple(line for line in reversed(self._lines.get(name, ())) if line.kept_ms >= since_ms)


LOG_LINES: Final = LogLines()
"""Those of this process."""


def _bytes(line: LogLine) -> int:
    """Returns the memory of a line: a character takes up to four bytes."""
    return sum(map(sys.getsizeof, (line, line.kept_ms, line.at, line.level, line.event, line.fields)))


def _line(event: EventDict, kept_ms: int) -> LogLine:
    fields = " ".join(f"{key}={value}" for key, value in event.items() if key not in _ELSEWHERE)
    return LogLine(
        kept_ms=kept_ms,
        at=str(event.get("timestamp", "")),
        level=str(event.get("level", "")),
        event=str(event.get("event", ""))[:LINE_MAX],
        fields=fields[:LINE_MAX],
    )
