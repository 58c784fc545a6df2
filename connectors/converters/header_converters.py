"""Write the headers that transforms add (`org.apache.kafka.connect.storage.HeaderConverter`).

Headers that were read are never looked at, so nothing here reads any.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

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
