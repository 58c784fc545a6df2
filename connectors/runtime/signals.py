"""Signal handlers for as long as a block runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], None]


@contextmanager
def handled(wanted: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    """Sets these handlers, and the earlier ones at the end; none outside the main thread, where Python allows none."""
    mine = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number, handler in wanted.items()} if mine else {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
