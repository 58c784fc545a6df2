"""Reads and writes Avro by a schema registry (Confluent's `AvroConverter`, Apicurio's).

Values are decoded by fastavro with the schema that they were written with, less its logical types: what those stand for
is the encoded form that values have here anyway, so nothing is converted one by one but unions of several types.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from connectors.converters.avro import large_values
from connectors.converters.avro.branches import writer_of_branches
from connectors.converters.avro.column_values import AvroColumnReader, column_reader
from connectors.converters.avro.fields import AvroFields
from connectors.converters.avro.parsed import NAMED_MARK, PARSED_MARK, parsed_schema, without_defaults
from connectors.converters.avro.reader import AvroReader, Convert
from connectors.converters.avro.room import RoomOfRecords
from connectors.converters.avro.schemas import DEFAULT_NAME, FIXED_SIZE, FromAvro, ToAvro
from connectors.converters.avro.slices import EncodedStruct, PartialReader, alone, collect, form_of
from connectors.converters.avro.stream import stream_of
from connectors.converters.avro.unions import BY_NAME, reader_of_unions, writer_of_unions
from connectors.converters.avro.unwrapper import AvroUnwrapper
from connectors.converters.converter import Converter, Headers
from connectors.converters.registered import MOST_IDS, PARSED, RegisteredConverter
from connectors.converters.written_fields import WrittenFields
from connectors.data.bounds import EMPTY_PARTS
from connectors.data.collector import decoded
from connectors.data.column_reader import ColumnReader
from connectors.data.kept import OfSchema, weight_of
from connectors.data.schema import UNION, Schema, Type
from connectors.data.unwrapping import Unwrapper, Unwrapping
from connectors.errors import DataError, PortionLateError, RegistryError
from connectors.kept_values import Kept
from connectors.options import Option
from connectors.registry.answers import RegisteredSchema, SchemaId
from connectors.rejection import reason_of

_WITHOUT: Final = frozenset({"logicalType", "precision", "scale", PARSED_MARK, NAMED_MARK})
"""What fastavro must not see of a type: logical types, whose values stay as they are encoded, and its own marks. A
registered schema with these would be taken for parsed, with other types than those that were checked."""


class AvroWriter(Struct, frozen=True):
    """How values of one schema are written: the text that is registered, parsed for fastavro, and its record's name.

    `convert` makes fastavro's values of Connect's, and `branches` names those of unions in them, if anything does.
    """

    text: str
    avro: Any
    name: str | None
    convert: Convert | None
    form: str
    branches: Convert | None


class AvroConverter(RegisteredConverter):
    """Values are Avro; a value to be written needs a schema."""

    HAS_NULLS = True
    HAS_FIELDS = True
    OPTIONS = (
        *RegisteredConverter.OPTIONS,
        Option(
            "connect.meta.data",
            "BOOLEAN",
            default=True,
            doc="Keep in the properties of an Avro schema what only Connect's schemas have.",
            importance="LOW",
        ),
        Option(
            "enhanced.avro.schema.support",
            "BOOLEAN",
            default=False,
            doc="Write what was an enum as an enum again, not as text.",
        ),
    )

    def __init__(self, options: Mapping[str, Any], *, is_key: bool) -> None:
        super().__init__(options, is_key=is_key)
        self._reads: Kept[SchemaId, AvroReader] = Kept(MOST_IDS)
        self._written = OfSchema(self._written_of)
        # Which fields of a schema the first step looks at; set once by `ask_only`, before anything is read. None: all.
        self._fields: Callable[[Schema], frozenset[str] | None] | None = None
        # Whether schemas name logical types that Connect has no name for; set once, before anything is read.
        self._names_logical = False

    def maybe_null(self, values: pa.Array) -> pa.BooleanArray | None:
        """See `Converter.maybe_null`: a null is the number of its branch, or nothing, after an id or without one."""
        return pc.match_substring_regex(values, rf"(?s)^{self.wire.pattern}.?$")

    def ask_only(self, fields: Callable[[Schema], frozenset[str] | None]) -> None:
        """See `Converter.ask_only`."""
        self._fields = fields

    def name_logical_types(self) -> None:
        """See `Converter.name_logical_types`."""
        self._names_logical = True

    @property
    def schema_bytes(self) -> int:
        """See `Converter.schema_bytes`."""
        return self.wire.size

    def schema_of(self, headers: Headers, data: bytes) -> Schema | None:
        """See `Converter.schema_of`."""
        return self._reader(self.wire.read(headers, data).schema_id).schema

    def column_reader(self, data: bytes) -> ColumnReader | None:
        """See `Converter.column_reader`."""
        return self._reader(self.wire.read((), data).schema_id).columns()

    def to_connect_data(self, topic: str, headers: Headers, data: bytes | None) -> tuple[Schema | None, Any]:  # noqa: ARG002
        """See `Converter`."""
        if data is None:
            return None, None
        schema_id, start, _ = self.wire.read(headers, data)
        return self.value_of(schema_id, start, data)

    def value_of(self, schema_id: SchemaId, start: int, data: bytes) -> tuple[Schema | None, Any]:
        """Returns schema and value of `data`, written with an id's schema from `start` on. Raises as reading does."""
        read = self._reader(schema_id)
        read.room.check(data, start)
        try:
            if read.some is not None:
                return read.schema, read.some.read(data, start)
            buffer = stream_of(data, start)
            value = fastavro.schemaless_reader(buffer, read.avro, None, **(BY_NAME if read.convert else {}))
        except PortionLateError:
            raise
        except Exception as error:  # noqa: BLE001  # fastavro raises what it stumbles over
            raise DataError(f"The data is no Avro of schema {schema_id}: {reason_of(error)}.") from None
        return read.schema, value if read.convert is None else read.convert(value)

    def from_connect_data(self, topic: str, headers: Headers, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002
        """See `Converter`."""
        if value is None and (schema is None or schema.optional):
            return None
        if schema is None:
            raise DataError(
                "keyfold.Avro writes values with a schema only.", "Read them with one, or write keyfold.Json."
            )
        written: AvroWriter = self._written(schema)
        schema_id = self.id_of(topic, written.text, written.name)
        if type(value) is EncodedStruct and value.form == written.form:
            return self.wire.written(schema_id) + value.data
        buffer = io.BytesIO()
        buffer.write(self.wire.written(schema_id))
        try:
            for convert in (written.convert, written.branches):
                value = value if convert is None else convert(value)
            large_values.write(buffer, written.avro, value)
        except PortionLateError:
            raise
        except Exception as error:  # noqa: BLE001  # fastavro raises what it stumbles over
            raise DataError(f"The value does not fit its schema: {reason_of(error)}.") from None
        return buffer.getvalue()

    def written_like(self, data: bytes, value: Any) -> bytes | None:
        """See `Converter.written_like`."""
        schema_id, start, _ = self.wire.read((), data)
        buffer = io.BytesIO()
        large_values.write(buffer, self._reader(schema_id).avro, value)
        return data[:start] + buffer.getvalue()

    def fields_of(self, headers: Headers, data: bytes) -> WrittenFields | None:
        """See `Converter`."""
        schema_id, start, _ = self.wire.read(headers, data)
        read = self._reader(schema_id)
        if read.schema is None:
            return None
        read.room.check(data, start)
        try:
            value = fastavro.schemaless_reader(
                stream_of(data, start), read.avro, None, **(BY_NAME if read.branches else {})
            )
        except PortionLateError:
            raise
        except Exception as error:  # noqa: BLE001  # fastavro raises what it stumbles over
            raise DataError(f"The data is no Avro of schema {schema_id}: {reason_of(error)}.") from None
        return AvroFields(data[:start], read.avro, value, read.schema, read.branches)

    def _reader(self, schema_id: SchemaId) -> AvroReader:
        return self._reads.get(schema_id) or self.refusals.of(schema_id, lambda: self._read_of(schema_id))

    def writes_again(self, schema_id: SchemaId, start: int, data: bytes, value: Any) -> bool:
        """Returns whether `value`, which `value_of` has read of `data`, is `data` from `start` on once it is written.

        Avro leaves a writer some freedom: bytes of numbers and blocks of lists. Raises as reading does.
        """
        read, again = self._reader(schema_id), io.BytesIO()
        try:
            if read.convert or read.branches:  # it is read in another form to be written
                by_name = BY_NAME if read.branches else {}
                value = fastavro.schemaless_reader(stream_of(data, start), read.avro, None, **by_name)
            large_values.write(again, read.avro, value if read.branches is None else read.branches(value))
        except PortionLateError:
            raise
        except Exception as error:  # noqa: BLE001  # fastavro raises what it stumbles over
            raise DataError(f"The data is no Avro of schema {schema_id}: {reason_of(error)}.") from None
        return again.getvalue() == data[start:]

    def unwrapper(self, unwrapping: Unwrapping, writer: Converter) -> Unwrapper | None:
        """See `Converter.unwrapper`: rows are written as they lie in their events."""
        return AvroUnwrapper(self, unwrapping) if writer is self else None

    def known_reader(self, schema_id: SchemaId) -> AvroReader | None:
        """See `KnownSchemas.known_reader`."""
        return self._reads.get(schema_id)

    def known_prefix(self, topic: str, schema: Schema, form: str) -> bytes | None:
        """See `KnownSchemas.known_prefix`."""
        written: AvroWriter = self._written(schema)
        schema_id = self.known_id(topic, written.text, written.name)
        return None if schema_id is None or written.form != form else self.wire.written(schema_id)

    def _read_of(self, schema_id: SchemaId) -> AvroReader:
        """Makes what reads data with an id, once. Raises DataError, RegistryError."""
        registered = self.registered(schema_id)
        try:
            reader = self._parsed(registered)
        except (DataError, RegistryError):
            raise
        except Exception as error:  # noqa: BLE001  # a schema of a registry may hold anything
            raise DataError(f"Schema {schema_id} is no Avro schema: {reason_of(error)}.") from None
        return self._reads.put(schema_id, reader, reader.weight)

    def _parsed(self, registered: RegisteredSchema) -> AvroReader:
        if registered.kind != "AVRO":
            raise DataError(f"The schema is of type {registered.kind}, not AVRO.", "Set the converter for that type.")
        connect, named = FromAvro(names_logical=self._names_logical), dict[str, Any]()
        texts = self._define_references(registered, connect, named)
        size = len(registered.text) + sum(map(len, texts))
        avro = decoded(json.loads, registered.text)
        schema = None if avro in ("null", {"type": "null"}) else connect.schema(avro)
        if schema is not None:
            check_items(schema)
        parsed = parsed_schema(without_defaults(without_logical_types(avro)), named)
        convert = None if schema is None else reader_of_unions(schema)
        some = None if convert else self._some(avro, schema, registered)
        defined: dict[str, Any] = {}
        for own in (*(decoded(json.loads, text) for text in texts), avro):
            collect(own, "", defined)
        own = alone(avro, defined)
        room = RoomOfRecords(own)
        branches = writer_of_branches(parsed, named)
        weight = PARSED * size + weight_of(schema)
        columns = partial(self._column_reader, own, schema, room)
        return AvroReader(parsed, schema, convert, weight, room, some, branches, cache(columns))

    def _column_reader(self, avro: Any, schema: Schema | None, room: RoomOfRecords) -> AvroColumnReader | None:
        return None if schema is None else column_reader(avro, schema, self.wire.size, room.safe_bytes)

    def _some(self, avro: Any, schema: Schema | None, registered: RegisteredSchema) -> PartialReader | None:
        """Returns what reads some fields; None if all are wanted, or types come from other subjects."""
        wanted = self._fields(schema) if self._fields and schema is not None and not registered.references else None
        is_record = isinstance(avro, dict) and avro.get("type") == "record"
        return (
            PartialReader(without_defaults(without_logical_types(avro)), wanted)
            if wanted is not None and is_record
            else None
        )

    def _define_references(self, registered: RegisteredSchema, connect: FromAvro, named: dict[str, Any]) -> list[str]:
        """Makes known the types that a schema refers to, and those that they refer to; returns their texts."""
        texts = {
            (reference.subject, reference.version): text for reference, text in self.referenced(registered).items()
        }
        for text in texts.values():
            avro = decoded(json.loads, text)
            connect.schema(avro)
            parsed_schema(without_defaults(without_logical_types(avro)), named)
        return list(texts.values())

    def _written_of(self, schema: Schema) -> AvroWriter:
        maker = ToAvro(properties=self.options["connect.meta.data"], enums=self.options["enhanced.avro.schema.support"])
        try:
            avro = maker.schema(schema)
            if isinstance(avro, list) and schema.name != UNION:  # a null is no Avro: it is a tombstone
                avro = next(branch for branch in avro if branch != "null")
            named: dict[str, Any] = {}
            parsed = parsed_schema(without_logical_types(avro), named)
        except DataError:
            raise
        except Exception as error:  # noqa: BLE001  # names that Avro does not take, for one
            raise DataError(
                f"There is no Avro schema for this: {reason_of(error)}.",
                "Rename with ReplaceField or SetSchemaMetadata.",
            ) from None
        name = (schema.name or DEFAULT_NAME) if schema.type is Type.STRUCT else None
        text, form = json.dumps(avro, separators=(",", ":")), form_of(without_logical_types(avro))
        convert, branches = writer_of_unions(schema, enums=maker.enums), writer_of_branches(parsed, named)
        return AvroWriter(text, parsed, name, convert, form, branches)


def without_logical_types(avro: Any) -> Any:
    """Returns an Avro schema without its logical types and without fastavro's marks (_WITHOUT)."""
    if isinstance(avro, list):
        return [without_logical_types(branch) for branch in avro]
    if not isinstance(avro, dict):
        return avro
    kept = {name: part for name, part in avro.items() if name not in _WITHOUT}
    for name in ("type", "items", "values"):
        if isinstance(kept.get(name), dict | list):
            kept[name] = without_logical_types(kept[name])
    if isinstance(kept.get("fields"), list):
        kept["fields"] = [{**field, "type": without_logical_types(field["type"])} for field in kept["fields"]]
    return kept


def check_items(schema: Schema) -> None:
    """Raises DataError for a list of what has no bytes, or has parts without any: few bytes could claim any number."""
    _emptiness(schema)


def _emptiness(schema: Schema) -> tuple[bool, int]:
    """Returns whether a value may take no byte, and how many parts of it take none."""
    emptiness = _emptiness_there(schema)
    return (False, emptiness[1]) if schema.optional else emptiness


def _emptiness_there(schema: Schema) -> tuple[bool, int]:
    if schema.type in {Type.ARRAY, Type.MAP} and schema.value_schema is not None:
        is_empty, parts = _emptiness(schema.value_schema)
        if (is_empty and schema.type is Type.ARRAY) or parts > EMPTY_PARTS:
            raise DataError("A list of what has no bytes is not read: a few bytes could give it any length.")
        return False, 0
    if schema.type is Type.STRUCT:
        inner = [_emptiness(field.schema) for field in schema.fields]
        if schema.name == UNION:
            return False, max((parts for _, parts in inner), default=0)
        return all(is_empty for is_empty, _ in inner), sum(parts for _, parts in inner) or int(not inner)
    return (True, 1) if (schema.parameters or {}).get(FIXED_SIZE) == "0" else (False, 0)
