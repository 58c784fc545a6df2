"""The fields of JSON, each as the text that it is (`connectors.converters.written_fields`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Self

import msgspec

from connectors.converters.written_fields import ENVELOPE, WrittenFields

Members = dict[str, msgspec.Raw]

_MEMBERS: Final = msgspec.json.Decoder(Members)
_ENCODER: Final = msgspec.json.Encoder()
_NULL: Final = b"null"
_READ: Final = frozenset({b'"', b"[", b"{"})
"""How values begin that are looked at."""
_OF_VALUE: Final = ("type", "name", "version", "parameters", "items", "keys", "values", "fields")
"""What a field's schema says of its values: the rest is its name, its default, and whether it may be null."""


class JsonFields(WrittenFields):
    """The members of the object `text`. `schema`, as JsonConverter writes it, tells their types; None: nothing does.

    `written` puts around the object what the message has around it. Raises msgspec.MsgspecError for what is no object.
    """

    def __init__(self, text: bytes, written: Callable[[bytes], bytes], schema: Any = None) -> None:
        self._written = written
        # The whole object, and the row in it, which may be the same; None: the event has no row.
        self._members = _MEMBERS.decode(text)
        self._row: Members | None = self._members
        self._types = _types(schema)
        self._is_event = all(name in self._members for name in ENVELOPE)
        if self._is_event:
            after = bytes(self._members["after"])
            self._row = None if after.strip() == _NULL else _MEMBERS.decode(after)
            self._types = _types(self._types.get("after")) if self._types is not None else None

    def names(self) -> Iterable[str]:
        """See WrittenFields."""
        return tuple(self._row or ())

    def get(self, name: str, longest: int) -> Any:
        """See WrittenFields."""
        text = None if self._row is None else self._row.get(name)
        if text is None or len(bytes(text)) > longest or bytes(text)[:1] not in _READ:
            return None
        try:
            return msgspec.json.decode(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):  # a number that is none of 64 bits, in a list
            return None

    def take(self, name: str, other: Self) -> bool:
        """See WrittenFields. Without a schema a value says itself what it is."""
        if self._row is None or other._row is None or name not in other._row:
            return False
        if self._types is not None and other._types is not None:
            mine, theirs = self._types.get(name), other._types.get(name)
            if _of_value(mine) != _of_value(theirs):
                return False
            if bytes(other._row[name]).strip() == _NULL and not (isinstance(mine, dict) and mine.get("optional")):
                return False
        self._row[name] = other._row[name]
        return True

    def data(self) -> bytes:
        """See WrittenFields."""
        if self._is_event and self._row is not None:
            self._members["after"] = msgspec.Raw(_ENCODER.encode(self._row))
        return self._written(_ENCODER.encode(self._members))


def _types(schema: Any) -> Mapping[str, Any] | None:
    """Returns the schemas of the fields of a struct by their names; None if there is no schema."""
    if not isinstance(schema, dict):
        return None
    fields = schema.get("fields") or ()
    return {field["field"]: field for field in fields if isinstance(field, dict) and "field" in field}


def _of_value(schema: Any) -> Any:
    return {name: schema.get(name) for name in _OF_VALUE} if isinstance(schema, dict) else None
