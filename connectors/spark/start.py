"""Spark's JVM takes seconds to start: it does so in a thread of its own, while this process does its part."""

from __future__ import annotations

# Takes a lock before each fork and releases it after. PySpark forks the JVM off while the main thread imports, and a
# module that is imported between the two releases what it never took: "RuntimeError: release unlocked lock" on stderr.
import concurrent.futures.thread  # noqa: F401
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from connectors.spark import session as sparks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = structlog.get_logger()


class SparkStart:
    """A session that is being started from the moment on when this is made.

    Its thread holds nobody up who ends meanwhile: the JVM follows its process. And as it is not the main thread,
    PySpark leaves the handler of SIGINT alone (`SparkContext._do_init`).
    """

    def __init__(self, master: str, overrides: Mapping[str, str]) -> None:
        import pyspark.sql  # noqa: F401  # before the caller goes on: beside its imports the JVM would start later

        self._session: SparkSession | None = None
        self._failure: BaseException | None = None
        self._over = threading.Event()
        settings = sparks.prepare(master, overrides, os.environ)  # here, as other threads may read the environment
        self._handover = sparks.hand_over(master, settings, os.environ)
        self._thread = threading.Thread(target=self._start, args=(master, settings), name="spark-start", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> SparkSession | None:
        """The session, None where it is not there after `seconds`. Raises what starting it raised."""
        if not self._over.wait(seconds):
            return None
        if self._failure is not None:
            raise self._failure
        return self._session

    def leave(self, seconds: float) -> None:
        """Waits until it is over, `seconds` at most: what is kept in /tmp for its start is removed by then."""
        self._over.wait(seconds)

    def _start(self, master: str, settings: Mapping[str, str]) -> None:
        try:
            self._session = sparks.create(master, settings)
        except BaseException as error:  # noqa: BLE001  # whatever it was, who waits raises it
            self._failure = error
        finally:
            self._handover.end()
            self._over.set()
        if self._session is not None:
            _warm_up(self._session)


def _warm_up(session: SparkSession) -> None:
    """Beside the take-overs: the first time, Spark looks through Python for sources, and starts its processes."""
    from connectors.source import stream
    from connectors.spark import warmup

    with suppress(Exception):  # each connector does so too, and says what is wrong
        stream.register(session)
    try:
        warmup.read(session)
    except Exception as error:  # noqa: BLE001  # without it, or at a stop, nothing is lost but a second
        _log.debug("Spark's Python processes were not started early", error=str(error))
