"""Takes bytes for what they are (`org.apache.kafka.connect.converters.ByteArrayConverter`)."""

from __future__ import annotations

from typing import Any, Final

from connectors.converters.converter import Converter, Headers
from connectors.data.schema import Schema, Type
from connectors.errors import DataError

OPTIONAL_BYTES: Final = Schema(type=Type.BYTES, optional=True)


class BytesConverter(Converter):
    """The default: values are bytes, with a schema that says so."""

    def to_connect_data(self, topic: str, headers: Headers, data: bytes | None) -> tuple[Schema | None, Any]:  # noqa: ARG002
        """See `Converter`; it raises nothing."""
        return OPTIONAL_BYTES, data

    def from_connect_data(self, topic: str, headers: Headers, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002
        """See `Converter`."""
        if schema is not None and schema.type is not Type.BYTES:
            raise DataError(
                f"keyfold.Bytes cannot write a value of type {schema.type.value}.",
                "Set the converter that its reader expects, for example keyfold.Json.",
            )
        if value is None or isinstance(value, bytes):
            return value
        raise DataError(
            f"keyfold.Bytes cannot write a {type(value).__name__}.",
            "Set the converter that its reader expects, for example keyfold.Json.",
        )
