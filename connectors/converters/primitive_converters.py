"""Takes bytes for a text, a number or a truth value (Kafka's `StringConverter`, `NumberConverter` and their like).

Numbers are big-endian; a null is one.
"""

from __future__ import annotations

import codecs
import encodings
import pkgutil
import struct
from collections.abc import Mapping
from encodings.aliases import aliases
from typing import Any, ClassVar, Final

from connectors.converters.converter import Converter, Headers
from connectors.converters.distinct_keys import check_encoded_key, check_exact_key, check_text_key
from connectors.data.java_text import to_string
from connectors.data.schema import Schema, Type
from connectors.errors import DataError
from connectors.options import Option
from connectors.rejection import shown

OPTIONAL_STRING: Final = Schema(type=Type.STRING, optional=True)
_NO_CHARSETS: Final = frozenset({"idna", "punycode", "raw-unicode-escape", "unicode-escape", "undefined", "utf-7"})
"""Forms that Python calls encodings and Java does not; some take the square of a text's length, or make no Unicode."""


_MODULES: Final = frozenset(module.name for module in pkgutil.iter_modules(encodings.__path__))
"""The names by which codecs are asked for. Python remembers each name that it was ever asked for, whether there is such
a codec or not, and of one codec every form of its name: a client of REST may send any number of texts of 64 kB."""


def _codec_of(name: str) -> codecs.CodecInfo | None:
    """Returns the codec with a name, as Python finds it; None if there is none."""
    plain = encodings.normalize_encoding(name).lower()
    module = aliases.get(plain) or aliases.get(plain.replace(".", "_")) or plain
    try:
        return codecs.lookup(module) if module in _MODULES else None
    except LookupError:  # one of another operating system
        return None


def _known(name: str) -> str | None:
    codec = _codec_of(name)
    if codec is None:
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
        codec = _codec_of(self._encoding)
        assert codec is not None, "the option is checked"
        self._codec = codec.name

    def to_connect_data(self, topic: str, headers: Headers, data: bytes | None) -> tuple[Schema | None, Any]:  # noqa: ARG002
        """See `Converter`."""
        if data is None:
            return OPTIONAL_STRING, None
        try:
            return OPTIONAL_STRING, data.decode(self._codec)
        except UnicodeError as error:
            raise DataError(f"The bytes are no text in {self._encoding}: {error}.") from None

    def from_connect_data(self, topic: str, headers: Headers, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002
        """Returns the text of `value` as bytes: of any type, as Java's class writes it (`Object.toString`).

        A key with a text that another key could have, too, is refused; Java's class writes it.
        """
        if value is None:
            return None
        if self.is_key:
            check_text_key(schema, value)
        text = to_string(schema, value)
        try:
            data = text.encode(self._codec)
        except UnicodeError as error:
            raise DataError(f"The text cannot be written in {self._encoding}: {error}.") from None
        if self.is_key:
            check_encoded_key(text, data, self._codec)
        return data


class _NumberConverter(Converter):
    """Values of one type, each as long as `FORMAT` (of `struct`) says."""

    FORMAT: ClassVar[struct.Struct]
    TYPE: ClassVar[Type]
    PYTHON: ClassVar[tuple[type, ...]] = (int,)

    def to_connect_data(self, topic: str, headers: Headers, data: bytes | None) -> tuple[Schema | None, Any]:  # noqa: ARG002
        """See `Converter`."""
        schema = _OPTIONAL[self.TYPE]
        if data is None:
            return schema, None
        if len(data) != self.FORMAT.size:
            raise DataError(f"A {self.TYPE.value} has {self.FORMAT.size} bytes, and here are {len(data)}.")
        return schema, self.FORMAT.unpack(data)[0]

    def from_connect_data(self, topic: str, headers: Headers, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002
        """See `Converter`."""
        if schema is not None and schema.type is not self.TYPE:
            raise DataError(f"The converter writes {self.TYPE.value}, and the value is of type {schema.type.value}.")
        if value is None:
            return None
        if not isinstance(value, self.PYTHON) or (isinstance(value, bool) and bool not in self.PYTHON):
            raise DataError(f"The converter writes {self.TYPE.value}, and the value is a {type(value).__name__}.")
        try:
            data = self.FORMAT.pack(value)
        except (struct.error, OverflowError):
            raise DataError(f"{shown(value)} is no {self.TYPE.value}.") from None
        if self.is_key and isinstance(value, (int, float)):
            check_exact_key(value, self.FORMAT.unpack(data)[0])
        return data


class ShortConverter(_NumberConverter):
    """Numbers of 16 bits."""

    FORMAT = struct.Struct(">h")
    TYPE = Type.INT16


class IntegerConverter(_NumberConverter):
    """Numbers of 32 bits."""

    FORMAT = struct.Struct(">i")
    TYPE = Type.INT32


class LongConverter(_NumberConverter):
    """Numbers of 64 bits."""

    FORMAT = struct.Struct(">q")
    TYPE = Type.INT64


class FloatConverter(_NumberConverter):
    """Floating-point numbers of 32 bits."""

    FORMAT = struct.Struct(">f")
    TYPE = Type.FLOAT32
    PYTHON = (float, int)


class DoubleConverter(_NumberConverter):
    """Floating-point numbers of 64 bits."""

    FORMAT = struct.Struct(">d")
    TYPE = Type.FLOAT64
    PYTHON = (float, int)


class BooleanConverter(_NumberConverter):
    """Truth values: a byte, 1 or 0 (`BooleanDeserializer` refuses any other)."""

    FORMAT = struct.Struct(">B")
    TYPE = Type.BOOLEAN
    PYTHON = (bool,)

    def to_connect_data(self, topic: str, headers: Headers, data: bytes | None) -> tuple[Schema | None, Any]:
        """See `Converter`."""
        schema, value = super().to_connect_data(topic, headers, data)
        if value is not None and value > 1:
            raise DataError(f"A boolean is a byte of 0 or 1, and this is {value}.")
        return schema, None if value is None else bool(value)


_OPTIONAL = {kind: Schema(type=kind, optional=True) for kind in Type}
