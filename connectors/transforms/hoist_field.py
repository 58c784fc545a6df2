"""Wraps the whole key or value as the one field of a struct or map (`HoistField`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.data.kept import OfSchema
from connectors.data.record import ConnectRecord
from connectors.data.schema import Field, Schema, Type
from connectors.options import REQUIRED, Option
from connectors.transforms.transform import Side, SidedTransform


class HoistField(SidedTransform):
    """With a schema a struct of one field, without one a map of one entry; a null is wrapped as well."""

    OPTIONS = (Option("field", "STRING", REQUIRED, "The name of the field.", importance="MEDIUM"),)

    def __init__(self, options: Mapping[str, Any], side: Side) -> None:
        super().__init__(options, side)
        self._field: str = options["field"]
        self._schema = OfSchema(lambda schema: Schema(type=Type.STRUCT, fields=(Field(self._field, schema),)))

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """See `Transform`."""
        schema, value = self.operating(record)
        wrapped = None if schema is None else self._schema(schema)
        return self.new_record(record, wrapped, {self._field: value})
