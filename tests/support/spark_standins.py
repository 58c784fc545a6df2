"""Stand-ins for Spark as a worker starts, asks and ends it, without a JVM."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

if TYPE_CHECKING:
    from connectors.spark.session import SparkStart


class StandInSession:
    """A SparkSession with `cores`, whose JVM has ended with `code`, or runs as long as that is None.

    It closes at once, or if it `hangs` not before its process is killed.
    """

    def __init__(self, *, hangs: bool = False, code: int | None = None, cores: int = 2) -> None:
        self.killed = threading.Event()
        self.code = code
        self.asked: Callable[[], object] = lambda: None
        """Called each time that a worker looks whether the JVM runs."""
        self.stdin = io.BytesIO()
        """The JVM's; it ends once that is closed."""
        process = SimpleNamespace(poll=self._poll, kill=self.killed.set, stdin=self.stdin, wait=lambda _: 0)
        gateway = SimpleNamespace(proc=process)
        self.sparkContext = SimpleNamespace(_gateway=gateway, defaultParallelism=cores, setLocalProperty=Mock())
        self._jsparkSession = SimpleNamespace(stop=self._stop)
        self._hangs = hangs

    def _poll(self) -> int | None:
        self.asked()
        return self.code

    def _stop(self) -> None:
        if self._hangs:
            self.killed.wait()


class _Starting:
    def __init__(self, started: Callable[[float], object]) -> None:
        self.wait = started

    def leave(self, seconds: float) -> None:
        """There is no start that anybody has to wait for."""


def starting(started: Callable[[float], object]) -> SparkStart:
    """Returns a start of Spark; `started` gets the seconds of each wait, and returns the session or None, or raises."""
    return cast("Any", _Starting(started))


def up(session: StandInSession | None = None) -> SparkStart:
    """Returns a start of Spark that is over at once."""
    session = session or StandInSession()
    return starting(lambda _: session)
