"""Refuses a key of which the converter that writes it would make the same bytes as of another key.

Of two such keys the later one would overwrite or delete the row of the other. Values may lose what their converter does
not keep; keys say which row it is.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

from connectors.data.pace import paced
from connectors.data.schema import DATE, TIME, TIMESTAMP, UNION, Schema, Type
from connectors.errors import DataError
from connectors.rejection import shown

_MOMENTS: Final = frozenset({DATE, TIME, TIMESTAMP})
_PARTS: Final = {Type.STRUCT: "a struct", Type.ARRAY: "a list", Type.MAP: "a map"}
_TEXT_ALONE: Final = (
    "Take one field for the key with ExtractField$Key, or write keys by keyfold.Json; Cast$Key with spec=string, or "
    "TimestampConverter$Key, makes one value a text."
)


def check_text_key(schema: Schema | None, value: Any) -> None:
    """Raises DataError for a key with a text that another key may have, too.

    That is one with parts, as nothing marks the ends of the texts in it; a moment, as its text has no milliseconds; and
    without a schema all but texts: 1 and "1" would be one key. A schema says that all keys are of one type.
    """
    if schema is None:
        if not isinstance(value, str):
            _refuse(f"a {type(value).__name__} without a schema", value)
    elif schema.type in _PARTS:
        _refuse(_PARTS[schema.type], value)
    elif schema.name in _MOMENTS:
        _refuse("a date or time", value)


def _refuse(what: str, value: Any) -> NoReturn:
    raise DataError(f"The key is {what} ({shown(value)}): written as a text, it could be another key's.", _TEXT_ALONE)


def check_encoded_key(text: str, data: bytes, encoding: str) -> None:
    """Raises DataError if `data`, which `encoding` makes of a key's `text`, is that of another text, too."""
    if data.decode(encoding) != text:
        raise DataError(
            f"The key {shown(text)} has characters that {encoding} writes as others.", "Set encoding to UTF-8."
        )


def check_exact_key(value: float, written: float) -> None:
    """Raises DataError if a number that is a key is written as another one."""
    if value != written and value == value:  # noqa: PLR0124  # NaN is no other number than itself
        raise DataError(
            f"The key {shown(value)} would be written as {shown(written)}, which is another key.",
            "Write keys by a converter that keeps such numbers: keyfold.Double, keyfold.Long or keyfold.Json.",
        )


def check_nulls_of_key(schema: Schema, value: Any, *, has_nullables: bool) -> None:
    """Raises DataError for a key with a null that Protobuf writes as it writes an empty list, an empty text or 0.

    `has_nullables`: a field of one value says whether it is there. A struct always does, and so does a union.
    """
    if value is None:
        return
    if schema.type is Type.STRUCT:
        for field in schema.fields:
            part = value.get(field.name)
            is_told = field.schema.type is Type.STRUCT or (has_nullables and field.schema.type not in _PARTS)
            if part is None and not is_told and schema.name != UNION:
                raise DataError(
                    f"The key has a null in {shown(field.name)}, which would be written as an empty value is.",
                    "Set optional.for.nullables=true if it is no list and no map, or leave the field out of the key.",
                )
            check_nulls_of_key(field.schema, part, has_nullables=has_nullables)
    elif schema.value_schema is not None and schema.value_schema.type in _PARTS:
        for part in paced(value.values() if schema.type is Type.MAP else value):
            check_nulls_of_key(schema.value_schema, part, has_nullables=has_nullables)
