"""Makes Connect's schemas and values of Protobuf's messages, as Confluent's `ProtobufData` does.

A message is a STRUCT, a oneof in it a STRUCT of which one field is not null, an enum a STRING. The number of a field
and what its type was are among the schema's parameters, so that it is written as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import date, timedelta
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from msgspec.structs import replace

from connectors.data.bounds import Absences, Extent
from connectors.data.java_calendar import DAY_MS
from connectors.data.pace import paced, width_of
from connectors.data.schema import DATE, TIME, TIMESTAMP, Field, Schema, Type
from connectors.errors import DataError
from connectors.rejection import shown

TAG: Final = "io.confluent.connect.protobuf.Tag"
TYPE: Final = "io.confluent.connect.protobuf.Type"
ENUM: Final = "io.confluent.connect.protobuf.Enum"
ONEOF: Final = "io.confluent.connect.protobuf.Union."
_EPOCH: Final = date(1970, 1, 1)
_SCALARS: Final = {
    FieldDescriptor.TYPE_DOUBLE: (Type.FLOAT64, None),
    FieldDescriptor.TYPE_FLOAT: (Type.FLOAT32, None),
    FieldDescriptor.TYPE_INT32: (Type.INT32, None),
    FieldDescriptor.TYPE_SINT32: (Type.INT32, "sint32"),
    FieldDescriptor.TYPE_SFIXED32: (Type.INT32, "sfixed32"),
    FieldDescriptor.TYPE_INT64: (Type.INT64, None),
    FieldDescriptor.TYPE_SINT64: (Type.INT64, "sint64"),
    FieldDescriptor.TYPE_SFIXED64: (Type.INT64, "sfixed64"),
    FieldDescriptor.TYPE_UINT32: (Type.INT64, "uint32"),
    FieldDescriptor.TYPE_FIXED32: (Type.INT64, "fixed32"),
    FieldDescriptor.TYPE_UINT64: (Type.INT64, "uint64"),
    FieldDescriptor.TYPE_FIXED64: (Type.INT64, "fixed64"),
    FieldDescriptor.TYPE_BOOL: (Type.BOOLEAN, None),
    FieldDescriptor.TYPE_STRING: (Type.STRING, None),
    FieldDescriptor.TYPE_BYTES: (Type.BYTES, None),
}
UNSIGNED: Final = frozenset({"uint64", "fixed64", "google.protobuf.UInt64Value"})
# From this number on 64 bits without a sign are negative in Java's long.
_SIGN: Final = 1 << 63
_FIRST_S: Final = -62_135_596_800
_LAST_S: Final = 253_402_300_800
"""Seconds of the first moment of the years 1 and 10000, between which timestamp.proto has a moment."""
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_BYTES_OF_ABSENT: Final = 36
"""Bytes of a field that is not there, as `Absences` counts them."""
Read = Callable[[Any], Any]


class Known(NamedTuple):
    """How a field, a message or an element is read."""

    schema: Schema
    read: Read


class FromProtobuf:
    """Makes what reads messages. `nullables`: a field that says whether it is there is null if it is not.

    `synthetic` has the full names of oneofs that no file has written, see `CompiledFile`.
    """

    def __init__(self, synthetic: Collection[str] = (), *, nullables: bool) -> None:
        self._synthetic = synthetic
        self._nullables = nullables
        self._extent = Extent()
        self.absences = Absences()
        """Of the message that is read now, the fields of all messages in it."""

    def message(self, descriptor: Any, inside: tuple[str, ...] = ()) -> Known:
        """Returns how messages of `descriptor` are read. Raises DataError."""
        full = descriptor.full_name
        self._extent.add_text(len(full))
        if full in inside:
            raise DataError(f"The message {shown(full)} contains itself, which Connect's schemas cannot say.")
        within = (*inside, full)
        self._extent.add_members(len(descriptor.fields))
        self._extent.add_text(sum(len(field.name) for field in descriptor.fields))
        self._extent.add_text(sum(len(full) + 3 * len(oneof.name) for oneof in descriptor.oneofs))
        oneofs = [oneof for oneof in descriptor.oneofs if oneof.full_name not in self._synthetic]
        parts = [self._oneof(oneof, within) for oneof in oneofs]
        single = [field for field in descriptor.fields if field.containing_oneof not in oneofs]
        parts += [(field.name, self._field(field, within)) for field in single]
        schema = Schema(
            type=Type.STRUCT, name=descriptor.name, fields=tuple(Field(name, known.schema) for name, known in parts)
        )
        reads, add = [(name, known.read) for name, known in parts], self.absences.add

        def read_all(message: Any) -> Any:
            add(len(reads))
            return {name: read(message) for name, read in reads}

        return Known(schema, read_all)

    def _oneof(self, descriptor: Any, inside: tuple[str, ...]) -> tuple[str, Known]:
        parts = {field.name: self._value(field, inside) for field in descriptor.fields}
        fields = tuple(Field(field.name, _numbered(parts[field.name].schema, field)) for field in descriptor.fields)
        schema = Schema(type=Type.STRUCT, name=f"{ONEOF}{descriptor.name}", fields=fields, optional=True)
        name = descriptor.name

        def read(message: Any) -> Any:
            which = message.WhichOneof(name)
            if which is None:
                return None
            self.absences.add(len(parts) - 1)
            value = parts[which].read(getattr(message, which))
            return {part: value if part == which else None for part in parts}

        return f"{name}_{descriptor.index}", Known(schema, read)

    def _field(self, field: Any, inside: tuple[str, ...]) -> Known:
        name = field.name
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return self._map(field, inside)
        value = self._value(field, inside)
        if field.is_repeated:
            array, width = Schema(type=Type.ARRAY, optional=True, value_schema=value.schema), width_of(value.schema)
            return Known(
                _numbered(array, field),
                lambda message: [value.read(item) for item in paced(getattr(message, name), width)],
            )
        has_presence = field.has_presence
        schema = _numbered(value.schema, field, optional=has_presence or not self._nullables)
        if field.message_type is None and not (has_presence and self._nullables):
            return Known(schema, lambda message: value.read(getattr(message, name)))
        return Known(schema, lambda message: value.read(getattr(message, name)) if message.HasField(name) else None)

    def _map(self, field: Any, inside: tuple[str, ...]) -> Known:
        entry, name = field.message_type.fields_by_name, field.name
        key, value = (self._value(entry[side], inside) for side in ("key", "value"))
        of = Schema(type=Type.MAP, optional=True, key_schema=key.schema, value_schema=value.schema.as_optional())

        is_text, width = key.schema.type is Type.STRING, width_of(value.schema)

        def read(message: Any) -> Any:
            entries = getattr(message, name)
            if not is_text:
                self.absences.add_number_keys(len(entries))
            return {key.read(entry_key): value.read(inner) for entry_key, inner in paced(entries.items(), width)}

        return Known(_numbered(of, field), read)

    def _value(self, field: Any, inside: tuple[str, ...]) -> Known:
        """Returns how one value of a field is read."""
        with self._extent:
            return self._value_there(field, inside)

    def _value_there(self, field: Any, inside: tuple[str, ...]) -> Known:
        if field.enum_type is not None:
            return self._enum(field.enum_type)
        if field.message_type is None:
            return _scalar(field)
        return self._logical(field.message_type, inside) or self.message(field.message_type, inside)

    def _enum(self, descriptor: Any) -> Known:
        name = descriptor.name
        self._extent.add_text(len(name) + len(ENUM) * len(descriptor.values))
        self._extent.add_text(sum(2 * len(value.name) for value in descriptor.values))
        self.absences.add_number_keys(len(descriptor.values))  # the numbers of its symbols, which the schema chooses
        symbols = {value.number: value.name for value in descriptor.values}
        parameters = {ENUM: name, **{f"{ENUM}.{value.name}": str(value.number) for value in descriptor.values}}
        unknown = f"UNKNOWN_ENUM_VALUE_{name}_"

        def read(number: int) -> str:
            symbol = symbols.get(number)
            if symbol is None:  # a text of its own for each
                self.absences.add(len(unknown) // _BYTES_OF_ABSENT)
                symbol = f"{unknown}{number}"
            return symbol

        return Known(Schema(type=Type.STRING, name=name, parameters=parameters), read)

    def _logical(self, descriptor: Any, inside: tuple[str, ...]) -> Known | None:
        if descriptor.full_name in WRAPPERS:
            inner = self._value(descriptor.fields_by_name["value"], inside)
            parameters = {**(inner.schema.parameters or {}), TYPE: descriptor.full_name}
            return Known(
                replace(inner.schema, optional=True, parameters=parameters), lambda message: inner.read(message.value)
            )
        return _LOGICAL.get(descriptor.full_name)


def _numbered(schema: Schema, field: Any, *, optional: bool = True) -> Schema:
    """Returns `schema` with the number of its field."""
    return replace(schema, optional=optional, parameters={TAG: str(field.number), **(schema.parameters or {})})


def _scalar(field: Any) -> Known:
    kind, name = _SCALARS[field.type]
    schema = Schema(type=kind, parameters=None if name is None else {TYPE: name})
    return Known(schema, _signed if name in UNSIGNED else _same)


def _same(value: Any) -> Any:
    return value


def _signed(value: int) -> int:
    """Returns what Java's long shows of 64 bits without a sign."""
    return value - 2 * _SIGN if value >= _SIGN else value


def check_timestamp(seconds: int) -> None:
    """Raises DataError for seconds since 1970 that `google.protobuf.Timestamp` does not take."""
    if not _FIRST_S <= seconds < _LAST_S:
        raise DataError(f"A timestamp is between the years 1 and 9999, and this has {seconds} seconds.")


def _timestamp(message: Any) -> int:
    check_timestamp(message.seconds)
    return int(message.seconds * 1000 + message.nanos // 1_000_000)


def _time(message: Any) -> int:
    ms = ((message.hours * 60 + message.minutes) * 60 + message.seconds) * 1000 + message.nanos // 1_000_000
    if not 0 <= ms <= DAY_MS:
        raise DataError(f"A time of day is between 0 and 24 hours, and this is {ms} ms.")
    return int(ms)


def _date(message: Any) -> int:
    try:
        return (date(message.year, message.month, message.day) - _EPOCH).days
    except ValueError as error:
        raise DataError(f"A date is none: {error}.") from None


_LOGICAL: Final[Mapping[str, Known]] = {
    "google.protobuf.Timestamp": Known(Schema(type=Type.INT64, name=TIMESTAMP, version=1, optional=True), _timestamp),
    "google.type.Date": Known(Schema(type=Type.INT32, name=DATE, version=1, optional=True), _date),
    "google.type.TimeOfDay": Known(Schema(type=Type.INT32, name=TIME, version=1, optional=True), _time),
}


def date_of(days: int) -> date:
    """Returns the date that a value of Connect's Date is. Raises OverflowError."""
    return _EPOCH + timedelta(days=days)
