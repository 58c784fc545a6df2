"""Reads and writes JSON with schemas in a registry (Confluent's `JsonSchemaConverter`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from connectors.converters.converter import Headers
from connectors.converters.json.converter import DECIMAL_FORMAT, json_text
from connectors.converters.json.fields import JsonFields
from connectors.converters.json.schema_types import FromJsonSchema, to_json_schema
from connectors.converters.json.values import JsonForm, JsonValues, encoded, exact
from connectors.converters.registered import MOST_IDS, RegisteredConverter
from connectors.converters.written_fields import WrittenFields
from connectors.data.collector import decoded
from connectors.data.json_parts import decoded_in_parts
from connectors.data.kept import OfSchema, weight_of
from connectors.data.schema import Schema
from connectors.errors import DataError
from connectors.kept_values import Kept
from connectors.registry.answers import SchemaId
from connectors.rejection import reason_of


class JsonSchemaConverter(RegisteredConverter):
    """Values are JSON after the id of their schema. A value is not held against what its schema says of ranges."""

    KIND = "JSON"
    HAS_NULLS = True
    HAS_FIELDS = True
    OPTIONS = (
        *RegisteredConverter.OPTIONS,
        DECIMAL_FORMAT,
    )

    def __init__(self, options: Mapping[str, Any], *, is_key: bool) -> None:
        super().__init__(options, is_key=is_key)
        self._values = JsonValues(JsonForm(numeric=options[DECIMAL_FORMAT.name].upper() == "NUMERIC"))
        self._decoder = msgspec.json.Decoder(float_hook=exact)
        self._reads: Kept[SchemaId, Schema] = Kept(MOST_IDS)
        # The text of each schema as it is registered.
        self._texts = OfSchema(lambda schema: json.dumps(to_json_schema(schema), separators=(",", ":")))

    def maybe_null(self, values: pa.Array) -> pa.BooleanArray | None:
        """See `Converter.maybe_null`: `null` after an id, or alone if that is in a header."""
        return pc.match_substring_regex(values, rf"(?s)^{self.wire.pattern}[ \t\r\n]*null[ \t\r\n]*$")

    def to_connect_data(self, topic: str, headers: Headers, data: bytes | None) -> tuple[Schema | None, Any]:  # noqa: ARG002
        """See `Converter`."""
        if data is None:
            return None, None
        schema_id, start, _ = self.wire.read(headers, data)
        schema = self._schema(schema_id)
        try:
            node = decoded_in_parts(self._decoder.decode, json_text(data[start:]))
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise DataError(f"The data is no JSON: {reason_of(error)}.") from None
        return schema, self._values.read(schema, node)

    @property
    def schema_bytes(self) -> int:
        """See `Converter.schema_bytes`."""
        return self.wire.size

    def written_like(self, data: bytes, value: Any) -> bytes | None:
        """See `Converter.written_like`."""
        return data[: self.schema_bytes] + encoded(value)

    def schema_of(self, headers: Headers, data: bytes) -> Schema | None:
        """See `Converter.schema_of`."""
        return self._schema(self.wire.read(headers, data).schema_id)

    def _schema(self, schema_id: SchemaId) -> Schema:
        return self._reads.get(schema_id) or self.refusals.of(schema_id, lambda: self._read_of(schema_id))

    def from_connect_data(self, topic: str, headers: Headers, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002
        """See `Converter`."""
        if value is None and (schema is None or schema.optional):
            return None
        if schema is None:
            raise DataError("keyfold.JsonSchema writes values with a schema only.", "Write keyfold.Json instead.")
        schema_id = self.id_of(topic, self._texts(schema), schema.name)
        return self.wire.written(schema_id) + encoded(self._values.write(schema, value))

    def fields_of(self, headers: Headers, data: bytes) -> WrittenFields | None:
        """See `Converter`."""
        _, start, _ = self.wire.read(headers, data)
        head = data[:start]
        try:
            return JsonFields(json_text(data[start:]), lambda text: head + text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise DataError(f"The data is no JSON object: {reason_of(error)}.") from None

    def _read_of(self, schema_id: SchemaId) -> Schema:
        registered = self.registered(schema_id)
        if registered.kind != self.KIND:
            raise DataError(f"Schema {schema_id} is of type {registered.kind}, not JSON.", "Set its own converter.")
        texts = self.referenced(registered)
        try:
            references = {reference.name: decoded(json.loads, text) for reference, text in texts.items()}
            root = decoded(json.loads, registered.text)
            schema = FromJsonSchema(root, references, self._values.read_defaults()).schema(root)
        except DataError:
            raise
        except Exception as error:  # noqa: BLE001  # a schema of a registry may hold anything
            raise DataError(f"Schema {schema_id} is no JSON Schema: {reason_of(error)}.") from None
        return self._reads.put(schema_id, schema, weight_of(schema))
