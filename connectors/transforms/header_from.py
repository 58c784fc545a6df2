"""Makes headers of fields (`HeaderFrom`, KIP-145)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from connectors.data.kept import OfSchema
from connectors.data.record import ConnectRecord, Header
from connectors.data.schema import Field, Schema
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
        self._names: Final = frozenset(fields)
        self._moves: bool = options["operation"] == "move"
        self._of_schema = OfSchema(self._fields_and_rest)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """See `Transform`."""
        schema, value = self.operating(record)
        purpose = f"header {self.options['operation']}"
        if schema is None:
            entries = dict(require_map(value, purpose))
            taken = [Header(header, entries.get(field), None, True) for field, header in self._pairs]  # noqa: FBT003
            rest = entries
            if self._moves:
                rest = {name: entry for name, entry in entries.items() if name not in self._names}
        else:
            struct = require_struct(schema, value, purpose)
            fields, updated = self._of_schema(schema)
            taken = [
                Header(
                    header, field_value(fields[name], struct, defaults=self._defaults), fields[name].schema, is_new=True
                )
                for name, header in self._pairs
            ]
            rest = struct
            if self._moves:
                rest = self.values_of(updated.fields, struct)
            schema = updated
        made = self.new_record(record, schema, rest)
        return replace(made, headers=(*record.headers, *taken))

    def _fields_and_rest(self, schema: Schema) -> tuple[dict[str, Field], Schema]:
        """Returns the fields by name, and the schema of what is left. Raises DataError if one is not there."""
        fields = schema.by_name()
        missing = next((field for field, _ in self._pairs if field not in fields), None)
        if missing is not None:
            raise DataError(f"There is no field {missing} in the schema {schema.name or ''}.")
        if not self._moves:
            return fields, schema
        return fields, with_fields(basics(schema), (field for field in schema.fields if field.name not in self._names))
