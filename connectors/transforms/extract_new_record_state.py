"""Makes the row itself of Debezium's change events (Debezium's `ExtractNewRecordState`).

A change event is a struct with a schema name that ends in `.Envelope`; it has the row `before` and `after` the change;
other records pass as they are. Debezium gives a delete's null the schema of the row; here it has none: a converter
would otherwise be free to write a null that is no tombstone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from connectors.data.growth import Made
from connectors.data.kept import OfSchema
from connectors.data.record import ConnectRecord, Header
from connectors.data.schema import STRING, Field, Schema
from connectors.data.unwrapping import AFTER, BEFORE, ENVELOPE, EventForms, Place, RowAddition, RowForm, Unwrapping
from connectors.errors import DataError
from connectors.options import Option, OptionsError
from connectors.transforms.transform import Side, Transform, TruncateError
from connectors.transforms.values import REPLACE_NULL, basics, field_value, require_struct, with_fields

_log = structlog.get_logger()
_PURPOSE: Final = "taking the row out of a change event"
_DELETED: Final = "__deleted"
_OP: Final = "op"
_TRUNCATE: Final = "t"
_OF_ENVELOPE: Final = frozenset({_OP, "ts_ms", "ts_us", "ts_ns"})
_OF_TRANSACTION: Final = frozenset({"id", "total_order", "data_collection_order"})
_ADDED: Final = 800
"""About how many bytes an added field takes in what is kept of a schema, for changes and deletes together."""
_MOST_COPIES: Final = 2
"""How often a text of an event may stand in its row, for the same reason; it may be one header besides."""
_MOST_NAMES: Final = 4_096
"""Characters of the names that are added to a row up to which events are unwrapped by columns: the rows of a whole
batch, some 5,000, are in memory together."""
_MODES: Final = ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")


class AddedField(Struct, frozen=True):
    """A field of the event that is added: `parent` is the struct that it is in, None for the event itself."""

    parent: str | None
    name: str
    added_as: str

    def find(self, fields: EventFields) -> tuple[str | None, Schema] | None:
        """Returns the place of the field and its schema; None if the event has none."""
        field = fields.of(self.parent).get(self.name)
        if field is not None:
            return self.parent, _optional(field.schema)
        own = fields.of(None).get(self.name)
        return None if own is None else (None, _optional(own.schema))


class EventFields:
    """The fields of an event, and of the structs in it, by their names: many may be added of one event."""

    def __init__(self, envelope: Schema) -> None:
        # By the name of a struct, None for the event itself; the structs as they are asked for.
        self._fields: dict[str | None, dict[str, Field]] = {None: envelope.by_name()}

    def of(self, parent: str | None) -> Mapping[str, Field]:
        """Returns the fields of the struct `parent`, those of the event for None; none if there is no such struct."""
        if parent not in self._fields:
            assert parent is not None  # the event's are there from the beginning
            struct = self._fields[None].get(parent)
            self._fields[parent] = {} if struct is None else struct.schema.by_name()
        return self._fields[parent]


class ExtractNewRecordState(Transform):
    """A delete becomes a tombstone, unless `delete.tombstone.handling.mode` says otherwise."""

    OPTIONS = (
        Option(
            "delete.tombstone.handling.mode",
            "STRING",
            "tombstone",
            "What a delete becomes. `tombstone`, `delete-to-tombstone`: one tombstone. `drop`: nothing, so the row "
            "stays. `rewrite`: the row as it was, with the field `__deleted`. `rewrite-with-tombstone`: that, and a "
            "tombstone.",
            allowed=_MODES,
        ),
        Option("add.fields", "LIST", [], "Fields of the event to add: `op`, `table`, `source.ts_ms`, `op:NEW_NAME`."),
        Option("add.fields.prefix", "STRING", "__", "What their names begin with."),
        Option("add.headers", "LIST", [], "The same as headers."),
        Option("add.headers.prefix", "STRING", "__", "What the headers' names begin with."),
        Option("route.by.field", "STRING", "", "Not supported: a log has one output topic."),
        REPLACE_NULL,
    )
    READS = frozenset({Side.VALUE})

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        check_no_route(options)
        self._mode: str = options["delete.tombstone.handling.mode"]
        self._rewrites: Final = self._mode.startswith("rewrite")
        self._added = added_fields("add.fields", options)
        self._headers = added_fields("add.headers", options)
        self._defaults: bool = options["replace.null.with.default"]
        self._forms = OfSchema(self._forms_of, own=_ADDED * len(self._added))
        self._found_headers = OfSchema(self._find_headers, own=_ADDED * len(self._headers))
        # Whether records without a schema were warned of; each of them would write the same line.
        self._has_warned = False

    @property
    def copies(self) -> int:
        """See `Transform.copies`: a field of the event may be added under several names, and is in the row as well."""
        return 1 + max(Counter((field.parent, field.name) for field in self._added).values(), default=0)

    def fields_of(self, schema: Schema) -> frozenset[str] | None:
        """See `Transform.fields_of`."""
        if not _is_envelope(schema):
            return None
        added = (*self._added, *self._headers)
        return frozenset(
            {BEFORE, AFTER, _OP, *(field.parent or field.name for field in added), *(field.name for field in added)}
        )

    @property
    def unwrapping(self) -> Unwrapping | None:
        """See `Transform.unwrapping`."""
        names = sum(len(field.added_as) for field in (*self._added, *self._headers))
        headers = {(field.parent, field.name) for field in self._headers}
        if self.copies > _MOST_COPIES or names > _MOST_NAMES or len(headers) < len(self._headers):
            return None
        return Unwrapping(
            drops_deletes=self._mode == "drop",
            drops_nulls=self._drops_nulls,
            forms=self._forms_by_columns,
            passes=self._warn_once,
        )

    def _forms_by_columns(self, schema: Schema) -> EventForms | None:
        has_row = schema.field(AFTER) or schema.field(BEFORE)
        if not has_row or not _is_envelope(schema):
            return None
        headers = [RowAddition(name, own, place) for name, place, own in self._found_headers(schema)]
        return self._forms(schema)._replace(headers=headers)

    @property
    def _drops_nulls(self) -> bool:
        return self._mode != "rewrite-with-tombstone"

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        """See `Transform`."""
        schema, value = record.value_schema, record.value
        if value is None:
            return None if self._drops_nulls else replace(record, value_schema=None)
        if schema is None:
            self._warn_once(record.topic)
            return record
        if not _is_envelope(schema):
            return record
        event = require_struct(schema, value, _PURPOSE)
        after, before = event.get(AFTER), event.get(BEFORE)
        if after is None and before is None and event.get(_OP) == _TRUNCATE:
            raise TruncateError
        # Debezium drops all that have no row, too; but only a truncate may empty a table (debezium.truncate=apply).
        if after is None and (before is None or self._mode == "drop"):
            return None
        made = replace(record, value_schema=None, value=None)
        if after is not None:
            made = _written(record, self._forms(schema).changed, event, after)
        elif self._rewrites:
            made = _written(record, self._forms(schema).deleted, event, before)
        return self._with_headers(made, schema, event) if self._headers else made

    def _warn_once(self, topic: str) -> None:
        """Logs that change events without a schema are not seen: the transform is kept for all of its connector."""
        if not self._has_warned:
            self._has_warned = True
            action = "set the value.converter that gives their schema"
            _log.warning(
                "ExtractNewRecordState passes records without a schema as they are", topic=topic, action=action
            )

    def _with_headers(self, record: ConnectRecord, schema: Schema, event: dict[str, Any]) -> ConnectRecord:
        new = (
            Header(name, value_at(event, place), own, is_new=True) for name, place, own in self._found_headers(schema)
        )
        return replace(record, headers=(*record.headers, *new))

    def _find_headers(self, schema: Schema) -> list[FieldPlace]:
        return places_of(self._headers, EventFields(schema))

    def _forms_of(self, schema: Schema) -> EventForms:
        after, before = _row_schemas(schema)
        added = [RowAddition(name, own, place) for name, place, own in places_of(self._added, EventFields(schema))]
        if not self._rewrites:
            return EventForms(_form(after, added, replaces_nulls=False), None)
        # Debezium adds `__deleted` with Kafka's InsertField, which replaces nulls; its copy for `add.fields` does not.
        marks = [RowAddition(_DELETED, STRING.as_optional(), None, text) for text in ("false", "true")]
        changed, deleted = (
            _form(row, [mark, *added], replaces_nulls=self._defaults)
            for row, mark in zip((after, before), marks, strict=True)
        )
        return EventForms(changed, deleted)


def _form(row: Schema, added: Sequence[RowAddition], *, replaces_nulls: bool) -> RowForm:
    if not added:
        return RowForm(row)
    fields = (*row.fields, *(Field(each.name, each.schema) for each in added))
    return RowForm(with_fields(basics(row), fields), added, replaces_nulls)


def _written(record: ConnectRecord, form: RowForm | None, event: dict[str, Any], row: Any) -> ConnectRecord:
    """Returns `record` with the row of its event as `form` says."""
    assert form is not None  # there is one for each row that is written
    if form.added:
        row = {field.name: field_value(field, row, defaults=form.replaces_nulls) for field in form.own}
        for name, _, place, text in form.added:
            row[name] = text if place is None else value_at(event, place)
    return replace(record, value_schema=form.schema, value=row)


def _is_envelope(schema: Schema) -> bool:
    return schema.name is not None and schema.name.endswith(ENVELOPE)


def _row_schemas(schema: Schema) -> tuple[Schema, Schema]:
    """Returns the schemas of the row after and before a change."""
    after, before = schema.field(AFTER), schema.field(BEFORE)
    own = after or before
    assert own is not None  # one of them is not null
    return basics((after or own).schema), basics((before or own).schema)


def _optional(schema: Schema) -> Schema:
    return replace(basics(schema), optional=True)


def check_no_route(options: Mapping[str, Any]) -> None:
    """Raises OptionsError if `route.by.field` is set."""
    if options["route.by.field"]:
        raise OptionsError([("route.by.field", "is not supported: a log has one output topic. Remove it.")])


FieldPlace = tuple[str, Place, Schema]
"""What a field is added as, its place in an event (`value_at`), and its schema."""


def places_of(fields: Iterable[AddedField], event: EventFields) -> list[FieldPlace]:
    """Returns the place of each of `fields` that `event` has."""
    pairs = ((field, field.find(event)) for field in fields)
    return [(field.added_as, (place[0], field.name), place[1]) for field, place in pairs if place]


def value_at(event: Mapping[str, Any], place: Place) -> Any:
    """Returns what lies at `place` in an event, as `AddedField.find` gives it: the struct, and the field in it."""
    parent, name = place
    inside = event if parent is None else event.get(parent)
    return inside.get(name) if inside else None


def added_fields(key: str, options: Mapping[str, Any]) -> Sequence[AddedField]:
    """Reads the setting `key`, a list of fields that are added. Raises OptionsError."""
    prefix = options[f"{key}.prefix"]
    try:
        Made("The names of what is added").add(len(options[key]), len(prefix))
    except DataError as error:
        raise OptionsError([(f"{key}.prefix", f"{error.message} {error.action}")]) from None
    return [_field(key, text, prefix) for text in options[key] if text]


def _field(key: str, text: str, prefix: str) -> AddedField:
    place, *alias = text.split(":")
    parent, dot, name = place.partition(".")
    if len(alias) > 1 or not place or (dot and not name):
        raise OptionsError([(key, f'"{text}" is not FIELD, STRUCT.FIELD or FIELD:NEW_NAME.')])
    if not dot:
        name = place
        parent = "" if name in _OF_ENVELOPE else "transaction" if name in _OF_TRANSACTION else "source"
    plain = f"{parent}_{name}" if dot else name
    return AddedField(parent or None, name, prefix + (alias[0] if alias else plain))
