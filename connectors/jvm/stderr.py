"""Passes on what a JVM writes to stderr, without lines that need no action, and keeps the last ones."""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import structlog

from connectors.known_values import hide_all, without_credentials

_log = structlog.get_logger()

_NOISE: Final = (b"WARNING: Using incubator modules", b"WARNING: package sun.security.action not in java.base")
"""Said at every start: of an option of Spark's, and from Java 24 on of another that no longer has a meaning there."""
_STDERR: Final = 2
_KEPT: Final = 200
"""Lines: Spark's script shows its usage, of 120 lines, below what is wrong."""
_END_S: Final = 2.0
"""How long the last lines of a JVM that has ended are waited for; a process that it left may hold the pipe open."""
_REASON: Final = re.compile(
    r"error|exception|invalid|improper|unrecognized|unsupported|not allowed|cannot|could not|fail|insuffi",
    re.IGNORECASE,
)
_SAYS_NOTHING: Final = re.compile(
    r"\s|$|#$|Picked up |NOTE: |WARNING: |Error: Could not create the Java Virtual Machine|Caused by: "
    r"|Error: A (JNI error|fatal exception) has occurred|Error occurred during initialization of VM|.* VM warning: "
)
"""Lines that stand around the one with the reason."""
_MAIN_FAILS: Final = b'Exception in thread "main"'
_FRAME: Final = re.compile(rb"\s+(at |\.\.\. \d+ more)")
_BEFORE: Final = re.compile(r'^(# |Error: |Exception in thread "main" |\[[\d.]+s\]\[\w+ *\]\[[\w,]+ *\] )+')


class JvmStderr:
    """What a JVM writes to `descriptor`, on its way to our stderr.

    While it starts, stack traces stay out of it: the line above them becomes an error of keyfold's. Once it is being
    ended, nothing of it is an error any more: its Python processes show traces of sockets that are closed.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._lines: deque[bytes] = deque(maxlen=_KEPT)
        """The last lines, in their order; the thread adds them."""
        self._ended = threading.Event()
        """Set once no process has the descriptor any more."""
        self._starting = True
        """Whether there is no session yet; changed by `start_is_over`."""
        self._main_has_failed = False
        self._ending = False
        """Whether nobody needs it any more; changed by `end_begins`."""

    @property
    def main_has_failed(self) -> bool:
        """Whether the JVM says that it will not start; with threads left over it does not end by that."""
        return self._main_has_failed

    def start_is_over(self) -> None:
        """Has stack traces handed on too from now on."""
        self._starting = False

    def end_begins(self) -> None:
        """Has what comes from now on logged at level debug alone."""
        self._ending = True

    def reason(self) -> str | None:
        """Returns the line that says why a JVM has ended, waiting for its last ones; None if there is none."""
        self._ended.wait(_END_S)
        return reason_in(line.decode(errors="replace") for line in list(self._lines))

    def hand_on(self, source: int) -> None:
        """Writes what comes from `source` to our stderr by line until nothing can come any more."""
        with os.fdopen(source, "rb") as lines:
            for line in lines:
                self._lines.append(line)
                self._main_has_failed |= line.startswith(_MAIN_FAILS)
                if self._ending:
                    _note(_without_secrets(line))
                elif not line.startswith(_NOISE) and not (self._starting and _FRAME.match(line)):
                    _write(_without_secrets(line))
        self._ended.set()


def reason_in(lines: Iterable[str]) -> str | None:
    """Returns the line among `lines`, which a JVM or Spark's script has written, that says why it has ended."""
    said = [line.rstrip() for line in lines if not _SAYS_NOTHING.match(line)]
    reasons = [line for line in said if _REASON.search(line)]
    return _BEFORE.sub("", next(iter(reasons), said[-1])).rstrip(".") if said else None


@contextmanager
def quietly() -> Iterator[JvmStderr]:
    """Yields the stderr of a JVM that is started inside; what comes there goes on to ours by line.

    The thread that hands it on ends with the last process that has the descriptor.
    """
    source, sink = os.pipe()
    stderr = JvmStderr(sink)
    threading.Thread(target=stderr.hand_on, args=(source,), name="jvm-stderr", daemon=True).start()
    try:
        yield stderr
    finally:
        os.close(sink)


def _without_secrets(line: bytes) -> bytes:
    """Hides what this process knows to be secret: a task's process, which logs there too, may know only its part."""
    text = line.decode("utf-8", "surrogateescape")
    hidden = hide_all(without_credentials(text))
    return line if hidden == text else hidden.encode("utf-8", "surrogateescape")


def _note(line: bytes) -> None:
    with suppress(OSError, ValueError):  # a stderr that went away, as below
        _log.debug("Spark writes while it ends", line=line.decode(errors="replace").rstrip())


def _write(line: bytes) -> None:
    """Writes to stderr. A stderr that went away does not end the thread: writers would wait for ever on a full pipe."""
    with suppress(OSError):
        while line:
            line = line[os.write(_STDERR, line) :]
