"""Words the message for a key of Kafka Connect that keyfold does not have yet."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

PLUGIN_VERSIONS: Final = "plugin versions"
"""What `connector.plugin.version` and its like belong to (KIP-891)."""


def not_available(what: str) -> str:
    """Returns the sentence for a key that belongs to `what`."""
    return f"not available yet in keyfold {_installed_version()}: {what}. Remove the key."


def _installed_version() -> str:
    """Returns keyfold's version, or `(not installed)` when it runs from a bare folder."""
    try:
        return version("keyfold")
    except PackageNotFoundError:
        return "(not installed)"
