"""What is known of a key of a configuration file."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from connectors.config.kinds import Kind

CONNECTOR_CLASS: Final = "keyfold.CompactedTopic"


class Key(msgspec.Struct, frozen=True):
    """One key. `default` is its text, as in a file; None means that nothing is set. `group`: its table in the docs."""

    name: str
    kind: Kind
    default: str | None
    doc: str
    unit: str = ""
    required: bool = False
    group: str = ""

    @property
    def default_value(self) -> Any:
        """The default as the model holds it; None where nothing is set."""
        return None if self.default is None else self.kind.parse(self.default)


class Prefix(msgspec.Struct, frozen=True):
    """A family of keys: everything that begins with `name` (which ends in a dot)."""

    name: str
    doc: str


def group(title: str, *keys: Key) -> tuple[Key, ...]:
    """`keys` under one heading of the docs."""
    return tuple(msgspec.structs.replace(key, group=title) for key in keys)
