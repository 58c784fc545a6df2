"""Says how change events of one schema are passed over, and of which of their bytes a row is made.

In Avro a row lies in its event as it is written alone; so does what is added to it, in another place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from connectors.converters.avro.columns import Advance, columns_of, columns_of_fields
from connectors.converters.avro.reader import AvroReader
from connectors.converters.avro.slices import alone, collect, form_of
from connectors.data.schema import Schema
from connectors.data.unwrapping import AFTER, BEFORE, PLAIN_TYPES, EventForms, Place, RowAddition, RowForm

SECOND: Final = 2
"""The byte that says that a union's second branch follows (a zig-zag 1), which here is the row."""


class Part(Struct, frozen=True):
    """A field of an event: its name, and what passes over it.

    `fields` are those of a struct in which a field is looked for, with what passes over each; none for all else.
    `is_nullable`: a null may stand in its place.
    """

    name: str
    advance: Advance
    fields: Sequence[tuple[str, Advance]]
    is_nullable: bool


class Ending(Struct, frozen=True):
    """What follows the bytes of a row: `text`, or the field at `place` of the event, which says itself if it is null.

    `is_nullable`: the field says so in the event, too.
    """

    text: bytes = b""
    place: Place | None = None
    is_nullable: bool = False


class RowColumns(Struct, frozen=True):
    """What rows of one side of events are written as: their schema, its form, and what follows the row."""

    schema: Schema
    form: str
    endings: Sequence[Ending]


class HeaderColumn(Struct, frozen=True):
    """A header that is added, the field at its place, and what reads the bytes of one that is not null."""

    header: RowAddition
    ending: Ending
    read: Callable[[bytes], Any]


class EventColumns(Struct, frozen=True):
    """How events of one schema are passed over, and what rows become; `deleted` is None if a deletion becomes null.

    `most`: the bytes up to which a record takes no more memory than it may once it is read, whatever it holds.
    """

    parts: Sequence[Part]
    changed: RowColumns
    deleted: RowColumns | None
    headers: Sequence[HeaderColumn]
    most: float


def event_columns(reader: AvroReader, forms_of: Callable[[Schema], EventForms | None]) -> EventColumns | None:
    """Returns the columns of events that `reader` reads; None if values are others, or no row is written as it lies.

    Raises DataError for a schema that is too large.
    """
    if reader.some is None or reader.schema is None:
        return None
    forms = forms_of(reader.schema)
    if forms is None:
        return None
    types = {name: avro for name, avro, _ in reader.some.fields}
    endings = _Endings(types)
    changed = endings.row(forms.changed, reader.some.forms.get(AFTER))
    deleted = None if forms.deleted is None else endings.row(forms.deleted, reader.some.forms.get(BEFORE))
    headers = [endings.header(each) for each in forms.headers]
    if changed is None or (deleted is None and forms.deleted is not None) or None in headers:
        return None
    parts = [
        Part(name, columns_of(avro, is_read=is_read), endings.fields.get(name, ()), _inner(avro)[1])
        for name, avro, is_read in reader.some.fields
    ]
    own = [header for header in headers if header is not None]
    return EventColumns(parts, changed, deleted, own, reader.room.safe_bytes)


class _Endings:
    """Makes what follows the rows of events with fields of `types`, by their names."""

    def __init__(self, types: Mapping[str, Any]) -> None:
        self._types = types
        # Of each struct in which a field was looked for, the fields with what passes over them.
        self.fields: dict[str, Sequence[tuple[str, Advance]]] = {}
        # Of each of these structs the type of each field, which defines all that it needs.
        self._inner_types: dict[str, Mapping[str, Any]] = {}

    def row(self, form: RowForm, own: str | None) -> RowColumns | None:
        """Returns what rows of the form `own` become; None if they are to be written one by one."""
        if own is None or (form.replaces_nulls and any(field.schema.default is not None for field in form.own)):
            return None
        kind, fields = json.loads(own)
        endings = []
        for added in form.added:
            ending, type_form = self._ending(added)
            if ending is None:
                return None
            endings.append(ending)
            fields.append([added.name, ["null", type_form]])
        return RowColumns(form.schema, json.dumps([kind, fields], separators=(",", ":")), endings)

    def header(self, added: RowAddition) -> HeaderColumn | None:
        """Returns the column of a header; None if its values are of no plain type."""
        ending, kind = self._ending(added)
        read = _READ.get(kind) if isinstance(kind, str) else None
        if ending is None or read is None or added.schema.type not in PLAIN_TYPES:
            return None
        return HeaderColumn(added, ending, read)

    def _ending(self, added: RowAddition) -> tuple[Ending | None, Any]:
        """Returns what an added field is, and the form of its type."""
        if added.place is None:
            text = added.text.encode()
            return Ending(bytes((SECOND, 2 * len(text))) + text), "string"
        parent, name = added.place
        types = self._types if parent is None else self._types_in(parent)
        if name not in types:
            return None, None
        inner, is_nullable = _inner(types[name])
        return Ending(place=added.place, is_nullable=is_nullable), json.loads(form_of(inner))

    def _types_in(self, parent: str) -> Mapping[str, Any]:
        """Returns the types of the fields of the struct `parent`; none if it is no struct, or one of several types."""
        if parent not in self._inner_types:
            struct = _inner(self._types[parent])[0]
            is_struct = isinstance(struct, dict) and struct.get("type") == "record"
            fields, named = struct["fields"] if is_struct else (), dict[str, Any]()
            collect(struct, "", named)
            self._inner_types[parent] = {field["name"]: alone(field["type"], named) for field in fields}
            self.fields[parent] = columns_of_fields(struct) if is_struct else ()
        return self._inner_types[parent]


def _inner(avro: Any) -> tuple[Any, bool]:
    """Returns a type, and whether it was one that may be null; that is said first."""
    is_nullable = isinstance(avro, list) and len(avro) == 2 and avro[0] == "null"
    return (avro[1] if is_nullable else avro), is_nullable


def _number_of(data: bytes) -> int:
    number = 0
    for place, byte in enumerate(data):
        number |= (byte & 0x7F) << (7 * place)
    return (number >> 1) ^ -(number & 1)


def _text_of(data: bytes) -> str:
    begin = next(place for place, byte in enumerate(data) if byte < 0x80) + 1
    return data[begin:].decode()


_READ: Final[dict[str, Callable[[bytes], Any]]] = {
    "string": _text_of,
    "int": _number_of,
    "long": _number_of,
    "boolean": lambda data: data == b"\1",
}
"""What reads the bytes of values of plain types, which were passed over before."""
