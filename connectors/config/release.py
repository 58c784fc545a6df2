"""What this release does not do yet: refused by name, never accepted and ignored.

When the work behind a key lands, its line here goes; nothing else has to change.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, version
from typing import Final

LATER: Final[dict[str, str]] = {}
"""Keys of keyfold that may only stand at their default, and what they belong to."""

CONNECT_LATER: Final[dict[str, str]] = {
    "key.converter*": "converters",
    "value.converter*": "converters",
    "header.converter*": "converters",
    "transforms*": "transforms",
    "predicates*": "predicates",
    "errors.log.*": "logging of single records' errors",
    "config.action.reload": "reloading of secrets",
    "initial_state": "states set at creation",
    "connector.plugin.version": "plugin versions",
    "tasks.max.enforce": "plugin versions",
    "config.providers*": "config providers other than env, file and directory",
    "listeners*": "the REST interface",
    "admin.listeners*": "the REST interface",
    "rest.*": "the REST interface",
    "access.control.*": "the REST interface",
    "response.http.headers.config": "the REST interface",
    "topic.tracking.*": "the REST interface",
    "connector.client.config.override.policy": "the REST interface",
    "plugin.path": "plugins",
}
"""Kafka Connect's keys (patterns) that keyfold knows of but does not have yet, and what they belong to."""


def installed_version() -> str:
    """Keyfold's version, or `(not installed)` when it runs from a bare folder."""
    try:
        return version("keyfold")
    except PackageNotFoundError:
        return "(not installed)"


def not_yet(name: str) -> str | None:
    """The sentence for a key of Connect that comes with a later release; None for any other key."""
    what = next((what for pattern, what in CONNECT_LATER.items() if fnmatchcase(name, pattern)), None)
    return what and f"not available yet in keyfold {installed_version()}: {what}. Remove the key."


def only_default(name: str, default: str | None) -> str:
    """The sentence for a key of `LATER` that was set to something else than its default."""
    keep = f'leave it at its default "{default}"' if default is not None else "remove the key"
    return f"not available yet in keyfold {installed_version()}: {LATER[name]}; {keep}."
