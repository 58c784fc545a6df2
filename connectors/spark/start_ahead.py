"""Starts Spark before the worker's files are checked, which takes half a second: its JVM is what a start waits for.

That is so if nothing but defaults can come out of them: the worker file names no setting of Spark's, nor does the
environment. What is found out later counts: a start is ended if the files give it other settings, or its processes
other variables than they have by then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Self

import structlog

from connectors import logging_setup
from connectors.config.first_look import DEFAULT_MASTER, DEFAULT_PACKAGE, leaves_spark_alone, logging_of
from connectors.spark import private
from connectors.spark.jvm_start import USERS_VARIABLES
from connectors.spark.session import SparkStart

_LEAVE_S: Final = 3.0
"""How long a start that nobody needs may take to end; a JVM that has not answered yet ends at once."""
_DROP_S: Final = 30.0
"""How long a start may take to end before another one. A JVM that has answered first makes its session."""
_log = structlog.get_logger()


class StartAhead:
    """A start of Spark with all defaults, begun as soon as this object is made, if `text` of the worker file allows it.

    `text` is None for a file that cannot be read, or if nothing is to begin. A start that was not taken by the end of
    the block is ended: a file is faulty. A test gives another `start`.
    """

    def __init__(self, text: str | None, start: Callable[..., SparkStart] = SparkStart) -> None:
        self._start = start
        self._begun: SparkStart | None = None
        self._environment: Mapping[str, str] = {}
        """What Spark's processes have of it."""
        if text is not None and _is_plain(os.environ) and leaves_spark_alone(text, os.environ):
            # What hinders it, the start after the files have been checked says: they may be faulty as well.
            with suppress(Exception):
                given = logging_of(text, os.environ)
                if given is None:
                    return
                logging_setup.hand_on(*given)
                self._begun = start(DEFAULT_MASTER, {}, DEFAULT_PACKAGE)
                self._environment = dict(os.environ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def take(self, master: str, overrides: Mapping[str, str], package: str) -> SparkStart:
        """Returns the start that was begun if it is one with these settings, else a new one, as `SparkStart`."""
        has_defaults = (master, dict(overrides), package) == (DEFAULT_MASTER, {}, DEFAULT_PACKAGE)
        if self._begun is not None and has_defaults and self._environment == os.environ:
            begun, self._begun = self._begun, None
            return begun
        self._drop()
        return self._start(master, overrides, package)

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
            _log.info("Spark starts again", reason="the files give it other settings than its defaults")
            begun.drop(_DROP_S)


def _is_plain(environment: Mapping[str, str]) -> bool:
    """Returns whether no variable has to be logged before Spark takes it: logging is not set up yet."""
    return not any(map(environment.get, (*USERS_VARIABLES, private.VARIABLE)))
