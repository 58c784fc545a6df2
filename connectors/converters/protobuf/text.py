"""Writes a .proto file for a schema of Connect's, and messages of its values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from connectors.converters.protobuf.types import ENUM, ONEOF, TAG, TYPE, UNSIGNED, WRAPPERS, check_timestamp, date_of
from connectors.data.java_calendar import DAY_MS
from connectors.data.pace import paced, width_of
from connectors.data.schema import DATE, DECIMAL, TIME, TIMESTAMP, Field, Schema, Type
from connectors.errors import DataError
from connectors.rejection import shown

DEFAULT_NAME: Final = "ConnectDefault1"
_INDENT: Final = "  "
_DIGITS: Final = re.compile(r"\d{1,9}", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_ENUM_NUMBER: Final = re.compile(r"-?\d{1,10}", re.ASCII)
_MOST_NUMBER: Final = (1 << 29) - 1
"""The largest number of a field that Protobuf takes."""
_RESERVED: Final = range(19_000, 20_000)
"""Numbers of fields that Protobuf keeps for itself."""
_MOST_OF_A_NAME: Final = 500
"""Types of one message that want the same name: each is compared with those before it, 0.5 s for 500 large ones."""
# Makes a negative long of Java's the number of 64 bits without a sign that it was read from.
_MASK: Final = (1 << 64) - 1
_SCALARS: Final = {
    Type.INT8: "int32", Type.INT16: "int32", Type.INT32: "int32", Type.INT64: "int64", Type.FLOAT32: "float",
    Type.FLOAT64: "double", Type.BOOLEAN: "bool", Type.STRING: "string", Type.BYTES: "bytes",
}  # fmt: skip
_KINDS: Final = {
    Type.INT32: frozenset({"sint32", "sfixed32"}),
    Type.INT64: frozenset({"uint32", "fixed32", "uint64", "fixed64", "sint64", "sfixed64"}),
}
"""What else the type of a field may have been."""
_LOGICAL: Final = {
    TIMESTAMP: ("google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
    DATE: ("google.type.Date", "google/type/date.proto"),
    TIME: ("google.type.TimeOfDay", "google/type/timeofday.proto"),
}
_KEYS: Final = frozenset({Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.BOOLEAN, Type.STRING})


class ProtobufText(NamedTuple):
    """A .proto file with one message, and that message's full name."""

    text: str
    name: str


class ToProtobuf:
    """Makes the .proto file of a schema; `nullables`: an optional field says whether it is there."""

    def __init__(self, *, nullables: bool) -> None:
        self._nullables = nullables
        # The files that the types of the fields need; `_single` adds them while the messages are written.
        self._imports: set[str] = set()

    def file(self, schema: Schema) -> ProtobufText:
        """Returns the file of a STRUCT's schema. Raises DataError for what Protobuf cannot hold."""
        if schema.type is not Type.STRUCT:
            raise DataError(
                f"keyfold.Protobuf writes structs only, and this is {schema.type.value}.",
                "Put it into one: HoistField.",
            )
        package, _, name = _checked(schema.name or DEFAULT_NAME).rpartition(".")
        body = list(self._message(schema, name, ""))
        head = ['syntax = "proto3";', *([f"package {package};"] if package else [])]
        imports = [f'import "{path}";' for path in sorted(self._imports)]
        return ProtobufText(
            "\n".join([*head, "", *imports, *([""] if imports else []), *body, ""]), schema.name or name
        )

    def _message(self, schema: Schema, name: str, indent: str) -> Iterator[str]:
        yield f"{indent}message {name} {{"
        inner, taken = indent + _INDENT, dict[str, Schema]()
        numbers = numbers_of(schema)
        for field in schema.fields:
            if is_oneof(field.schema):
                yield f"{inner}oneof {_checked((field.schema.name or '').removeprefix(ONEOF))} {{"
                for member in field.schema.fields:
                    kind = self._kind(member, taken)
                    yield f"{inner}{_INDENT}{kind} {member.name} = {numbers[(field.name, member.name)]};"
                yield f"{inner}}}"
            else:
                kind = self._label(field.schema) + self._kind(field, taken)
                yield f"{inner}{kind} {field.name} = {numbers[(field.name,)]};"
        for nested, of in taken.items():
            yield from self._message(of, nested, inner) if of.type is Type.STRUCT else _enum(of, nested, inner)
        yield f"{indent}}}"

    def _label(self, schema: Schema) -> str:
        if schema.type is Type.ARRAY:
            return "repeated "
        is_scalar = schema.type not in {Type.STRUCT, Type.MAP} and _of_message(schema) is None
        return "optional " if self._nullables and schema.optional and is_scalar else ""

    def _kind(self, field: Field, taken: dict[str, Schema]) -> str:
        schema = field.schema
        _checked(field.name)
        if schema.type is Type.MAP:
            key, value = schema.key_schema, schema.value_schema
            if key is None or value is None or key.type not in _KEYS:
                raise DataError(f"The map {field.name} has keys that Protobuf's maps do not take.")
            return f"map<{_scalar(key)}, {self._single(field.name, value, taken)}>"
        inner = schema.value_schema if schema.type is Type.ARRAY else schema
        assert inner is not None
        return self._single(field.name, inner, taken)

    def _single(self, name: str, schema: Schema, taken: dict[str, Schema]) -> str:
        if schema.type in {Type.ARRAY, Type.MAP}:
            raise DataError(f"The field {name} has lists or maps in lists or maps, which Protobuf cannot hold.")
        if schema.name == DECIMAL:
            raise DataError(f"The field {name} is a Decimal, which keyfold.Protobuf does not write.", "Cast it.")
        known = _LOGICAL.get(schema.name or "") or _wrapper(schema)
        if known is not None:
            self._imports.add(known[1])
            return known[0]
        if schema.type is Type.STRUCT or ENUM in (schema.parameters or {}):
            wanted = (schema.name or (schema.parameters or {}).get(ENUM) or name.capitalize()).rpartition(".")[2]
            return _place(_checked(wanted), schema, taken)
        return _scalar(schema)


def _wrapper(schema: Schema) -> tuple[str, str] | None:
    """Returns the message in which a scalar was read, and its file; None if it was in none."""
    said = (schema.parameters or {}).get(TYPE, "")
    return (said, "google/protobuf/wrappers.proto") if said in WRAPPERS else None


def _place(wanted: str, schema: Schema, taken: dict[str, Schema]) -> str:
    """Finds a name for a type inside a message: its own, unless another type has it."""
    name, number = wanted, 1
    while name in taken and taken[name] != schema:
        number += 1
        if number > _MOST_OF_A_NAME:
            raise DataError(
                f"More than {_MOST_OF_A_NAME} types that differ have the name {shown(wanted)} in one message.",
                "Rename some with SetSchemaMetadata.",
            )
        name = f"{wanted}{number}"
    taken[name] = schema
    return name


def numbers_of(schema: Schema) -> dict[tuple[str, ...], int]:
    """Returns the number of each field: its own if no other field has it, else one above all."""
    places = [
        ((field.name, *inner), of)
        for field in schema.fields
        for inner, of in (
            [((member.name,), member.schema) for member in field.schema.fields]
            if is_oneof(field.schema)
            else [((), field.schema)]
        )
    ]
    numbers: dict[tuple[str, ...], int] = {}
    taken: set[int] = set()
    for place, of in places:
        number = _number((of.parameters or {}).get(TAG, ""))
        if number is not None and number not in taken:
            numbers[place] = number
            taken.add(number)
    last = max(taken, default=0)
    for place, _ in places:
        if place not in numbers:
            last = numbers[place] = _RESERVED.stop if last + 1 in _RESERVED else last + 1
    return numbers


def _number(text: str) -> int | None:
    """Returns the number of a field that a schema says; None for what is none that Protobuf takes."""
    number = int(text) if _DIGITS.fullmatch(text) else 0
    return number if 0 < number <= _MOST_NUMBER and number not in _RESERVED else None


def is_oneof(schema: Schema) -> bool:
    """Returns whether a STRUCT stands for a oneof."""
    return schema.type is Type.STRUCT and (schema.name or "").startswith(ONEOF)


def _scalar(schema: Schema) -> str:
    said = (schema.parameters or {}).get(TYPE, "")
    return said if said in _KINDS.get(schema.type, ()) else _SCALARS[schema.type]


def _enum(schema: Schema, name: str, indent: str) -> Iterator[str]:
    parameters = schema.parameters or {}
    values = {
        _checked(parameter.removeprefix(f"{ENUM}.")): _enum_number(number)
        for parameter, number in parameters.items()
        if parameter.startswith(f"{ENUM}.")
    }
    yield f"{indent}enum {name} {{"
    if len(set(values.values())) < len(values):
        yield f"{indent}{_INDENT}option allow_alias = true;"
    for symbol, number in sorted(values.items(), key=lambda pair: pair[1] != 0):  # proto3 begins with 0
        yield f"{indent}{_INDENT}{symbol} = {number};"
    yield f"{indent}}}"


def _enum_number(text: str) -> int:
    if not _ENUM_NUMBER.fullmatch(text):
        raise DataError(f"The number of a value of an enum has 32 bits, and this is {shown(text)}.")
    return int(text)


def _checked(name: str) -> str:
    """Returns a name, once Protobuf takes it: it becomes a part of a file's text."""
    if not _NAME.fullmatch(name):
        action = "Rename it with ReplaceField or SetSchemaMetadata."
        raise DataError(f"Protobuf does not take {shown(name)} as a name: letters, digits and _ it takes.", action)
    return name


Fill = Callable[[Any, Mapping[str, Any]], None]


def filler(schema: Schema) -> Fill:
    """Returns what fills a message with the values of a STRUCT of `schema`."""
    fills = [(field.name, _filler(field)) for field in schema.fields]

    def fill(message: Any, value: Mapping[str, Any]) -> None:
        for name, put in fills:
            held = value.get(name)
            if held is not None:
                put(message, held)

    return fill


def _filler(field: Field) -> Callable[[Any, Any], None]:
    name, schema = field.name, field.schema
    if is_oneof(schema):
        return filler(schema)
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        return _repeated(name, schema.value_schema)
    if schema.type is Type.MAP and schema.value_schema is not None:
        return _map(name, schema.value_schema)
    fill = _of_message(schema)
    if fill is not None:

        def put(message: Any, value: Any) -> None:
            inner = getattr(message, name)
            inner.SetInParent()
            fill(inner, value)

        return put
    plain = _plain(schema)
    return lambda message, value: setattr(message, name, plain(value))


def _repeated(name: str, schema: Schema) -> Callable[[Any, Any], None]:
    fill, plain, width = _of_message(schema), _plain(schema), width_of(schema)

    def put(message: Any, values: Any) -> None:
        field = getattr(message, name)
        for value in paced(values, width):
            if fill is None:
                field.append(plain(value))
            else:
                fill(field.add(), value)

    return put


def _map(name: str, schema: Schema) -> Callable[[Any, Any], None]:
    fill, plain, width = _of_message(schema), _plain(schema), width_of(schema)

    def put(message: Any, values: Any) -> None:
        field = getattr(message, name)
        for key, value in paced(values.items(), width):
            if fill is None:
                field[key] = plain(value)
            else:
                fill(field[key], value)

    return put


def _of_message(schema: Schema) -> Callable[[Any, Any], None] | None:
    """Returns what fills a message with a value of `schema`; None if that is no message."""
    if schema.name in _FILLS:
        return _FILLS[schema.name]
    if _wrapper(schema) is not None:
        plain = _plain(schema)
        return lambda message, value: setattr(message, "value", plain(value))
    return filler(schema) if schema.type is Type.STRUCT else None


def _plain(schema: Schema) -> Callable[[Any], Any]:
    parameters = schema.parameters or {}
    if ENUM in parameters:
        return lambda name: int(parameters.get(f"{ENUM}.{name}") or name.rpartition("_")[2])
    return (lambda value: value & _MASK) if parameters.get(TYPE) in UNSIGNED else (lambda value: value)


def _timestamp(message: Any, ms: int) -> None:
    check_timestamp(ms // 1000)
    message.seconds, message.nanos = ms // 1000, ms % 1000 * 1_000_000


def _date(message: Any, days: int) -> None:
    date = date_of(days)
    message.year, message.month, message.day = date.year, date.month, date.day


def _time(message: Any, ms: int) -> None:
    seconds = ms % DAY_MS // 1000
    message.hours, message.minutes, message.seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    message.nanos = ms % 1000 * 1_000_000


_FILLS: Final = {TIMESTAMP: _timestamp, DATE: _date, TIME: _time}
