"""Adds fields with what is known of a record: topic, partition, offset, time, or a fixed text (`InsertField`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from connectors.data.kept import OfSchema
from connectors.data.record import ConnectRecord
from connectors.data.schema import INT32, INT64, STRING, TIMESTAMP_SCHEMA, Field, Schema
from connectors.options import Option, OptionsError
from connectors.transforms.transform import Side, SidedTransform
from connectors.transforms.values import REPLACE_NULL, basics, require_map, require_struct, with_fields

_PURPOSE: Final = "field insertion"
_SUFFIX: Final = "With `!` at its end the field is required, with `?`, or nothing, optional."


class _Insertion(Struct, frozen=True):
    """A field and the source of its value: a part of the record, or `text` for `static`."""

    name: str
    source: str
    schema: Schema
    text: str = ""

    def value_of(self, record: ConnectRecord) -> Any:
        """Returns the value for `record`."""
        return self.text if self.source == "static" else getattr(record, self.source)


_SCHEMAS: Final = {
    "topic": STRING,
    "partition": INT32,
    "offset": INT64,
    "timestamp": TIMESTAMP_SCHEMA,
    "static": STRING,
}


class InsertField(SidedTransform):
    """A null stays null. A field that is there already is replaced in a map, and is an error with a schema."""

    OPTIONS = (
        Option("topic.field", "STRING", None, f"The field for the record's topic. {_SUFFIX}"),
        Option("partition.field", "STRING", None, f"The field for the source partition. {_SUFFIX}"),
        Option("offset.field", "STRING", None, f"The field for the source offset. {_SUFFIX}"),
        Option("timestamp.field", "STRING", None, f"The field for the record's timestamp. {_SUFFIX}"),
        Option("static.field", "STRING", None, f"The field for `static.value`. {_SUFFIX}"),
        Option("static.value", "STRING", None, "The text of `static.field`."),
        REPLACE_NULL,
    )

    def __init__(self, options: Mapping[str, Any], side: Side) -> None:
        super().__init__(options, side)
        if options["static.field"] is not None and options["static.value"] is None:
            raise OptionsError([("static.value", "missing; it is what static.field gets.")])
        self._insertions = [
            _insertion(source, options[f"{source}.field"], options["static.value"] or "")
            for source in _SCHEMAS
            if options[f"{source}.field"]
        ]
        if not self._insertions:
            raise OptionsError([("static.field", "no field is inserted; set one of the settings that end in .field.")])
        self._updated = OfSchema(self._with_insertions)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """See `Transform`."""
        schema, value = self.operating(record)
        if value is None:
            return record
        new = {insertion.name: insertion.value_of(record) for insertion in self._insertions}
        if schema is None:
            there = {name: inserted for name, inserted in new.items() if inserted is not None}
            return self.new_record(record, None, {**require_map(value, _PURPOSE), **there})
        struct = require_struct(schema, value, _PURPOSE)
        copied = self.values_of(schema.fields, struct)
        return self.new_record(record, self._updated(schema), {**copied, **new})

    def _with_insertions(self, schema: Schema) -> Schema:
        return with_fields(
            basics(schema),
            (*schema.fields, *(Field(insertion.name, insertion.schema) for insertion in self._insertions)),
        )


def _insertion(source: str, text: str, static: str) -> _Insertion:
    schema = _SCHEMAS[source]
    if text.endswith("!"):
        return _Insertion(text[:-1], source, schema, static)
    return _Insertion(text.removesuffix("?"), source, schema.as_optional(), static)
