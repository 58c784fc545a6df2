"""Keeps Python's cyclic garbage collector from stopping all threads for long: it goes through all objects that live.

It is off for calls that make many objects, none of which is in a cycle: to decode 8 MiB of JSON that is a list of lists
takes 0.5 s with it, and 0.1 s without. Modules and classes, of which a worker loads many, it looks at no more: that
took 0.1 s each time (docs/decisions/findings.md).
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

Result = TypeVar("Result")
Text = TypeVar("Text", str, bytes)

OFF_S: Final = 5.0
"""For how long (s) the collector is off at most if the calls of several threads overlap without a break: garbage in
cycles would pile up as long as they go on."""
LONG: Final = 64 << 10
"""Characters of a text that is decoded without the collector. Of a shorter one it goes through 20,000 objects at most,
which takes less than a millisecond."""


class _Collector:
    """The collector, as the calls under way want it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        # Under way, of all threads.
        self.calls = 0
        # In monotonic seconds; of no meaning while it is on.
        self.off_since = 0.0


_collector: Final = _Collector()


def uncollected(call: Callable[[], Result], off_s: float = OFF_S) -> Result:
    """Returns what `call` returns, made with the collector off; it is on again as soon as no thread is in such a call.

    It is on after `off_s` in any case. `call` is a function, as a generator that is suspended in a `with` block can
    stay there for good: an error of its consumer that is kept keeps its frame, and with it the block.
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
            if not _collector.calls or time.monotonic() - _collector.off_since > off_s:
                gc.enable()


def leave_out_what_lives() -> None:
    """Has the collector pass over all that lives now: modules, classes, what a start has made.

    Of these nothing is freed any more that comes to be in a cycle. So it is for a process that has started, and once.
    It does not collect before: that would take as long as each collection that it spares.
    """
    gc.freeze()


def leave_out_library(name: str) -> None:
    """Has the collector pass over what lives now, once for each library of this `name` that is loaded after the start.

    pyiceberg makes 74,000 objects that live. With them each collection in the midst of a commit of 3,000 columns held
    all threads for up to 0.14 s of processor time; without them for up to 0.07 s.
    """
    if name not in _left_out:
        _left_out.add(name)
        leave_out_what_lives()


_left_out: Final[set[str]] = set()


def decoded(decode: Callable[[Text], Result], text: Text) -> Result:
    """Returns what `decode` makes of a text, with the collector off if it is LONG. Raises what `decode` raises."""
    return decode(text) if len(text) < LONG else uncollected(lambda: decode(text))
