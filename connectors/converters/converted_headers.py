"""Write the headers that transforms add as a converter writes values: those of Kafka's classes that are both.

`org.apache.kafka.connect.json.JsonConverter` and the classes of NumberConverter: `fromConnectHeader` is
`fromConnectData`. Beside `header_converters.py`, so that the default imports none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from connectors.converters import number_converters
from connectors.converters.converter import Converter
from connectors.converters.header_converters import HeaderConverter
from connectors.converters.json.converter import JsonConverter
from connectors.data.schema import Schema


class _ConvertedHeaders(HeaderConverter):
    """Headers as the converter `OF` writes values."""

    OF: ClassVar[type[Converter]]

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self._converter = self.OF(options, is_key=False)

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002
        """See `HeaderConverter`."""
        return self._converter.from_connect_data(topic, [], schema, value)


class JsonHeaderConverter(_ConvertedHeaders):
    """JSON, with its schema where `schemas.enable` does not say otherwise."""

    OF = JsonConverter
    OPTIONS = JsonConverter.OPTIONS


class BooleanHeaderConverter(_ConvertedHeaders):
    """Truth values."""

    OF = number_converters.BooleanConverter


class ShortHeaderConverter(_ConvertedHeaders):
    """Numbers of 16 bits."""

    OF = number_converters.ShortConverter


class IntegerHeaderConverter(_ConvertedHeaders):
    """Numbers of 32 bits."""

    OF = number_converters.IntegerConverter


class LongHeaderConverter(_ConvertedHeaders):
    """Numbers of 64 bits."""

    OF = number_converters.LongConverter


class FloatHeaderConverter(_ConvertedHeaders):
    """Floating-point numbers of 32 bits."""

    OF = number_converters.FloatConverter


class DoubleHeaderConverter(_ConvertedHeaders):
    """Floating-point numbers of 64 bits."""

    OF = number_converters.DoubleConverter
