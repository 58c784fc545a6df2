"""Passes on what a JVM writes to stderr, without the line that every start writes and that needs no action.

On its own because it knows nothing of Spark, whose session it serves.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_NOISE: Final = b"WARNING: Using incubator modules"
_STDERR: Final = 2


@contextmanager
def quietly() -> Iterator[int]:
    """Yields a descriptor for the stderr of a JVM that is started inside; what comes there goes on to ours by line.

    The thread that hands it on ends with the last process that has the descriptor.
    """
    source, sink = os.pipe()
    threading.Thread(target=_hand_on, args=(source,), name="jvm-stderr", daemon=True).start()
    try:
        yield sink
    finally:
        os.close(sink)


def _hand_on(source: int) -> None:
    with os.fdopen(source, "rb") as lines:
        for line in lines:
            if not line.startswith(_NOISE):
                _write(line)


def _write(line: bytes) -> None:
    """Writes to stderr. A stderr that went away does not end the thread: writers would wait for ever on a full pipe."""
    with suppress(OSError):
        while line:
            line = line[os.write(_STDERR, line) :]
