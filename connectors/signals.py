"""Handles signals for as long as a block runs, or keeps them for what is not there yet."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], None]


@contextmanager
def handled(wanted: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    """Sets these handlers, and the earlier ones at the end; none outside the main thread: Python allows none there."""
    mine = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number, handler in wanted.items()} if mine else {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """Ends a command at a signal as Ctrl-C does: its blocks are left, so that what it has started ends too."""
    raise KeyboardInterrupt


class HeldSignals:
    """Keeps signals that come before there is anything that could take them; `hand_to` names what does.

    A worker takes a second to import that, and Spark's JVM starts meanwhile. Ended by the signal itself, the process
    would leave Spark's settings file, and a stop would look like a failure.
    """

    def __init__(self) -> None:
        self._kept: list[int] = []
        self._handler: Handler | None = None

    def take(self, number: int, frame: FrameType | None) -> None:
        """Takes a signal: the handler of them."""
        if self._handler is None:
            self._kept.append(number)
        else:
            self._handler(number, frame)

    def hand_to(self, handler: Handler) -> None:
        """Has `handler` take what has come, and what comes from now on."""
        self._handler = handler
        while self._kept:
            handler(self._kept.pop(0), None)
