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

_IN_FILES: Final = re.compile(r"\"(spark|executors)\.|\\u", re.IGNORECASE)
"""A key that concerns Spark, or an escape in which one could hide."""
_IN_VARIABLES: Final = re.compile(r"KEYFOLD_(SPARK|EXECUTORS)", re.IGNORECASE)


def leaves_spark_alone(text: str, variables: Iterable[str]) -> bool:
    """Returns whether neither `text` of a worker file nor the names of `variables` set anything of Spark's.

    A worker then has all defaults. False if it is not known, as the file is not parsed.
    """
    return _IN_FILES.search(text) is None and not any(map(_IN_VARIABLES.match, variables))


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
