"""Writes keys in the form of the output's own converter, and remembers them: most keys come again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from connectors.chain.conversion import Conversion, RejectedError
from connectors.data.growth import Room
from connectors.kept_values import Kept

_MOST: Final = 65_536
"""How many keys are remembered, as many as identities are (`key_identity`)."""
_LONGEST: Final = 1_024
"""The longest key (bytes) that is written here: one displaces few others."""
_LONGEST_WRITTEN: Final = 8_192
"""The longest form (bytes) that a key is remembered in: the schemas of one are some 300 bytes."""
_ENTRY: Final = 200
"""About how many bytes a remembered key takes apart from its own and those that are written."""


class WrittenKeys:
    """Writes the keys of records of which no header names a schema."""

    def __init__(self, conversion: Conversion, room: Room) -> None:
        self._conversion = conversion
        self._room = room
        self._kept: Kept[bytes, bytes] = Kept(_MOST)

    @property
    def asks_registry(self) -> bool:
        """Whether what a key is written as may depend on more than its bytes."""
        return any(converter.READS_HEADERS for converter in self._conversion.converters)

    def of(self, keys: Sequence[bytes], check: Callable[[], None]) -> list[bytes | None]:
        """Returns what each key is written as; None if that has to be found with its record.

        `check` is called before a key is written, and raises once the work has to end.
        """
        written = self._kept.get_all(keys)
        for row, key in enumerate(keys):
            if written[row] is None and len(key) <= _LONGEST:
                check()
                written[row] = self._kept.get(key) or self._written(key)
        return written

    def _written(self, key: bytes) -> bytes | None:
        try:
            schema, value = self._conversion.read("", [], key)
            data = self._conversion.write("", [], schema, value, self._room, len(key))
        except RejectedError:  # which the record is by itself
            return None
        if not data or len(data) > _LONGEST_WRITTEN:
            return None
        return self._kept.put(key, data, _ENTRY + len(key) + len(data))
