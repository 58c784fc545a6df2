"""Finds out of which connector a step is, for failpoints that strike one of many in a process.

A connector's own threads have its name in their log fields. A micro-batch, and the tasks of Spark's, have it only in
what they work on: that is looked for on the stack. Connectors of fault cases are named after their topics.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final

import structlog

_OWNERS: Final[Mapping[str, Callable[[Any], str]]] = {
    "PortionSplit": lambda found: found.options.connector,
    "RunTarget": lambda found: Path(found.storage.location).name,
    "_Copy": lambda found: Path(found.storage.location).name,
    "ChangelogPublisher": lambda found: found.connector,
    "Subscription": lambda found: found.options.connector,
    "RangeCursor": lambda found: f"c-{found.part.topic}",
}
"""Type → the name of the connector for which a value of it is made."""


def concerns(connector: str) -> bool:
    """Returns whether what this thread does is work of `connector`, or of a micro-batch that has a portion of it."""
    named = structlog.contextvars.get_contextvars().get("connector")
    return named == connector if named else connector in _on_stack(sys._getframe(1))


def _on_stack(frame: FrameType | None) -> set[str]:
    """Returns the connectors that the innermost frame works on that works on any."""
    while frame is not None:
        if found := {name for value in frame.f_locals.values() for name in _owners(value)}:
            return found
        frame = frame.f_back
    return set()


def _owners(value: object) -> set[str]:
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return {name for one in value for name in _owners(one)}
    owner = _OWNERS.get(type(value).__name__)
    return {owner(value)} if owner else set()
