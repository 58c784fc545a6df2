"""Gives a schema another name or version (`SetSchemaMetadata`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from connectors.data.record import ConnectRecord
from connectors.data.schema import OfSchema, Schema
from connectors.errors import DataError
from connectors.options import Option
from connectors.transforms.transform import Side, SidedTransform
from connectors.transforms.values import REPLACE_NULL


class SetSchemaMetadata(SidedTransform):
    """A value without a schema is an error, unless it is null."""

    OPTIONS = (
        Option("schema.name", "STRING", None, "The schema's name.", importance="HIGH"),
        Option("schema.version", "INT", None, "The schema's version.", importance="HIGH"),
        REPLACE_NULL,
    )

    def __init__(self, options: Mapping[str, Any], side: Side) -> None:
        super().__init__(options, side)
        self._updated = OfSchema(self._renamed)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """See `Transform`."""
        schema, value = self.operating_schema(record), self.operating_value(record)
        if schema is None:
            if value is None:
                return record
            raise DataError("There is no schema that could be renamed.", "Set a converter that has schemas.")
        return self.new_record(record, self._updated(schema), value)

    def _renamed(self, schema: Schema) -> Schema:
        name, version = self.options["schema.name"], self.options["schema.version"]
        return replace(
            schema,
            name=schema.name if name is None else name,
            version=schema.version if version is None else version,
        )
