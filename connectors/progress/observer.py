"""Shows a person how far long work is: on a live display on a terminal, in log lines elsewhere.

The tasks of several connectors report from their own threads; each call returns at once. Counts are one log line a
minute per connector on either, and the last ones at the end, so that a log file has them too.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import structlog

from connectors.clock import Clock
from connectors.progress.rare_warnings import Warned, after_records
from connectors.progress.terminal import is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress, Task

LINES_AFTER_MS: Final = (5_000, 10_000, 20_000, 40_000, 60_000)
"""The pauses between the lines of one stage; the last one repeats."""
# Between two lines of one connector's counts.
COUNTS_EVERY_MS: Final = 60_000

log = structlog.get_logger(__name__)


class Observer:
    """Receives how far the tasks of connectors are, and shows nothing of it."""

    def stage(self, connector: str, name: str) -> None:
        """Reports that `connector` begins the stage `name`, for example `reading`."""

    def progress(self, connector: str, stage: str, done: int, total: int | None, unit: str) -> None:
        """Reports that `done` of `total` (None: unknown) `unit`s (records, bytes, offsets) of `stage` are done."""

    def counts(self, connector: str, counters: Mapping[str, int]) -> None:
        """Reports what has been counted since the connector started."""


class Interval:
    """Lets the first of a kind through, and the next ones after these pauses, in ms; the last pause repeats.

    Safe to call from any thread.
    """

    def __init__(self, clock: Clock, *pauses_ms: int) -> None:
        self._clock = clock
        self._pauses_ms = pauses_ms
        # By kind: when (monotonic ms) the next is due, and how many were let through. Changed under `_lock`.
        self._known: dict[Hashable, Warned] = {}
        self._lock = threading.Lock()

    def ready(self, kind: Hashable) -> bool:
        """Returns whether it is time again for `kind`; if so, its next pause begins."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            self._known[kind], due = after_records(self._known.get(kind), 1, now_ms, self._pauses_ms)
            return due is not None

    def begin_pause(self, kind: Hashable) -> None:
        """Begins a pause of `kind` now, unless one is under way, as if `ready` had let it through."""
        self.ready(kind)

    def begin(self, kind: Hashable) -> None:
        """Forgets `kind`: its next one is let through."""
        with self._lock:
            self._known.pop(kind, None)


class CountsObserver(Observer):
    """Logs what a connector has counted and is not 0: once a minute, and at the end what was not logged yet."""

    def __init__(self, clock: Clock) -> None:
        self._times = Interval(clock, COUNTS_EVERY_MS)
        # By connector: the newest counts that were not logged yet, and those that were logged last.
        self._waiting: dict[str, Mapping[str, int]] = {}
        self._logged: dict[str, Mapping[str, int]] = {}

    def counts(self, connector: str, counters: Mapping[str, int]) -> None:
        """Logs `counters`, or keeps them for later; nothing if all are 0."""
        if not any(counters.values()):
            return
        self._waiting[connector] = dict(counters)
        if self._times.ready(connector):
            self._log(connector)

    def close(self) -> None:
        """Logs the counts that were kept, if they differ from the last logged ones."""
        for connector, counters in sorted(self._waiting.items()):
            if counters != self._logged.get(connector):
                self._log(connector)

    def _log(self, connector: str) -> None:
        self._logged[connector] = self._waiting.pop(connector)
        # Without those that are 0: two dozen in a line are hard to read.
        counted = {name: count for name, count in self._logged[connector].items() if count}
        log.info("counts", connector=connector, **counted)


class LineObserver(CountsObserver):
    """Logs a line when a stage begins, rarer and rarer ones while it goes on, and one a minute with the counts."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._lines = Interval(clock, *LINES_AFTER_MS)
        # By connector: the present stage; and the stage with the progress that was logged last.
        self._stages: dict[str, str] = {}
        self._shown: dict[str, tuple[str, int]] = {}

    def stage(self, connector: str, name: str) -> None:
        """Logs `name`, unless the connector is in that stage already."""
        if self._stages.get(connector) != name:
            self._stages[connector] = name
            self._lines.begin((connector, name))
            log.debug("stage", connector=connector, stage=name)

    def progress(self, connector: str, stage: str, done: int, total: int | None, unit: str) -> None:
        """Logs how far `stage` is: soon, then once a minute, and only when it has got further."""
        if not done and not total:
            return
        if self._shown.get(connector) != (stage, done) and self._lines.ready((connector, stage)):
            self._shown[connector] = (stage, done)
            shown = {"total": total, "percent": 100 * done // total} if total else {}
            log.info("progress", connector=connector, stage=stage, done=done, unit=unit, **shown)


class LiveObserver(CountsObserver):
    """Shows one line per connector on a terminal: stage, bar, amount and time; log lines pass above it."""

    def __init__(self, clock: Clock, display: Progress) -> None:
        super().__init__(clock)
        self._display = display
        # The line of each connector. Changed under `_lock`, as each connector reports from a thread of its own.
        self._tasks: dict[str, Task] = {}
        self._lock = threading.Lock()

    def stage(self, connector: str, name: str) -> None:
        """Shows `name` with an empty bar."""
        self._show(connector, name, 0, None, "")

    def progress(self, connector: str, stage: str, done: int, total: int | None, unit: str) -> None:
        """Moves the bar; as long as nothing is done it only pulses."""
        self._show(connector, stage, done, total if done else None, amount(done, total, unit))

    def _show(self, connector: str, stage: str, done: int, total: int | None, text: str) -> None:
        with self._lock:
            task = self._tasks.get(connector) or self._add(connector)
            if task.fields["stage"] != stage:
                self._display.reset(task.id)
            task.total = total  # Rich takes a total of None as `the same as before`
            self._display.update(task.id, completed=done, stage=stage, amount=text)

    def _add(self, connector: str) -> Task:
        number = self._display.add_task(connector, total=None, stage="", amount="")
        self._tasks[connector] = next(task for task in self._display.tasks if task.id == number)
        return self._tasks[connector]


def amount(done: int, total: int | None, unit: str) -> str:
    """Returns `1,200 of 336,776 records`, or without a total `1,200 records`."""
    return f"{done:,} of {total:,} {unit}" if total is not None else f"{done:,} {unit}"


@contextmanager
def observing(clock: Clock) -> Iterator[Observer]:
    """Yields the observer that fits stderr; a live display ends with the block."""
    with _observer(clock) as observer:
        try:
            yield observer
        finally:
            observer.close()


@contextmanager
def _observer(clock: Clock) -> Iterator[LineObserver | LiveObserver]:
    if not is_terminal(sys.stderr):
        yield LineObserver(clock)
        return
    from connectors.progress.live import live_display

    with live_display() as display:
        yield LiveObserver(clock, display)
