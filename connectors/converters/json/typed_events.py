"""Makes types of msgspec for the schema of change events, which decode JSON and check it by the schema in one pass.

What such a type takes is read as `JsonValues` reads it. It refuses some that `JsonValues` takes, as a whole number that
is written 1.0 or a member that the schema has not: those are read value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import msgspec

from connectors.converters.json.values import JsonValues, NumberText
from connectors.data.schema import BITS, DECIMAL, Schema, Type
from connectors.data.unwrapping import AFTER, BEFORE
from connectors.data.values import java_float, scale_of

_LARGEST_FLOAT: Final = float.fromhex("0x1.fffffep+127")
"""The largest number that a float of 32 bits holds."""
_MOST_FIELDS: Final = 2_000
"""Fields of a schema: a type of so many is made in some 20 ms."""

Fix = Callable[[Any], Any]
"""Returns what is written of the value of a field."""


class UntypedError(Exception):
    """There is no type for a schema: it has maps with keys that are no texts, structs in lists, or too many fields."""


class EventType(msgspec.Struct, frozen=True):
    """Decodes events as objects with `before` and `after`. `fixes`: what is written of some fields of a row."""

    decode: Callable[[bytes], Any]
    fixes: Sequence[tuple[str, Fix]]

    def fix(self, row: Any) -> None:
        """Puts what is written in place of what was read."""
        for name, fix in self.fixes:
            setattr(row, name, fix(getattr(row, name)))


def event_type(schema: Schema, row: Schema, values: JsonValues) -> EventType:
    """Makes the type of events of `schema`; `row` is the schema that `values` writes their rows with.

    Raises UntypedError, DataError, or ValueError for a name that cannot stand in JSON as it is.
    """
    if any(field is None or field.schema.type is not Type.STRUCT for field in map(schema.field, (BEFORE, AFTER))):
        raise UntypedError
    decoder = msgspec.json.Decoder(_Types(values).struct(schema, {BEFORE: BEFORE, AFTER: AFTER}))
    return EventType(decoder.decode, _fixes(row, values))


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

    def struct(self, schema: Schema, names: dict[str, str] | None = None) -> Any:
        """Returns the type of structs, in which each field is called as `names` says, or by its place."""
        self._fields += len(schema.fields)
        if self._fields > _MOST_FIELDS:
            raise UntypedError
        fields: list[Any] = []
        renamed: dict[str, str] = {}
        for at, field in enumerate(schema.fields):
            name = (names or {}).get(field.name) or attribute(at)
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


def _fixes(row: Schema, values: JsonValues) -> Sequence[tuple[str, Fix]]:
    made = []
    for at, field in enumerate(row.fields):
        schema = field.schema
        default = schema.default if values.form.defaults else None
        if schema.type is Type.FLOAT32:
            made.append((attribute(at), _float_or(None if default is None else values.write(schema, default))))
        elif default is not None:
            _check_unfixed(schema, values, is_outermost=True)
            made.append((attribute(at), _or_default(values.write(schema, default))))
        else:
            _check_unfixed(schema, values)
    return made


def _check_unfixed(schema: Schema, values: JsonValues, *, is_outermost: bool = False) -> None:
    """Raises UntypedError for a schema of which anything is written otherwise than msgspec writes it."""
    has_default = values.form.defaults and schema.default is not None and not is_outermost
    is_number = schema.name == DECIMAL and schema.type is Type.BYTES and values.form.numeric
    if has_default or is_number or schema.type is Type.FLOAT32:
        raise UntypedError
    for inner in (*(field.schema for field in schema.fields), schema.value_schema):
        if inner is not None:
            _check_unfixed(inner, values)


def _float_or(default: Any) -> Fix:
    return lambda value: default if value is None else NumberText(java_float(value))


def _or_default(default: Any) -> Fix:
    return lambda value: default if value is None else value
