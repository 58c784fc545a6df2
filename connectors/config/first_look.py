"""What is known of a worker file before it is checked, in a module that imports little: Spark starts meanwhile."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal, get_args

from compactor.json_types import decoded_as

DEFAULT_MASTER: Final = "local[*]"
DEFAULT_PACKAGE: Final = "auto"
DEFAULT_LOG_LEVEL: Final = "info"
DEFAULT_LOG_FORMAT: Final = "auto"
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "console", "json"]
LOG_LEVELS: Final = get_args(LogLevel)
LOG_FORMATS: Final = get_args(LogFormat)

PINNED: Final[dict[str, tuple[str, str]]] = {
    "spark.speculation": ("false", "two attempts of one publish task would fence each other"),
    "spark.scheduler.mode": ("FAIR", "a full fold must not hold all slots"),
}
"""Settings of Spark that keyfold's protocol needs, each with the reason; a file may not change them."""

_SPARK: Final = "spark."
_MASTER: Final = "spark.master"
_OF_SPARK: Final = re.compile(r"(spark|executors)\.", re.IGNORECASE)
"""A key that concerns Spark."""
_IN_VARIABLES: Final = re.compile(r"KEYFOLD_(SPARK|EXECUTORS)", re.IGNORECASE)
_ON_THIS_MACHINE: Final = re.compile(r"local(\[[\d*]+\])?")
"""Masters with which a start in vain leaves no trace: a cluster would be asked for executors."""
_OPEN: Final = "$"
"""A value with it may have a placeholder, which only the check resolves."""


def spark_of(text: str, variables: Iterable[str]) -> tuple[str, dict[str, str]] | None:
    """Returns spark.master and the other settings of Spark that `text` of a worker file gives.

    None if they may come out of the check as others: a value holds a placeholder or is no text, the names of
    `variables` set one too, or the check refuses one. None, too, if Spark is to run on a cluster. Raises
    msgspec.DecodeError for a file that is no JSON, or holds something else than settings.
    """
    settings = decoded_as(text or "{}", dict[str, object])
    given = {key: value for key, value in settings.items() if _OF_SPARK.match(key)}
    taken = {key: value for key, value in given.items() if isinstance(value, str) and _is_settled(key, value)}
    if len(taken) < len(given) or any(map(_IN_VARIABLES.match, variables)):
        return None
    master = taken.pop(_MASTER, DEFAULT_MASTER)
    return (master, taken) if _ON_THIS_MACHINE.fullmatch(master) else None


def _is_settled(key: str, value: str) -> bool:
    """Returns whether the setting comes out of the check as it is, as far as that is known."""
    return key.startswith(_SPARK) and key not in PINNED and _OPEN not in value and value == value.strip() != ""


def logging_of(text: str, environment: Mapping[str, str]) -> tuple[str, str] | None:
    """Returns level and format of the log as `text` of a worker file and the `environment` give them.

    None if that is not known yet: a placeholder stands for one of them, or it is none at all.
    Raises msgspec.DecodeError for a file that is no JSON, or holds something else than settings.
    """
    settings = decoded_as(text or "{}", dict[str, object])
    level = environment.get("KEYFOLD_LOG_LEVEL") or settings.get("log.level", DEFAULT_LOG_LEVEL)
    style = environment.get("KEYFOLD_LOG_FORMAT") or settings.get("log.format", DEFAULT_LOG_FORMAT)
    given = str(level).lower(), str(style).lower()
    return given if given[0] in LOG_LEVELS and given[1] in LOG_FORMATS else None
