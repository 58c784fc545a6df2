"""Lets one thread of this process at a time do what would take the processor from all others.

Two kinds of work do so: reading a backlog, and rewriting runs. Work that may hold Spark's tasks for long leaves one of
them to the process's other connectors, if there are any.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LOOK_S: Final = 0.2
"""How often (s) a thread that waits for its turn looks whether it is to stop."""


SHARED: Final = threading.Event()
"""Set while this process has several connectors."""


def most_tasks(tasks: int) -> int:
    """Returns how many of Spark's `tasks`, those that run at once, long work may have: all but one if it is SHARED."""
    return max(1, tasks - 1) if SHARED.is_set() else tasks


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
