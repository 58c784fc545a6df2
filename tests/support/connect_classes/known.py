"""Where our classes are meant to answer otherwise than the real ones; each has its reason in docs/transforms.md."""

from __future__ import annotations

import re
from typing import Any, Final

from connectors.data.schema import DATE, DECIMAL, TIME, TIMESTAMP

_LOGICAL: Final = frozenset({DATE, DECIMAL, TIME, TIMESTAMP})
_DATE: Final = re.compile(r"\d{4,}-\d\d-\d\d|(\d{4,}-\d\d-\d\dT)?\d\d:\d\d:\d\d\.\d{3}Z")
_BOUNDED: Final = ("bits of milliseconds are", "bits of a Date's days are", "NaN")
"""Of our errors: what overflows in the class and is no date there either."""


def is_known(asked: dict[str, Any], theirs: dict[str, Any], ours: dict[str, Any]) -> bool:
    """Returns whether two answers differ as they are meant to."""
    name = asked["class"].rpartition(".")[2].partition("$")[0]
    if name == "TimestampConverter":
        return ours["error"] is not None and any(text in ours["error"] for text in _BOUNDED)
    if name == "Cast" and theirs["error"] is None and ours["error"] is None:
        return _without_dates(theirs["answer"]) == _without_dates(ours["answer"])
    if theirs["error"] is None or ours["error"] is not None:
        return False
    if name == "ExtractNewDocumentState":
        return True  # lists that the class fails on are taken
    if name == "ReplaceField":
        return _lacks_renamed(asked)
    return name == "Cast" and _side(asked, "schema").get("name") in _LOGICAL


def _side(asked: dict[str, Any], part: str) -> dict[str, Any]:
    key = "key" if asked["class"].endswith("$Key") else "value"
    return asked["record"][f"{key}_schema" if part == "schema" else key] or {}


def _without_dates(node: Any) -> Any:
    """Returns an answer in which every text that is a date, a time or both is the same."""
    if isinstance(node, dict):
        return {name: _without_dates(one) for name, one in node.items()}
    if isinstance(node, list):
        return [_without_dates(one) for one in node]
    return "date" if isinstance(node, str) and _DATE.fullmatch(node) else node


def _lacks_renamed(asked: dict[str, Any]) -> bool:
    """Returns whether a field has a name that another one, which is not there, would be renamed to."""
    names = {name for name, _ in _side(asked, "schema").get("fields", ())}
    pairs = [pair.split(":") for pair in asked["config"].get("renames", "").split(",") if pair]
    return any(new in names and old not in names for old, new in pairs)
