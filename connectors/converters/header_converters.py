"""Write the headers that transforms add (`org.apache.kafka.connect.storage.HeaderConverter`).

Headers that were read are never looked at, so nothing here reads any.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from connectors.converters.converter import Converter
from connectors.data.java_text import to_string
from connectors.data.schema import Schema
from connectors.data.values import convert_to_string
from connectors.errors import DataError
from connectors.options import Option


class HeaderConverter(ABC):
    """Converts the values of new headers."""

    OPTIONS: ClassVar[tuple[Option, ...]] = ()

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    @abstractmethod
    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        """Returns the bytes of a header. Raises DataError for a value that it cannot write."""


class SimpleHeaderConverter(HeaderConverter):
    """The default: a text as it is, everything else as `Values.convertToString` writes it."""

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002
        """See `HeaderConverter`."""
        text = convert_to_string(schema, value)
        return None if text is None else text.encode()


class StringHeaderConverter(HeaderConverter):
    """Texts; other values as Java writes them (`StringConverter.fromConnectHeader`)."""

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002
        """See `HeaderConverter`."""
        return None if value is None else to_string(schema, value).encode()


class ByteArrayHeaderConverter(HeaderConverter):
    """Bytes only."""

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002
        """See `HeaderConverter`."""
        if value is None or isinstance(value, bytes):
            return value
        raise DataError(f"Header {key} is a {type(value).__name__}, and header.converter=keyfold.Bytes writes bytes.")


class ConvertedHeaders(HeaderConverter):
    """Headers as a converter writes values: Kafka's JsonConverter and NumberConverter are header converters too."""

    def __init__(self, converter: Converter) -> None:
        super().__init__(converter.options)
        self._converter = converter

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002
        """See `HeaderConverter`."""
        return self._converter.from_connect_data(topic, [], schema, value)


def header_converter(kind: type[Any], options: Mapping[str, Any]) -> HeaderConverter:
    """Makes the header converter of a class that HEADER_CONVERTERS names."""
    made: HeaderConverter
    made = ConvertedHeaders(kind(options, is_key=False)) if issubclass(kind, Converter) else kind(options)
    return made
