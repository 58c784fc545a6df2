"""Brings the fields of nested structures to the top, with their path as name (`Flatten`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from connectors.data.growth import MOST_MADE, Made
from connectors.data.kept import OfSchema
from connectors.data.record import ConnectRecord
from connectors.data.schema import Field, Schema, Type
from connectors.errors import DataError
from connectors.options import Option
from connectors.transforms.transform import Side, SidedTransform
from connectors.transforms.values import basics, require_map, require_struct, with_fields

_PURPOSE: Final = "flattening"
_NAMES: Final = "The names that Flatten makes"


class Flatten(SidedTransform):
    """Lists stay as they are, as do maps with a schema of their own; a null stays null."""

    OPTIONS = (Option("delimiter", "STRING", ".", "What stands between the names of a path."),)

    def __init__(self, options: Mapping[str, Any], side: Side) -> None:
        super().__init__(options, side)
        self._delimiter: str = options["delimiter"]
        self._updated = OfSchema(self._flattened)

    @property
    def added(self) -> int:
        """See `Transform.added`: names are as long as their path."""
        return MOST_MADE

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """See `Transform`."""
        schema, value = self.operating(record)
        if value is None:
            return record
        if schema is None:
            return self.new_record(record, None, dict(self._entries("", require_map(value, _PURPOSE), Made(_NAMES))))
        struct = require_struct(schema, value, _PURPOSE)
        return self.new_record(record, self._updated(schema), dict(self._values("", schema, struct)))

    def _name(self, prefix: str, name: str) -> str:
        return f"{prefix}{self._delimiter}{name}" if prefix else name

    def _entries(self, prefix: str, value: Mapping[str, Any], names: Made) -> Iterator[tuple[str, Any]]:
        names.add(len(value), len(prefix) + len(self._delimiter))
        for name, inner in value.items():
            path = self._name(prefix, name)
            if isinstance(inner, dict):
                yield from self._entries(path, inner, names)
            else:
                yield path, inner

    def _values(self, prefix: str, schema: Schema, struct: Mapping[str, Any] | None) -> Iterator[tuple[str, Any]]:
        """Yields the fields of `struct`; of a null nothing: its fields are missing, which is null."""
        if struct is None:
            return
        for field in schema.fields:
            path, value = self._name(prefix, field.name), struct.get(field.name)
            value = field.schema.default if value is None else value
            if field.schema.type is Type.STRUCT:
                yield from self._values(path, field.schema, value)
            else:
                yield path, value

    def _flattened(self, schema: Schema) -> Schema:
        names = Made(_NAMES)
        fields = tuple(self._fields("", schema, names, optional=schema.optional, default=schema.default))
        return with_fields(basics(schema), fields)

    def _fields(self, prefix: str, schema: Schema, names: Made, *, optional: bool, default: Any) -> Iterator[Field]:
        names.add(len(schema.fields), len(prefix) + len(self._delimiter))
        for field in schema.fields:
            own = field.schema
            path, is_optional = self._name(prefix, field.name), optional or own.optional
            value = own.default if own.default is not None else (default or {}).get(field.name)
            if own.type is Type.STRUCT:
                yield from self._fields(path, own, names, optional=is_optional, default=value)
            elif own.type is Type.MAP:
                raise DataError(f"Flatten does not take the map {path} of a record with a schema.")
            else:
                yield Field(path, replace(own, optional=is_optional, default=value))
