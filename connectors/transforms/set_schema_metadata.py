"""Gives a schema another name or version (`SetSchemaMetadata`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from connectors.data.kept import OfSchema
from connectors.data.record import ConnectRecord
from connectors.data.schema import Schema, Type
from connectors.errors import DataError
from connectors.options import Option, OptionsError
from connectors.transforms.transform import Side, SidedTransform
from connectors.transforms.values import REPLACE_NULL


class SetSchemaMetadata(SidedTransform):
    """A value without a schema is an error, unless it is null; so is a schema of anything but a struct."""

    OPTIONS = (
        Option("schema.name", "STRING", None, "The schema's name.", importance="HIGH"),
        Option("schema.version", "INT", None, "The schema's version.", importance="HIGH"),
        REPLACE_NULL,
    )

    def __init__(self, options: Mapping[str, Any], side: Side) -> None:
        super().__init__(options, side)
        if options["schema.name"] is None and options["schema.version"] is None:
            raise OptionsError([("schema.name", "neither schema.name nor schema.version is set; set one, or both.")])
        self._updated = OfSchema(self._renamed)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """See `Transform`."""
        schema, value = self.operating(record)
        if schema is None:
            if value is None:
                return record
            raise DataError("There is no schema that could be renamed.", "Set a converter that has schemas.")
        updated = self._updated(schema)
        if isinstance(value, dict):
            value = self.values_of(schema.fields, value)
        return self.new_record(record, updated, value)

    def _renamed(self, schema: Schema) -> Schema:
        if schema.type is not Type.STRUCT:
            raise DataError(f"Only structs get another name or version of their schema, not {schema.type.value}.")
        name, version = self.options["schema.name"], self.options["schema.version"]
        return replace(
            schema,
            name=schema.name if name is None else name,
            version=schema.version if version is None else version,
        )
