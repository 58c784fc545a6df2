"""Makes headers of fields (`HeaderFrom`, KIP-145)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from connectors.data.kept import OfSchema
from connectors.data.record import ConnectRecord, Header
from connectors.data.schema import Schema
from connectors.errors import DataError
from connectors.options import REQUIRED, Option, OptionsError
from connectors.transforms.transform import Side, SidedTransform
from connectors.transforms.values import REPLACE_NULL, basics, field_value, require_map, require_struct, with_fields


class HeaderFrom(SidedTransform):
    """`move` takes the fields away, `copy` leaves them."""

    OPTIONS = (
        Option("fields", "LIST", REQUIRED, "The fields.", importance="HIGH"),
        Option("headers", "LIST", REQUIRED, "The headers' names, in the order of the fields.", importance="HIGH"),
        Option("operation", "STRING", REQUIRED, "What is done.", allowed=("move", "copy"), importance="HIGH"),
        REPLACE_NULL,
    )

    def __init__(self, options: Mapping[str, Any], side: Side) -> None:
        super().__init__(options, side)
        fields, headers = options["fields"], options["headers"]
        if not fields or len(fields) != len(headers):
            raise OptionsError([("headers", f"{len(headers)} headers for {len(fields)} fields; name one for each.")])
        self._pairs: Final = list(zip(fields, headers, strict=True))
        self._moves: bool = options["operation"] == "move"
        self._defaults: bool = options["replace.null.with.default"]
        self._updated = OfSchema(self._moved)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """See `Transform`."""
        schema, value = self.operating_schema(record), self.operating_value(record)
        purpose = f"header {self.options['operation']}"
        if schema is None:
            entries = dict(require_map(value, purpose))
            taken = [Header(header, entries.get(field), None, True) for field, header in self._pairs]  # noqa: FBT003
            rest = (
                entries
                if not self._moves
                else {name: entry for name, entry in entries.items() if not self._names(name)}
            )
        else:
            struct = require_struct(schema, value, purpose)
            taken = [self._header(schema, struct, field, header) for field, header in self._pairs]
            schema, rest = self._rest(schema, struct)
        made = self.new_record(record, schema, rest)
        return replace(made, headers=(*record.headers, *taken))

    def _rest(self, schema: Schema, struct: dict[str, Any]) -> tuple[Schema, dict[str, Any]]:
        if not self._moves:
            return schema, struct
        updated = self._updated(schema)
        return updated, {field.name: field_value(field, struct, defaults=self._defaults) for field in updated.fields}

    def _header(self, schema: Schema, struct: dict[str, Any], name: str, header: str) -> Header:
        field = schema.field(name)
        if field is None:
            raise DataError(f"There is no field {name} in the schema {schema.name or ''}.")
        return Header(header, field_value(field, struct, defaults=self._defaults), field.schema, is_new=True)

    def _names(self, name: str) -> bool:
        return any(field == name for field, _ in self._pairs)

    def _moved(self, schema: Schema) -> Schema:
        return with_fields(basics(schema), (field for field in schema.fields if not self._names(field.name)))
