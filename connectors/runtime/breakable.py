"""A step on a thread of its own, whose Spark jobs can be broken off.

Whoever waits for it keeps a free hand: to look whether the connector is to stop, and to end what takes too long.
What a broken-off job has not committed never happened.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS: Final = 0.2


class CancellableJob:
    """Runs `work`, which gets an event that is set once it is to end. `failure` is what it raised."""

    def __init__(self, spark: SparkSession, name: str, work: Callable[[threading.Event], object]) -> None:
        self.failure: Exception | None = None
        self._context = spark.sparkContext
        self._name = name
        self._work = work
        self._ending = threading.Event()
        self._fields = structlog.contextvars.get_contextvars()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begins; call it once."""
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._thread.is_alive()

    def join(self, seconds: float) -> None:
        """Waits for its end, `seconds` at most."""
        self._thread.join(seconds)

    def end(self) -> None:
        """Tells it to end by itself, as soon as its present turn is done."""
        self._ending.set()

    def break_off(self) -> None:
        """Ends it: its jobs are cancelled until it has ended. May be repeated; nothing where it never began."""
        self.end()
        while self._thread.is_alive():
            with suppress(Exception):  # a JVM that has ended cancels nothing, and runs nothing either
                self._context.cancelJobGroup(self._group)  # again: a job may have begun just after
            self._thread.join(POLL_SECONDS)

    @property
    def _group(self) -> str:
        return f"keyfold-{self._name}"

    def _run(self) -> None:
        with structlog.contextvars.bound_contextvars(**self._fields):
            try:
                self._context.setJobGroup(self._group, self._name, interruptOnCancel=False)
                self._work(self._ending)
            except Exception as error:  # noqa: BLE001  # whoever waits raises it in his own thread
                self.failure = error
