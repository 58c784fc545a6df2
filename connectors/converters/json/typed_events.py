"""Makes types of msgspec for the schema of change events, which decode JSON and check it by the schema in one pass.

What such a type takes is read as `JsonValues` reads it. It refuses some that `JsonValues` takes, as a whole number that
is written 1.0 or a member that the schema has not: those are read value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec

from connectors.converters.json.values import JsonValues, NumberText, encoded
from connectors.data.schema import BITS, DECIMAL, Field, Schema, Type
from connectors.data.unwrapping import AFTER, BEFORE, PLAIN_TYPES, EventForms, RowAddition, RowForm
from connectors.data.values import decimal_of, java_float, scale_of

_LARGEST_FLOAT: Final = float.fromhex("0x1.fffffep+127")
"""The largest number that a float of 32 bits holds."""
_ROWS: Final = frozenset({BEFORE, AFTER})
"""The fields of an event that are called as they are in its type."""
_MOST_FIELDS: Final = 2_000
"""Fields of a schema: a type of so many is made in some 20 ms."""

Fix = Callable[[Any], Any]
"""Returns what is written of the value of a field."""
Pick = Callable[[Any], Any]
"""Returns the value of a field of an event."""


class UntypedError(Exception):
    """There is no type for a schema: it has maps with keys that are no texts, structs in lists, or too many fields."""


class RowWriter(msgspec.Struct, frozen=True):
    """Writes the rows of events of one schema.

    `fixes`: what is written of some fields of a row. `added` is a type of the fields that are added to it, of which
    `picks` return the values; None: there are none.
    """

    fixes: Sequence[tuple[str, Fix]]
    added: Callable[..., Any] | None
    picks: Sequence[Pick]

    def write(self, event: Any, row: Any) -> bytes:
        """Returns a row of an event as JSON. Raises DataError."""
        for name, fix in self.fixes:
            setattr(row, name, fix(getattr(row, name)))
        own = encoded(row)
        if self.added is None:
            return own
        more = encoded(self.added(*[pick(event) for pick in self.picks]))
        return more if own == b"{}" else own[:-1] + b"," + more[1:]


class EventType(msgspec.Struct, frozen=True):
    """Decodes events as objects with `before` and `after`, and writes their rows; `deleted` is None if none is left.

    `headers`: what picks the value of each header that is added.
    """

    decode: Callable[[bytes], Any]
    changed: RowWriter
    deleted: RowWriter | None
    headers: Sequence[tuple[RowAddition, Pick]]


def event_type(schema: Schema, forms: EventForms, reader: JsonValues, writer: JsonValues) -> EventType:
    """Makes the type of events of `schema`, of which the rows are written as `forms` says.

    Raises UntypedError, DataError, or ValueError for a name that cannot stand in JSON as it is.
    """
    sides = [schema.field(name) for name in (BEFORE, AFTER)]
    if any(
        field is None or field.schema.type is not Type.STRUCT or field.schema.default is not None for field in sides
    ):
        raise UntypedError
    decoder = msgspec.json.Decoder(_Types(reader).struct(schema, _ROWS))
    writers = _Writers(schema, reader, writer)
    deleted = None if forms.deleted is None else writers.of(forms.deleted)
    headers = [(each, writers.pick_header(each)) for each in forms.headers]
    return EventType(decoder.decode, writers.of(forms.changed), deleted, headers)


class _Types:
    """Makes the types of one schema."""

    def __init__(self, values: JsonValues) -> None:
        self._has_defaults = values.form.defaults
        # Fields that were made so far.
        self._fields = 0

    def of(self, schema: Schema, *, is_in_list: bool = False) -> Any:
        """Returns the type of values of `schema`."""
        kind = self._kind(schema, is_in_list=is_in_list)
        may_be_null = schema.optional or (self._has_defaults and schema.default is not None)
        return kind | None if may_be_null else kind

    def struct(self, schema: Schema, kept: frozenset[str] = frozenset()) -> Any:
        """Returns the type of structs, in which fields are called by their places, apart from those that are `kept`."""
        self._fields += len(schema.fields)
        if self._fields > _MOST_FIELDS:
            raise UntypedError
        fields: list[Any] = []
        renamed: dict[str, str] = {}
        for at, field in enumerate(schema.fields):
            name = field.name if field.name in kept else attribute(at)
            kind = self.of(field.schema)
            is_required = not field.schema.optional and (not self._has_defaults or field.schema.default is None)
            fields.append((name, kind) if is_required else (name, kind, None))
            renamed[name] = field.name
        return msgspec.defstruct(
            "Struct", fields, rename=renamed, kw_only=True, forbid_unknown_fields=True, gc=False
        )  # fmt: skip

    def _kind(self, schema: Schema, *, is_in_list: bool) -> Any:
        match schema.type:
            case Type.STRUCT if not is_in_list:  # in a list, fields that are missing are counted
                return self.struct(schema)
            case Type.ARRAY if schema.value_schema is not None:
                return list[self.of(schema.value_schema, is_in_list=True)]  # type: ignore[misc]  # made as it runs
            case Type.MAP if schema.value_schema is not None and _has_text_keys(schema):
                return dict[str, self.of(schema.value_schema, is_in_list=True)]  # type: ignore[misc]
            case Type.BYTES if schema.name == DECIMAL:
                scale_of(schema)
                return bytes
            case kind if kind in _PLAIN:
                return _PLAIN[kind]
            case _:
                raise UntypedError


def attribute(at: int) -> str:
    """Returns how the field at a place of a struct is called."""
    return f"f{at}"


def _has_text_keys(schema: Schema) -> bool:
    return schema.key_schema is not None and schema.key_schema.type is Type.STRING


def _whole(bits: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(1 << (bits - 1)), le=(1 << (bits - 1)) - 1)]


_PLAIN: Final[dict[Type, Any]] = {
    **{kind: _whole(bits) for kind, bits in BITS.items()},
    Type.FLOAT32: Annotated[float, msgspec.Meta(ge=-_LARGEST_FLOAT, le=_LARGEST_FLOAT)],
    Type.FLOAT64: float,
    Type.BOOLEAN: bool,
    Type.STRING: str,
    Type.BYTES: bytes,
}


class _Writers:
    """Makes what writes rows of events of `schema`, which `reader` reads."""

    def __init__(self, schema: Schema, reader: JsonValues, writer: JsonValues) -> None:
        self._event = schema
        self._writer = writer
        self._has_defaults = reader.form.defaults
        self._is_numeric = writer.form.numeric
        self._replaces_nulls = reader.form.defaults or writer.form.defaults

    def of(self, form: RowForm) -> RowWriter:
        """Returns what writes rows as `form` says."""
        names = [field.name for field in form.schema.fields]
        if len(set(names)) < len(names):
            raise UntypedError
        replaces_nulls = self._replaces_nulls or form.replaces_nulls
        fixes = [
            (attribute(at), self._fix(field.schema, field.schema.default if replaces_nulls else None))
            for at, field in enumerate(form.own)
        ]
        own = [(name, fix) for name, fix in fixes if fix is not None]
        if not form.added:
            return RowWriter(own, None, ())
        attributes = [attribute(at) for at, _ in enumerate(form.added)]
        renamed = {name: each.name for name, each in zip(attributes, form.added, strict=True)}
        added = msgspec.defstruct("Added", attributes, rename=renamed, gc=False)
        return RowWriter(own, added, [self._pick(each) for each in form.added])

    def pick_header(self, added: RowAddition) -> Pick:
        """Returns what picks the value of a header out of an event. Raises UntypedError unless it is a plain one."""
        pick, default = self._found(added)
        if added.schema.type not in PLAIN_TYPES:
            raise UntypedError
        return pick if default is None else _Default(pick, default)

    def _pick(self, added: RowAddition) -> Pick:
        """Returns what picks the value of an added field out of an event."""
        if added.place is None:
            return lambda _: added.text
        pick, default = self._found(added)
        fix = self._fix(added.schema, default)
        return pick if fix is None else lambda event: fix(pick(event))

    def _found(self, added: RowAddition) -> tuple[Pick, Any]:
        """Returns what picks the value at the place of an addition, and the default that a null stands for."""
        assert added.place is not None
        parent, name = added.place
        pick, field = _pick_of(self._event, name if parent is None else parent, _ROWS)
        if parent is not None:
            outer, struct = pick, field
            if struct.schema.default is not None:
                raise UntypedError
            inner, field = _pick_of(struct.schema, name)
            pick = _Within(outer, inner)
        return pick, field.schema.default if self._has_defaults else None

    def _fix(self, schema: Schema, default: Any) -> Fix | None:
        """Returns what is written of a value of `schema`, for a null that of `default`; None: the value itself."""
        made = None if default is None else self._writer.write(schema, default)
        if schema.type is Type.FLOAT32:
            return lambda value: made if value is None else NumberText(java_float(value))
        if self._is_number(schema):
            return lambda value: made if value is None else NumberText(str(decimal_of(schema, value)))
        for inner in _within(schema):
            self._check_unfixed(inner)
        return None if default is None else lambda value: made if value is None else value

    def _is_number(self, schema: Schema) -> bool:
        return schema.name == DECIMAL and schema.type is Type.BYTES and self._is_numeric

    def _check_unfixed(self, schema: Schema) -> None:
        """Raises UntypedError for a schema of which anything is written otherwise than msgspec writes it."""
        has_default = self._replaces_nulls and schema.default is not None
        if has_default or self._is_number(schema) or schema.type is Type.FLOAT32:
            raise UntypedError
        for inner in _within(schema):
            self._check_unfixed(inner)


class _Within(msgspec.Struct, frozen=True):
    """Picks what `inner` picks of the struct that `outer` picks; None if there is no struct."""

    outer: Pick
    inner: Pick

    def __call__(self, event: Any) -> Any:
        struct = self.outer(event)
        return None if struct is None else self.inner(struct)


class _Default(msgspec.Struct, frozen=True):
    """Picks what `pick` picks; `default` in place of a null."""

    pick: Pick
    default: Any

    def __call__(self, event: Any) -> Any:
        value = self.pick(event)
        return self.default if value is None else value


def _pick_of(struct: Schema, name: str, kept: frozenset[str] = frozenset()) -> tuple[Pick, Field]:
    """Returns what picks the field `name` of an object of the type of `struct`, and the field (`_Types.struct`)."""
    at, field = next((at, field) for at, field in enumerate(struct.fields) if field.name == name)
    return attrgetter(name if name in kept else attribute(at)), field


def _within(schema: Schema) -> Sequence[Schema]:
    return [inner for inner in (*(field.schema for field in schema.fields), schema.value_schema) if inner is not None]
