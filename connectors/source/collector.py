"""Keeps Python's cyclic garbage collector off while messages are polled and made Arrow of.

It would look through the thousands of messages of every poll again and again (docs/decisions/findings.md); none of them
is in a cycle.

On its own because it has state of the process.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

Result = TypeVar("Result")

OFF_S: Final = 5.0
"""For how long (s) it is off at most if the calls of several threads overlap without a break: garbage in cycles
would pile up as long as they read."""


class _Collector:
    """The collector, as the calls under way want it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls = 0  # under way, of all threads
        self.off_since = 0.0  # in monotonic seconds; of no meaning while it is on


_collector: Final = _Collector()


def uncollected(call: Callable[[], Result]) -> Result:
    """Returns what `call` returns, made with the collector off; it is on again as soon as no thread is in such a call.

    A function, as a generator that is suspended in a `with` block can stay there for good: whoever keeps an error of
    its consumer keeps its frame, and with it the block.
    """
    with _collector.lock:
        if gc.isenabled():
            _collector.off_since = time.monotonic()
        _collector.calls += 1
        gc.disable()
    try:
        return call()
    finally:
        with _collector.lock:
            _collector.calls -= 1
            if not _collector.calls or time.monotonic() - _collector.off_since > OFF_S:
                gc.enable()
