"""Makes the key of fields of the value (`ValueToKey`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from connectors.data.kept import OfSchema
from connectors.data.record import ConnectRecord
from connectors.data.schema import Field, Schema, Type
from connectors.errors import DataError
from connectors.options import REQUIRED, Option
from connectors.transforms.transform import Side, Transform
from connectors.transforms.values import REPLACE_NULL, check_some, field_value, require_map, require_struct

_PURPOSE = "copying fields from value to key"


class ValueToKey(Transform):
    """The key is a struct (without a schema: a map) of these fields, whatever it was.

    Records of one new key may lie in several source partitions: each partition is a log of its own.
    """

    OPTIONS = (
        Option("fields", "LIST", REQUIRED, "The fields.", check=check_some, importance="HIGH"),
        REPLACE_NULL,
    )
    READS = frozenset({Side.VALUE})

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self._fields: list[str] = options["fields"]
        self._defaults: bool = options["replace.null.with.default"]
        self._of_schema = OfSchema(self._key_of)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """See `Transform`."""
        schema, value = record.value_schema, record.value
        if schema is None:
            entries = require_map(value, _PURPOSE)
            return replace(record, key_schema=None, key={name: entries.get(name) for name in self._fields})
        struct = require_struct(schema, value, _PURPOSE)
        key_schema, fields = self._of_schema(schema)
        key = {field.name: field_value(field, struct, defaults=self._defaults) for field in fields}
        return replace(record, key_schema=key_schema, key=key)

    def _key_of(self, schema: Schema) -> tuple[Schema, tuple[Field, ...]]:
        fields, by_name = [], schema.by_name()
        for name in self._fields:
            field = by_name.get(name)
            if field is None:
                raise DataError(f"There is no field {name} in the value's schema {schema.name or ''}.")
            fields.append(field)
        return Schema(type=Type.STRUCT, fields=tuple(fields)), tuple(fields)
