"""Runs Spark jobs on a thread that can be cancelled with them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from connectors.threads import CancellableThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CancellableJob(CancellableThread):
    """A thread with a group for its Spark jobs, in the scheduler pool `pool`; an interrupt cancels that group."""

    def __init__(
        self, spark: SparkSession, name: str, work: Callable[[threading.Event], object], pool: str | None = None
    ) -> None:
        super().__init__(name, partial(self._in_group, work))
        self._context = spark.sparkContext
        self._name = name
        self._group = f"keyfold-{name}"
        self._pool = pool

    def interrupt(self) -> None:
        """Cancels the Spark jobs that run now."""
        with suppress(Exception):  # a JVM that has ended cancels nothing, and runs nothing either
            self._context.cancelJobGroup(self._group)

    def _in_group(self, work: Callable[[threading.Event], object], stop: threading.Event) -> None:
        self._context.setJobGroup(self._group, self._name, interruptOnCancel=False)
        if self._pool is not None:
            self._context.setLocalProperty("spark.scheduler.pool", self._pool)
        work(stop)
