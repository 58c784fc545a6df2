"""Keeps, leaves out or renames fields (`ReplaceField`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from connectors.data.kept import OfSchema
from connectors.data.record import ConnectRecord
from connectors.data.schema import Field, Schema
from connectors.options import Option, OptionsError
from connectors.transforms.transform import Side, SidedTransform
from connectors.transforms.values import REPLACE_NULL, basics, field_value, require_map, require_struct, with_fields

_PURPOSE: Final = "field replacement"


class ReplaceField(SidedTransform):
    """`exclude` wins over `include`; what is left is renamed. A null stays null."""

    OPTIONS = (
        Option("exclude", "LIST", [], "Fields that are left out."),
        Option("include", "LIST", [], "Fields that are kept; none: all."),
        Option("renames", "LIST", [], "New names: `OLD:NEW`, several with commas between them."),
        REPLACE_NULL,
    )

    def __init__(self, options: Mapping[str, Any], side: Side) -> None:
        super().__init__(options, side)
        self._exclude, self._include = frozenset(options["exclude"]), frozenset(options["include"])
        self._renames = dict(map(_rename, options["renames"]))
        self._updated = OfSchema(self._replaced)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """See `Transform`."""
        schema, value = self.operating(record)
        if value is None:
            return record
        if schema is None:
            entries = require_map(value, _PURPOSE).items()
            kept = {self._renames.get(name, name): entry for name, entry in entries if self._keeps(name)}
            return self.new_record(record, None, kept)
        struct = require_struct(schema, value, _PURPOSE)
        updated, fields = self._updated(schema)
        new = {name: field_value(field, struct, defaults=self._defaults) for name, field in fields}
        return self.new_record(record, updated, new)

    def _keeps(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def _replaced(self, schema: Schema) -> tuple[Schema, list[tuple[str, Field]]]:
        fields = [
            (self._renames.get(field.name, field.name), field) for field in schema.fields if self._keeps(field.name)
        ]
        return with_fields(basics(schema), (Field(name, field.schema) for name, field in fields)), fields


def _rename(text: str) -> tuple[str, str]:
    old, colon, new = text.partition(":")
    if not colon or not old or not new or ":" in new:
        raise OptionsError([("renames", f'"{text}" is not OLD:NEW.')])
    return old, new
