"""Gives fields, or a whole key or value, another type (`Cast`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from connectors.data.kept import OfSchema
from connectors.data.record import ConnectRecord
from connectors.data.schema import DATE, DECIMAL, TIME, TIMESTAMP, Field, Schema, Type
from connectors.options import REQUIRED, Option, OptionsError
from connectors.transforms.casts import cast_value
from connectors.transforms.transform import Side, SidedTransform
from connectors.transforms.values import REPLACE_NULL, basics, field_value, require_map, require_struct, with_fields

_PURPOSE: Final = "cast types"
_LOGICAL: Final = {DATE, DECIMAL, TIME, TIMESTAMP}
_TYPES: Final = {
    "int8": Type.INT8,
    "int16": Type.INT16,
    "int32": Type.INT32,
    "int64": Type.INT64,
    "float32": Type.FLOAT32,
    "float64": Type.FLOAT64,
    "boolean": Type.BOOLEAN,
    "string": Type.STRING,
}


class Cast(SidedTransform):
    """Numbers, truth values and texts are cast into each other, bytes and dates into texts; a null stays null."""

    OPTIONS = (
        Option(
            "spec",
            "LIST",
            REQUIRED,
            f"`FIELD:TYPE`, several with commas between them, or one `TYPE` for the whole. Types: {', '.join(_TYPES)}.",
            importance="HIGH",
        ),
        REPLACE_NULL,
    )

    def __init__(self, options: Mapping[str, Any], side: Side) -> None:
        super().__init__(options, side)
        pairs = dict(map(_pair, options["spec"]))
        self._whole: Type | None = pairs.pop("", None)
        self._fields: Final = pairs
        if not options["spec"] or (self._whole and pairs) or (self._whole and len(options["spec"]) > 1):
            raise OptionsError([("spec", "give the types of fields, or one type for the whole.")])
        self._defaults: bool = options["replace.null.with.default"]
        self._updated = OfSchema(self._with_types)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """See `Transform`."""
        schema, value = self.operating_schema(record), self.operating_value(record)
        if value is None:
            return record
        if schema is None:
            return self.new_record(record, None, self._without_schema(value))
        updated, casts = self._updated(schema)
        if self._whole is not None:
            return self.new_record(record, updated, cast_value(schema, value, self._whole))
        struct = require_struct(schema, value, _PURPOSE)
        made = {name: cast(field_value(field, struct, defaults=self._defaults)) for name, field, cast in casts}
        return self.new_record(record, updated, made)

    def _without_schema(self, value: Any) -> Any:
        if self._whole is not None:
            return cast_value(None, value, self._whole)
        entries = require_map(value, _PURPOSE)
        cast = {name: cast_value(None, entries.get(name), kind) for name, kind in self._fields.items()}
        return {**entries, **cast}

    def _with_types(self, schema: Schema) -> tuple[Schema, list[tuple[str, Field, Callable[[Any], Any]]]]:
        if self._whole is not None:
            kept = basics(schema) if schema.name not in _LOGICAL else Schema(type=schema.type)
            typed = _typed(schema, self._whole)
            return replace(kept, type=typed.type, optional=typed.optional, default=typed.default), []
        fields, casts = [], []
        for field in schema.fields:
            kind = self._fields.get(field.name)
            fields.append(field if kind is None else Field(field.name, _typed(field.schema, kind)))
            casts.append((field.name, field, _same if kind is None else _caster(field.schema, kind)))
        made = replace(with_fields(basics(schema), fields), optional=schema.optional, default=schema.default)
        return made, casts


def _pair(text: str) -> tuple[str, Type]:
    name, colon, kind = text.rpartition(":")
    if kind.strip().lower() not in _TYPES or (colon and not name.strip()):
        raise OptionsError([("spec", f'"{text}" is no FIELD:TYPE or TYPE; types are {", ".join(_TYPES)}.')])
    return name.strip(), _TYPES[kind.strip().lower()]


def _typed(schema: Schema, kind: Type) -> Schema:
    default = None if schema.default is None else cast_value(schema, schema.default, kind)
    return Schema(type=kind, optional=schema.optional, default=default)


def _caster(schema: Schema, kind: Type) -> Callable[[Any], Any]:
    return lambda value: cast_value(schema, value, kind)


def _same(value: Any) -> Any:
    return value
