"""Spark's JVM takes seconds to start: it does so in a thread of its own, while this process does its part."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from connectors import spark as sparks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkStart:
    """A session that is being started from the moment on when this is made.

    The thread holds nobody up who ends meanwhile: the JVM follows its process.
    """

    def __init__(self, master: str, overrides: Mapping[str, str]) -> None:
        self._session: SparkSession | None = None
        self._failure: Exception | None = None
        self._over = threading.Event()
        threading.Thread(target=self._start, args=(master, overrides), name="spark-start", daemon=True).start()

    def wait(self, seconds: float) -> SparkSession | None:
        """The session, None where it is not there after `seconds`. Raises what starting it raised."""
        if not self._over.wait(seconds):
            return None
        if self._failure is not None:
            raise self._failure
        return self._session

    def _start(self, master: str, overrides: Mapping[str, str]) -> None:
        try:
            self._session = sparks.session(master, overrides)
        except Exception as error:  # noqa: BLE001  # whatever it was, who waits raises it
            self._failure = error
        finally:
            self._over.set()
