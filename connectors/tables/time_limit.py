"""Bounds how long a table's commit waits for its catalog: a library that hangs holds up no other connector.

A call that hangs cannot be interrupted. It is left alone on its daemon thread, and whatever comes of it is met by the
next commit as anybody's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from compactor.errors import StoppedError
from compactor.turns import LOOK_S
from connectors.clock import SYSTEM_CLOCK
from connectors.threads import CancellableThread

CALLS_S: Final = 60.0
"""How long the calls of one commit may take in all. They take seconds, and proxies give up after a minute too."""


class Calls:
    """The calls of one commit to its table's library: made by one thread, and looked at by the one that waits."""

    def __init__(self) -> None:
        # Set once the other thread waits no more; from then on no call begins.
        self._ended = threading.Event()
        # The ms that calls took, and when the one that runs began; replaced as a whole by the thread.
        self._time: tuple[int, int | None] = (0, None)
        self.is_made = False
        """Whether the table is committed. Set by `made`."""

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Counts the time in the block. Raises StoppedError once the other thread waits no more."""
        self.check()
        before_ms, began_ms = self._time[0], SYSTEM_CLOCK.monotonic_ms()
        self._time = (before_ms, began_ms)
        try:
            yield
        finally:
            self._time = (before_ms + SYSTEM_CLOCK.monotonic_ms() - began_ms, None)

    def check(self) -> None:
        """Raises StoppedError once the other thread waits no more."""
        if self._ended.is_set():
            raise StoppedError("Nobody waits for the table's commit any more.", "The next snapshot makes another.")

    def made(self) -> None:
        """Notes that the table is committed: what follows counts by itself, and failures do no harm."""
        self.is_made, self._time = True, (0, None)

    def seconds(self) -> float:
        """Returns the time of all calls, with the one that runs."""
        before_ms, began_ms = self._time
        return (before_ms + (0 if began_ms is None else SYSTEM_CLOCK.monotonic_ms() - began_ms)) / 1000

    def end(self) -> None:
        """Has no call begin any more."""
        self._ended.set()


def run_within(seconds: float, stopped: Callable[[], bool], name: str, work: Callable[[Calls], None]) -> None:
    """Runs `work` on a thread of its own and waits for it; raises what it raises.

    Raises StoppedError at a stop, and TimeoutError once its calls take longer than `seconds`; if the table is committed
    by then, it returns.
    """
    calls = Calls()
    thread = CancellableThread(name, lambda _stop: work(calls))
    thread.start()
    while not thread.join(LOOK_S):
        is_stopping = stopped()
        if not is_stopping and calls.seconds() <= seconds:
            continue
        calls.end()
        thread.stop()
        if calls.is_made:
            return
        if is_stopping:
            raise StoppedError("A stop came before a table was committed.", "It is committed after the next start.")
        raise TimeoutError(f"its catalog did not answer within {seconds:g} s")
    if thread.failure is not None:
        raise thread.failure
