"""Reads and writes Protobuf with schemas in a registry (Confluent's `ProtobufConverter`).

The id of the schema is followed by the path of the message in it: numbers from the outermost inwards, as varints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from msgspec import Struct

from connectors.converters.converter import Headers
from connectors.converters.distinct_keys import check_nulls_of_key
from connectors.converters.protobuf.fields import ProtobufFields
from connectors.converters.protobuf.files import CompiledFile, compiled
from connectors.converters.protobuf.room import RoomOfMessages
from connectors.converters.protobuf.text import Fill, ProtobufText, ToProtobuf, filler
from connectors.converters.protobuf.types import FromProtobuf
from connectors.converters.registered import MOST_IDS, RegisteredConverter
from connectors.converters.written_fields import WrittenFields
from connectors.data.bounds import Absences
from connectors.data.kept import OfSchema, weight_of
from connectors.data.schema import Schema
from connectors.errors import DataError
from connectors.kept_values import Kept
from connectors.options import Option
from connectors.registry.answers import SchemaId
from connectors.rejection import reason_of

_FIRST: Final = b"\x00"
"""The first message of a file."""
# How many messages may lie within one another; a count beyond it shows that the bytes are no path of a message.
_DEEPEST: Final = 32
_LONGEST: Final = 10
"""Bytes of a varint."""
NULLABLES: Final = Option(
    "optional.for.nullables",
    "BOOLEAN",
    default=False,
    doc="A field with `optional` that is not there is null, and what may be null is written so. `false`: it is the "
    "default of its type, as all others are.",
)


class MessageReader(Struct, frozen=True):
    """How messages of one kind are read: their class, Connect's schema, and what makes its values.

    `room` checks data before any of it is parsed.
    """

    parse: Callable[[bytes], Any]
    schema: Schema
    value: Callable[[Any], Any]
    absences: Absences
    room: RoomOfMessages


class MessageWriter(Struct, frozen=True):
    """How values of one schema are written: the file that is registered, the message's class, what fills it."""

    file: ProtobufText
    make: Callable[[], Any]
    fill: Fill


class ProtobufConverter(RegisteredConverter):
    """Values are Protobuf; a value to be written is a struct with a schema."""

    KIND = "PROTOBUF"
    HAS_FIELDS = True
    OPTIONS = (*RegisteredConverter.OPTIONS, NULLABLES)

    def __init__(self, options: Mapping[str, Any], *, is_key: bool) -> None:
        super().__init__(options, is_key=is_key)
        self._nullables: bool = options[NULLABLES.name]
        self._files: Kept[SchemaId, CompiledFile] = Kept(MOST_IDS)
        self._reads: Kept[tuple[SchemaId, tuple[int, ...]], MessageReader] = Kept(MOST_IDS)
        self._written = OfSchema(self._written_of)

    def to_connect_data(self, topic: str, headers: Headers, data: bytes | None) -> tuple[Schema | None, Any]:  # noqa: ARG002
        """See `Converter`."""
        if data is None:
            return None, None
        schema_id, read, start = self._reader(headers, data)
        try:
            read.absences.begin(len(data))
            return read.schema, read.value(read.parse(data[start:]))
        except DecodeError as error:
            raise DataError(f"The data is no Protobuf of schema {schema_id}: {reason_of(error)}.") from None

    def from_connect_data(self, topic: str, headers: Headers, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002
        """See `Converter`."""
        if value is None and (schema is None or schema.optional):
            return None
        if schema is None:
            raise DataError("keyfold.Protobuf writes values with a schema only.", "Write keyfold.Json instead.")
        written: MessageWriter = self._written(schema)
        message = written.make()
        try:
            if self.is_key:
                check_nulls_of_key(schema, value, has_nullables=self._nullables)
            written.fill(message, value)
        except (ValueError, TypeError, OverflowError, AttributeError) as error:
            raise DataError(f"The value does not fit its schema: {reason_of(error)}.") from None
        schema_id = self.id_of(topic, written.file.text, written.file.name)
        return self.wire.written(schema_id) + _FIRST + message.SerializeToString(deterministic=True)

    def fields_of(self, headers: Headers, data: bytes) -> WrittenFields | None:
        """See `Converter`."""
        schema_id, read, start = self._reader(headers, data)
        try:
            return ProtobufFields(data[:start], read.parse(data[start:]))
        except DecodeError as error:
            raise DataError(f"The data is no Protobuf of schema {schema_id}: {reason_of(error)}.") from None

    def _reader(self, headers: Headers, data: bytes) -> tuple[SchemaId, MessageReader, int]:
        """Returns the id of the schema, how its message is read, and the position of the data, which is checked."""
        schema_id, start, in_header = self.wire.read(headers, data)
        if in_header is None:
            path, start = _path(data, start)
        else:
            path, _ = _path(in_header, 0)
        read = self._reads.get((schema_id, path)) or self._read_of(schema_id, path)
        read.room.check(data, start)
        return schema_id, read, start

    def _read_of(self, schema_id: SchemaId, path: tuple[int, ...]) -> MessageReader:
        file = self._files.get(schema_id)
        if file is None:
            file = self.refusals.of(schema_id, lambda: self._file_of(schema_id))
            self._files.put(schema_id, file, file.weight)
        reader = self.refusals.of((schema_id, path), lambda: self._message_of(file, path))
        return self._reads.put((schema_id, path), reader, weight_of(reader.schema) + file.weight)

    def _message_of(self, file: CompiledFile, path: tuple[int, ...]) -> MessageReader:
        descriptor = file.message(path)
        made = FromProtobuf(file.synthetic, nullables=self._nullables)
        try:
            known = made.message(descriptor)
            parse, room = GetMessageClass(descriptor).FromString, RoomOfMessages(descriptor)
        except DataError:
            raise
        except Exception as error:  # noqa: BLE001  # a schema of a registry may hold anything
            raise DataError(f"The message cannot be read: {reason_of(error)}.") from None
        return MessageReader(parse, known.schema, known.read, made.absences, room)

    def _file_of(self, schema_id: SchemaId) -> CompiledFile:
        registered = self.registered(schema_id)
        if registered.kind != self.KIND:
            raise DataError(f"The schema is of type {registered.kind}, not PROTOBUF.", "Set its own converter.")
        return compiled(
            registered.text, {reference.name: text for reference, text in self.referenced(registered).items()}
        )

    def _written_of(self, schema: Schema) -> MessageWriter:
        file = ToProtobuf(nullables=self._nullables).file(schema)
        made = GetMessageClass(self.refusals.of(file.text, lambda: compiled(file.text, {})).message((0,)))
        return MessageWriter(file, made, filler(schema))


def _path(data: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Returns the path of the message that stands at `start`, and the position of its bytes. Raises DataError."""
    count, at = _number(data, start)
    if count == 0:
        return (0,), at
    if not 0 < count <= _DEEPEST:
        raise DataError(f"The message is {count} deep in its file, which none is.")
    path = []
    for _ in range(count):
        number, at = _number(data, at)
        path.append(number)
    return tuple(path), at


def _number(data: bytes, start: int) -> tuple[int, int]:
    """Reads a varint in zigzag; returns it, and the position after it."""
    number = 0
    for at in range(start, min(len(data), start + _LONGEST)):
        number |= (data[at] & 0x7F) << (7 * (at - start))
        if not data[at] & 0x80:
            return (number >> 1) ^ -(number & 1), at + 1
    raise DataError("The data ends before it says which message it is.")
