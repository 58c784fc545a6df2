"""Lets one thread of this process at a time do what would take the processor from all others.

Two kinds of work do so: reading a backlog, and rewriting runs. Work that may hold Spark's tasks for long leaves one of
them to what this process reads and publishes meanwhile: Spark takes no task away from a job that has it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LOOK_S: Final = 0.2
"""How often (s) a thread that waits for its turn looks whether it is to stop."""


class Readers:
    """Counts the connectors that read in this process; true while there are any. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    def __bool__(self) -> bool:
        return self._count > 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Counts one more in the block."""
        with self._lock:
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1


READERS: Final = Readers()
"""Those of this process: its query subscribes them."""


def most_tasks(tasks: int) -> int:
    """Returns how many of Spark's `tasks`, those that run at once, long work has: all but one if there are READERS."""
    return max(1, tasks - 1) if READERS else tasks


def bound(most: int, tasks: int) -> int | None:
    """Returns in how many tasks a job of long work runs, `most`; None if it may have all of Spark's `tasks`.

    It then has as many as it has pieces of work, and each goes to the core that is free first.
    """
    return most if most < tasks else None


@contextmanager
def turn(lock: threading.Lock, stopped: Callable[[], bool]) -> Iterator[bool]:
    """Holds `lock` in the block and yields True; yields False, without it, once `stopped` returns True."""
    while not (mine := lock.acquire(timeout=LOOK_S)) and not stopped():
        pass
    try:
        yield mine
    finally:
        if mine:
            lock.release()
