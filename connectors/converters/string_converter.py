"""Takes bytes for text (`org.apache.kafka.connect.storage.StringConverter`)."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Any, Final

from connectors.converters.converter import Converter, Headers
from connectors.data.java_text import to_string
from connectors.data.schema import Schema, Type
from connectors.errors import DataError
from connectors.options import Option

OPTIONAL_STRING: Final = Schema(type=Type.STRING, optional=True)
_NO_CHARSETS: Final = frozenset({"idna", "punycode", "raw-unicode-escape", "unicode-escape", "undefined", "utf-7"})
"""Forms that Python calls encodings and Java does not; some take the square of a text's length, or make no Unicode."""


def _known(name: str) -> str | None:
    try:
        codec = codecs.lookup(name)
    except LookupError:
        return "there is no such encoding; UTF-8 is the usual one."
    if codec.name in _NO_CHARSETS or not getattr(codec, "_is_text_encoding", True):
        return "this is no encoding of text; UTF-8 is the usual one."
    return None


class StringConverter(Converter):
    """Values are text. Bytes that are none are refused; Java's class puts U+FFFD in their place."""

    OPTIONS = (Option("encoding", "STRING", "UTF-8", "The encoding of the text.", check=_known, importance="HIGH"),)

    def __init__(self, options: Mapping[str, Any], *, is_key: bool) -> None:
        super().__init__(options, is_key=is_key)
        self._encoding: str = options["encoding"]

    def to_connect_data(self, topic: str, headers: Headers, data: bytes | None) -> tuple[Schema | None, Any]:  # noqa: ARG002
        """See `Converter`."""
        if data is None:
            return OPTIONAL_STRING, None
        try:
            return OPTIONAL_STRING, data.decode(self._encoding)
        except UnicodeError as error:
            raise DataError(f"The bytes are no text in {self._encoding}: {error}.") from None

    def from_connect_data(self, topic: str, headers: Headers, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002
        """Returns the text of `value` as bytes: of any type, as Java's class writes it (`Object.toString`)."""
        if value is None:
            return None
        try:
            return to_string(schema, value).encode(self._encoding)
        except UnicodeError as error:
            raise DataError(f"The text cannot be written in {self._encoding}: {error}.") from None
