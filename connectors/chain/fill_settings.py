"""The settings of `compaction.fill`: the placeholder that it looks for, and what it needs of a converter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from connectors.converters.names import CONVERTERS

FILL: Final = "compaction.fill"
PLACEHOLDER: Final = "unavailable.value.placeholder"
UNAVAILABLE: Final = "__debezium_unavailable_value"
"""Debezium's default of this setting."""
_HEX: Final = "hex:"
"""How a placeholder begins that is written as hexadecimal digits."""
_MOST: Final = 1_000
"""Bytes of a placeholder: each value is searched for it, in several forms."""
_ALLOWED: Final = f"is not allowed: allowed is a text of 1 to {_MOST} bytes, or hex: and digits."
_NEEDS_FIELDS: Final = (
    "values have fields only if a converter reads them: set value.converter, or output.value.converter, in the same "
    "file to keyfold.Json, keyfold.JsonSchema, keyfold.Avro or keyfold.Protobuf, or another name of these."
)


def placeholder_of(text: str) -> bytes:
    """Returns the bytes of a placeholder, as Debezium's setting has it. Raises ValueError."""
    return bytes.fromhex(text.removeprefix(_HEX)) if text.startswith(_HEX) else text.encode()


def fill_faults(settings: Mapping[str, str], converter: str) -> Iterator[tuple[str, str]]:
    """Yields what is wrong with the settings; `converter` is the name of what values are written with."""
    size, text = 0, settings.get(PLACEHOLDER, UNAVAILABLE)
    with suppress(ValueError):
        size = len(placeholder_of(text))
    if not 0 < size <= _MOST:
        yield PLACEHOLDER, f'"{text:.100}" {_ALLOWED}'
    if settings.get(FILL, "none").strip().lower() == "none":
        return
    with suppress(ValueError):  # a converter that is not known is a fault of its own
        if not CONVERTERS.find(converter.strip()).of.load().HAS_FIELDS:
            yield FILL, _NEEDS_FIELDS
