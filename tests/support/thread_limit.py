"""A process that may start no further threads, as one in a container that has as many as it may."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest


@contextmanager
def no_thread_named(*beginnings: str, times: int | None = None) -> Iterator[None]:
    """Inside the block no thread can be started with a name that begins with any of these; so many `times` only."""
    start, refused = threading.Thread.start, count(1)

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(beginnings) and (times is None or next(refused) <= times):
            raise RuntimeError("can't start new thread")
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)  # Python's own: no part of a worker makes it refuse
        yield
