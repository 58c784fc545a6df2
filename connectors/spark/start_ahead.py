"""Starts Spark before the worker's files are checked, which takes half a second: its JVM is what a start waits for.

It has the settings of Spark's that stand in the worker file as they are, without placeholders. There is none if the
environment sets something of Spark's, or Spark is to run on a cluster. What the check gives counts: a start is ended if
it has other settings than that, or its processes other variables than they have by then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Self

import structlog

from connectors import logging_setup
from connectors.config.first_look import DEFAULT_PACKAGE, logging_of, spark_of
from connectors.spark import private
from connectors.spark.jvm_start import USERS_VARIABLES
from connectors.spark.session import SparkStart

_LEAVE_S: Final = 3.0
"""How long a start that nobody needs may take to end; a JVM that has not answered yet ends at once."""
_DROP_S: Final = 30.0
"""How long a start may take to end before another one. A JVM that has answered first makes its session."""
_log = structlog.get_logger()


class StartAhead:
    """A start of Spark as `text` of the worker file sets it, begun as soon as this object is made, if that allows it.

    `text` is None for a file that cannot be read, or if nothing is to begin. A start that was not taken by the end of
    the block is ended: a file is faulty. A test gives another `start`.
    """

    def __init__(self, text: str | None, start: Callable[..., SparkStart] = SparkStart) -> None:
        self._start = start
        self._begun: SparkStart | None = None
        self._given: tuple[str, Mapping[str, str]] | None = None
        """The master and the settings with which it was begun."""
        self._environment: Mapping[str, str] = {}
        """The variables with which Spark's processes were started."""
        if text is not None and _is_plain(os.environ):
            # What hinders it, the start after the files have been checked says: they may be faulty as well.
            with suppress(Exception):
                self._begin(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def take(self, master: str, overrides: Mapping[str, str], package: str) -> SparkStart:
        """Returns the start that was begun if it is one with these settings, else a new one, as `SparkStart`."""
        is_as_given = (master, dict(overrides)) == self._given and package == DEFAULT_PACKAGE
        if self._begun is not None and is_as_given and self._environment == os.environ:
            begun, self._begun = self._begun, None
            return begun
        self._drop()
        return self._start(master, overrides, package)

    def _begin(self, text: str) -> None:
        """Begins a start with what `text` of the worker file sets, if that is known before it is checked."""
        spark, log = spark_of(text, os.environ), logging_of(text, os.environ)
        if spark is None or log is None:
            return
        logging_setup.hand_on(*log)
        self._begun = self._start(*spark, DEFAULT_PACKAGE)
        self._given = spark
        self._environment = dict(os.environ)

    def _leave(self) -> None:
        """Ends a start that was begun and not taken."""
        begun, self._begun = self._begun, None
        if begun is not None:
            _log.debug("Spark was started in vain")
            begun.leave(_LEAVE_S)

    def _drop(self) -> None:
        """Ends a start that was begun so that another one can take its place."""
        begun, self._begun = self._begun, None
        if begun is not None:
            _log.info("Spark starts again", reason="the checked files give it other settings")
            begun.drop(_DROP_S)


def _is_plain(environment: Mapping[str, str]) -> bool:
    """Returns whether no variable has to be logged before Spark takes it: logging is not set up yet."""
    return not any(map(environment.get, (*USERS_VARIABLES, private.VARIABLE)))
