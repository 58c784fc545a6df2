"""Puts one field in the place of the whole key or value (`ExtractField`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.data.kept import OfSchema
from connectors.data.record import ConnectRecord
from connectors.data.schema import Schema
from connectors.errors import DataError
from connectors.options import REQUIRED, Option, OptionsError
from connectors.transforms.transform import Side, SidedTransform
from connectors.transforms.values import (
    REPLACE_NULL,
    SYNTAX,
    check_path,
    follow,
    path_of,
    require_map,
    require_struct,
    schema_at,
)

_PURPOSE = "field extraction"


class ExtractField(SidedTransform):
    """What is null stays null. Without a schema a field that is missing is null; with one it is an error."""

    OPTIONS = (
        Option("field", "STRING", REQUIRED, "The field.", importance="MEDIUM"),
        REPLACE_NULL,
        SYNTAX,
    )

    def __init__(self, options: Mapping[str, Any], side: Side) -> None:
        super().__init__(options, side)
        if wrong := check_path(options["field"], options["field.syntax.version"]):
            raise OptionsError([("field", f'"{options["field"]}" is not allowed: {wrong}')])
        self._path = path_of(options["field"], options["field.syntax.version"])
        self._schema = OfSchema(lambda schema: schema_at(self._path, schema))

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """See `Transform`."""
        schema, value = self.operating(record)
        if schema is None:
            held = None if value is None else follow(self._path, require_map(value, _PURPOSE))
            return self.new_record(record, None, held)
        inner: Schema | None = self._schema(schema)
        if inner is None:
            raise DataError(f"There is no field {self.options['field']} in the schema {schema.name or ''}.")
        if value is None:
            return self.new_record(record, inner, None)
        return self.new_record(record, inner, self._at_path(schema, require_struct(schema, value, _PURPOSE)))

    def _at_path(self, schema: Schema, value: Any) -> Any:
        for step in self._path:
            field = schema.field(step)
            if value is None or field is None:
                return None
            value = value.get(step)
            if value is None and self._defaults:
                value = field.schema.default
            schema = field.schema
        return value
