"""Reads and sets the levels of this process's loggers, in Log4j's names and Python's."""

from __future__ import annotations

import logging
import threading
from typing import Final

from connectors.errors import UsageError
from connectors.logging_setup import lowest_level
from connectors.rest import shapes

ROOT: Final = "root"
_OFF: Final = logging.CRITICAL + 10
LEVELS: Final = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "CRITICAL": logging.CRITICAL,
    "OFF": _OFF,
}
"""Log4j's levels and Python's, as those of Python's loggers."""
_NAMES: Final = {
    logging.DEBUG: "DEBUG",
    logging.INFO: "INFO",
    logging.WARNING: "WARN",
    logging.ERROR: "ERROR",
    logging.CRITICAL: "FATAL",
    _OFF: "OFF",
}


# Characters of a logger's name, and names that it is below. Python keeps an object for each of these for ever: a name
# of 60,000 characters with a dot after each took 870 MiB. The worker's own and those of its libraries have half of it.
_LONGEST_NAME: Final = 120
_DEEPEST_NAME: Final = 10
# Loggers that requests may add to those of the worker: setting one of them takes time for each that there is.
_MOST_ADDED: Final = 100


class LoggerLevels:
    """Levels of the process's loggers, to which at most `most_added` are added by setting them; threads share it."""

    def __init__(self, most_added: int = _MOST_ADDED) -> None:
        self._most_added = most_added
        # Names of loggers that were added here.
        self._added: set[str] = set()
        # When the level of a logger was set here (ms), by name.
        self._set_ms: dict[str, int] = {}
        self._lock = threading.Lock()

    def all(self) -> dict[str, shapes.LoggerLevel]:
        """Returns the levels of the loggers that have one of their own, by name, `root` first."""
        names = (name for name in _existing() if logging.getLogger(name).level)
        return {name: self._level(name) for name in (ROOT, *sorted(names))}

    def get(self, name: str) -> shapes.LoggerLevel | None:
        """Returns the level of a logger, that of one above it if it has none; None if there is no such logger."""
        return self._level(name) if name == ROOT or name in _existing() else None

    def set(self, name: str, level: str, now_ms: int) -> list[str]:
        """Sets the level of a logger and those below it to one of LEVELS; returns their names, sorted.

        A logger that writes secrets at that level gets the lowest one at which it writes none. Raises UsageError if it
        is the one that is named, and for a new name that is too long, too deep or one too many.
        """
        with self._lock:
            return self._set(name, level, now_ms)

    def _set(self, name: str, level: str, now_ms: int) -> list[str]:
        existing = _existing()
        is_new = name != ROOT and name not in existing
        if is_new:
            self._check_new(name)
        if LEVELS[level] < lowest_level(name):
            lowest = _NAMES[lowest_level(name)]
            raise UsageError(
                f"Logger {name} is not set to {level}: it writes secrets below {lowest}.",
                f"Set it to {lowest} or above.",
            )
        if is_new:
            self._added.add(name)
        touched = sorted(logger for logger in {name, *existing} if logger == name or _is_below(logger, name))
        for logger in touched:
            # Not by setLevel, which has every logger forget what it knows of levels: once for all of them is enough.
            _logger(logger).level = max(LEVELS[level], lowest_level(logger))
            self._set_ms[logger] = now_ms
        _logger(name).setLevel(_logger(name).level)
        return touched

    def _check_new(self, name: str) -> None:
        """Raises UsageError for the name of a logger that is not there, if it may not be added."""
        parts = name.count(".") + 1
        if len(name) > _LONGEST_NAME or parts > _DEEPEST_NAME:
            raise UsageError(
                f"The name of a logger has {_LONGEST_NAME} characters and {_DEEPEST_NAME} parts at most; this one has "
                f"{len(name)} characters and {parts} parts.",
                "GET /admin/loggers lists loggers.",
            )
        if len(self._added) >= self._most_added:
            raise UsageError(
                f"{len(self._added)} loggers were added by setting their level, and there is no logger {name}.",
                "GET /admin/loggers lists loggers.",
            )

    def _level(self, name: str) -> shapes.LoggerLevel:
        level = _logger(name).getEffectiveLevel()
        above = "OFF" if level > logging.CRITICAL else logging.getLevelName(level)
        return shapes.LoggerLevel(level=_NAMES.get(level, above), last_modified=self._set_ms.get(name))


def _existing() -> set[str]:
    return {
        name for name, logger in logging.root.manager.loggerDict.copy().items() if isinstance(logger, logging.Logger)
    }


def _is_below(name: str, logger: str) -> bool:
    """Returns whether `name` is below `logger`; of root's, only those that have a level of their own."""
    return bool(logging.getLogger(name).level) if logger == ROOT else name.startswith(f"{logger}.")


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)
