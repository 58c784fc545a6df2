"""Placeholders of Debezium's in values are filled from the value before, in each form that a column has."""

from __future__ import annotations

import base64
import io
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro
import httpx
import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from compactor.ports import Filled
from connectors.chain.fill import Placeholder, ValueFill
from connectors.chain.fill_settings import UNAVAILABLE as PLACEHOLDER
from connectors.converters.avro.converter import AvroConverter
from connectors.converters.converter import BytesConverter, Converter
from connectors.converters.json.converter import JsonConverter
from connectors.converters.json.schema_converter import JsonSchemaConverter
from connectors.converters.protobuf.converter import ProtobufConverter
from connectors.converters.protobuf.files import compiled
from connectors.converters.registered import RegisteredConverter
from connectors.data.bounds import MOST_READ
from connectors.errors import PortionLateError, RegistryError
from connectors.options import read
from connectors.registry.schema_registry import SchemaRegistry
from connectors.registry.settings import registry_settings
from tests.support.clocks import ManualClock
from tests.support.memory.schema_registry import MemoryRegistry

DATA = PLACEHOLDER.encode()
# What each type of column has in its place, by Debezium's UnchangedToastedPlaceholder; bytes are Avro's.
FORMS: dict[str, Any] = {
    "text": PLACEHOLDER,
    "bytes": DATA,
    "texts": [PLACEHOLDER],
    "blobs": [DATA],
    "ints": list(DATA),
    "longs": list(DATA),
    "map": {PLACEHOLDER: PLACEHOLDER},
    "hstore": json.dumps({PLACEHOLDER: PLACEHOLDER}, separators=(",", ":")),
    "uuids": [Placeholder().uuid],
}
VALUES: dict[str, Any] = {
    "text": "long text",
    "bytes": b"\x00\xff",
    "texts": ["a", "b"],
    "blobs": [b"a", b""],
    "ints": [1, -2],
    "longs": [1 << 40],
    "map": {"a": "b"},
    "hstore": '{"a":"b"}',
    "uuids": [str(uuid.UUID(int=7)), str(uuid.UUID(int=8))],
}
TYPES: Mapping[str, Any] = {
    "text": "string",
    "bytes": "bytes",
    "texts": {"type": "array", "items": ["null", "string"]},
    "blobs": {"type": "array", "items": "bytes"},
    "ints": {"type": "array", "items": "int"},
    "longs": {"type": "array", "items": ["null", "long"]},
    "map": {"type": "map", "values": ["null", "string"]},
    "hstore": "string",
    "uuids": {"type": "array", "items": "string"},
}
ROW = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "id", "type": "long"}]
    + [{"name": name, "type": ["null", kind], "default": None} for name, kind in TYPES.items()],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Row"], "default": None},
        {"name": "op", "type": "string"},
    ],
}
PROTO = """
syntax = "proto3";
import "google/protobuf/wrappers.proto";
message Row {
  int64 id = 1; optional string text = 2; bytes bytes = 3; repeated string texts = 4; repeated bytes blobs = 5;
  repeated int32 ints = 6; repeated int64 longs = 7; map<string, string> map = 8;
  google.protobuf.StringValue hstore = 9; repeated string uuids = 10;
}
message Event { Row before = 1; Row after = 2; string op = 3; }
"""


def as_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the row as JsonConverter writes it: bytes are Base64."""

    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        return [plain(item) for item in value] if isinstance(value, list) else value

    return {name: plain(value) for name, value in row.items()}


class Form:
    """One form of values: `write` gives the bytes of a row, `event` those of a change event, `rows` reads both."""

    def __init__(self, kind: type[Converter], **texts: str) -> None:
        self.memory = MemoryRegistry()
        is_registered = issubclass(kind, RegisteredConverter)
        given = {"schema.registry.url": "http://a:1"} if is_registered else texts
        converter: Any = kind(read(kind.OPTIONS, given), is_key=False)
        if is_registered:
            settings = registry_settings(converter.options)
            converter.registry = SchemaRegistry(settings, transport=self.memory, clock=ManualClock())
            converter.registry.largest_id = converter.wire.largest_id
        self.converter = converter
        self.texts = texts

    def head(self, schema: Any, **more: Any) -> bytes:
        """Returns what stands before data of `schema`, which is registered."""
        return bytes(self.converter.wire.written(self.memory.add(schema, **more)))


class Json(Form):
    def __init__(self) -> None:
        super().__init__(JsonConverter, **{"schemas.enable": "false"})

    def write(self, row: Mapping[str, Any]) -> bytes:
        return json.dumps(as_json(row)).encode()

    def event(self, op: str, row: Mapping[str, Any] | None, before: Mapping[str, Any] | None = None) -> bytes:
        after = None if row is None else as_json(row)
        return json.dumps({"before": before and as_json(before), "after": after, "op": op}).encode()

    def row(self, data: bytes) -> Any:
        value = json.loads(data)
        return value["after"] if "op" in value else value


class JsonSchema(Json):
    def __init__(self) -> None:
        Form.__init__(self, JsonSchemaConverter)
        self.first = self.head({"type": "object"}, schemaType="JSON")

    def write(self, row: Mapping[str, Any]) -> bytes:
        return self.first + super().write(row)

    def event(self, op: str, row: Mapping[str, Any] | None, before: Mapping[str, Any] | None = None) -> bytes:
        return self.first + super().event(op, row, before)

    def row(self, data: bytes) -> Any:
        assert data.startswith(self.first)
        return super().row(data[len(self.first) :])


class Avro(Form):
    def __init__(self) -> None:
        super().__init__(AvroConverter)

    def written(self, schema: Any, value: Any) -> bytes:
        buffer = io.BytesIO(self.head(schema))
        buffer.seek(0, io.SEEK_END)
        fastavro.schemaless_writer(buffer, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
        return buffer.getvalue()

    def write(self, row: Mapping[str, Any], schema: Any = ROW) -> bytes:
        return self.written(schema, row)

    def event(self, op: str, row: Mapping[str, Any] | None, before: Mapping[str, Any] | None = None) -> bytes:
        return self.written(ENVELOPE, {"before": before, "after": row, "op": op})

    def row(self, data: bytes) -> Any:
        number = int.from_bytes(data[1:5], "big")
        schema = json.loads(self.memory.schemas[number - 1]["schema"])
        value: Any = fastavro.schemaless_reader(io.BytesIO(data[5:]), fastavro.parse_schema(schema), None)
        return as_json(value["after"] if "op" in value else value)


class Protobuf(Form):
    def __init__(self) -> None:
        super().__init__(ProtobufConverter)
        self.first = self.head(PROTO, schemaType="PROTOBUF")
        file = compiled(PROTO, {})
        self.kinds: list[Any] = [GetMessageClass(file.message((number,))) for number in (0, 1)]

    def _message(self, message: Any, row: Mapping[str, Any]) -> Any:
        for name, value in row.items():
            if isinstance(value, list):
                getattr(message, name).extend(value)
            elif isinstance(value, dict):
                getattr(message, name).update(value)
            elif name == "hstore" and value is not None:
                message.hstore.value = value
            elif value is not None:
                setattr(message, name, value)
        return message

    def write(self, row: Mapping[str, Any]) -> bytes:
        return self.first + b"\x00" + bytes(self._message(self.kinds[0](), row).SerializeToString())

    def event(self, op: str, row: Mapping[str, Any] | None, before: Mapping[str, Any] | None = None) -> bytes:
        event = self.kinds[1](op=op)
        for name, part in (("before", before), ("after", row)):
            if part is not None:
                getattr(event, name).SetInParent()
                self._message(getattr(event, name), part)
        return self.first + b"\x02\x02" + bytes(event.SerializeToString())

    def row(self, data: bytes) -> Any:
        is_event = data[5:7] == b"\x02\x02"
        message = self.kinds[is_event].FromString(data[7 if is_event else 6 :])
        row = message.after if is_event else message
        row = {
            "id": row.id, "text": row.text if row.HasField("text") else None, "bytes": row.bytes, "map": dict(row.map),
            "hstore": row.hstore.value if row.HasField("hstore") else None,
            **{name: list(getattr(row, name)) for name in ("texts", "blobs", "ints", "longs", "uuids")},
        }  # fmt: skip
        return as_json(row)


KINDS = [Json, JsonSchema, Avro, Protobuf]


def fill_of(form: Form, placeholder: str = PLACEHOLDER) -> ValueFill:
    return ValueFill(form.converter, Placeholder(placeholder), MOST_READ)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_event", [False, True], ids=["a row", "an event"])
def test_each_form_of_the_placeholder_is_filled(kind: Any, is_event: bool) -> None:
    """Of a row, and of the row after a change; what the record has itself stays, and so does what was before."""
    form = kind()

    def written(row: Mapping[str, Any]) -> bytes:
        return bytes(form.event("u", row, FORMS | {"id": 9}) if is_event else form.write(row))

    earlier, later = written({"id": 1, **VALUES}), written({"id": 2, **FORMS})
    fill = fill_of(form)
    assert fill.may_need(pa.array([earlier, later, None], pa.binary())).to_pylist() == [is_event, True, False]
    filled = fill.fill(later, (), earlier, ())
    assert filled.left == 0
    assert form.row(filled.value) == as_json({"id": 2, **VALUES})
    if is_event and kind is Json:
        assert json.loads(filled.value)["before"] == as_json(FORMS | {"id": 9})
    assert fill.fill(earlier, (), later, ()) == Filled(earlier, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_is_taken_only_if_the_record_before_has_it(kind: Any) -> None:
    """A placeholder there is none; without any record before all stay, and are counted."""
    form = kind()
    earlier, later = form.write({"id": 1, **VALUES, "text": PLACEHOLDER}), form.write({"id": 2, **FORMS})
    fill = fill_of(form)
    filled = fill.fill(later, (), earlier, ())
    assert filled.left == 1
    assert form.row(filled.value) == as_json({"id": 2, **VALUES, "text": PLACEHOLDER})
    assert fill.fill(later, (), None, ()) == Filled(later, len(FORMS))
    assert fill.fill(later, (), form.event("d", None), ()) == Filled(later, len(FORMS))


@pytest.mark.parametrize("kind", KINDS)
def test_a_null_is_never_filled(kind: Any) -> None:
    """It says that the column is null; and a null before is a value that a placeholder stands for."""
    form = kind()
    fill, nothing = fill_of(form), {"id": 2, "text": None, "bytes": b"x"}
    earlier = form.write({"id": 1, **VALUES})
    assert fill.fill(form.write(nothing), (), earlier, ()).value == form.write(nothing)
    filled = fill.fill(form.write({"id": 3, **FORMS}), (), form.write({"id": 2, **VALUES, "text": None}), ())
    assert (filled.left, form.row(filled.value)["text"]) == (0, None)


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_read_stays_as_it_is(kind: Any) -> None:
    """Of the record and of the one before; the record is the source's own, and others go on."""
    form = kind()
    fill, later = fill_of(form), form.write({"id": 2, **FORMS})
    for broken in (b"", DATA, b"\x00\x00\x00\x00\x01" + DATA, b"[" + DATA, b"null"):
        made = fill.fill(broken, (), later, ())
        assert (made.value, made.left) == (broken, 0)
        assert made.is_unreadable or broken == b"null"  # which JSON reads: it has no fields
        assert fill.fill(later, (), broken, ()) == Filled(later, len(FORMS))


def test_no_more_is_taken_of_the_record_before_than_the_fields() -> None:
    """Bytes that its Protobuf schema does not know would come once more with each field: 9 MB for these 9 fields."""
    form = Protobuf()
    unknown = b"\xc2\xb8\x02\xc0\x84\x3d" + bytes(1_000_000)  # field 5000
    earlier, later = form.write({"id": 1, **VALUES}) + unknown, form.write({"id": 2, **FORMS})
    filled = fill_of(form).fill(later, (), earlier, ())
    assert filled.value == form.write({"id": 2, **VALUES})


def test_a_message_without_fields_is_taken_too() -> None:
    """Protobuf tells a text that is empty, in a message of its own, from one that is not there."""
    form = Protobuf()
    earlier, later = form.write({"id": 1, **VALUES, "hstore": ""}), form.write({"id": 2, **FORMS})
    assert form.row(fill_of(form).fill(later, (), earlier, ()).value)["hstore"] == ""


def test_each_field_costs_its_own_bytes_alone() -> None:
    """Copying all of the record before for each of them would take hours of a core for the most fields."""
    numbers, form = range(1, 4001), Protobuf()
    schema = "".join(f"string f{number} = {number};" for number in numbers)
    first = form.head(f'syntax = "proto3"; message M {{ {schema} }}', schemaType="PROTOBUF") + b"\0"
    earlier, later = (first + b"".join(_text(number, data) for number in numbers) for data in (b"x", DATA))
    fill = fill_of(form)
    fill.fill(later, (), None, ())  # which reads the schema
    began = time.thread_time()
    assert fill.fill(later, (), earlier, ()) == Filled(earlier, 0)
    assert time.thread_time() - began < 1


def _text(number: int, data: bytes) -> bytes:
    """Returns a field of Protobuf with a text or bytes."""

    def varint(value: int) -> bytes:
        return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])

    return varint(number << 3 | 2) + varint(len(data)) + data


def test_json_keeps_its_other_members_byte_for_byte() -> None:
    """Numbers are not read, and members keep their order."""
    form = Json()
    later = b'{"n": 1.10, "big": 123456789012345678901234567890, "text": "%s", "n2": 1e400}' % DATA
    earlier = b'{"text" : "\\u00e4" , "n": 7}'
    filled = fill_of(form).fill(later, (), earlier, ())
    assert filled.value == b'{"n":1.10,"big":123456789012345678901234567890,"text":"\\u00e4","n2":1e400}'


def test_json_with_a_schema_takes_a_value_of_the_same_type_alone() -> None:
    """The schema of the message stays; a column that has become another type is not filled."""
    form = Form(JsonConverter)

    def written(kind: str, value: Any, *, optional: bool = True) -> bytes:
        fields = [{"field": "a", "type": kind, "optional": optional}]
        return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": {"a": value}}).encode()

    fill, later = fill_of(form), written("string", PLACEHOLDER)
    assert json.loads(fill.fill(later, (), written("string", "x"), ()).value) == json.loads(written("string", "x"))
    assert fill.fill(later, (), written("bytes", "eA=="), ()) == Filled(later, 1)
    required = written("string", PLACEHOLDER, optional=False)
    assert fill.fill(required, (), written("string", None), ()) == Filled(required, 1)
    assert fill.fill(required, (), written("string", "x"), ()).left == 0


@pytest.mark.parametrize("schema", [{"fields": 7}, {"fields": [{"field": [1]}]}, [], 7, {"fields": [{"field": "a"}]}])
def test_a_schema_may_hold_anything(schema: Any) -> None:
    """A value that cannot be compared is not filled, and others go on."""
    form = Form(JsonConverter)
    later, earlier = (json.dumps({"schema": schema, "payload": {"a": text}}).encode() for text in (PLACEHOLDER, "x"))
    assert fill_of(form).fill(later, (), earlier, ()).left in (0, 1)


def test_a_registry_that_does_not_answer_is_an_error() -> None:
    """Nothing is published unfilled for that: the portion is taken again."""
    form = Avro()
    later, earlier = form.write({"id": 2, **FORMS}), form.write({"id": 1, **VALUES})
    form.memory.always = httpx.Response(503)
    with pytest.raises(RegistryError):
        fill_of(form).fill(later, (), earlier, ())


def test_a_stop_ends_the_wait_for_a_schema() -> None:
    """Each value of a portion may have one of its own, which is answered just in time."""
    form = Avro()
    later, earlier = form.write({"id": 2, **FORMS}), form.write({"id": 1, **VALUES})
    fill, asked = fill_of(form), len(form.memory.asked)
    fill.stop_with(lambda: True)
    with pytest.raises(PortionLateError, match="stopped"):
        fill.fill(later, (), earlier, ())
    assert len(form.memory.asked) == asked


def test_avro_keeps_the_schema_that_it_was_written_with() -> None:
    """A later schema of the table has another id; a column of another type, or a new one, is not filled."""
    form = Avro()
    fields = [{"name": "id", "type": "long"}, {"name": "text", "type": "string"}]
    other = {"type": "record", "name": "Row", "fields": [*fields, {"name": "new", "type": "string"}]}
    earlier = form.write({"id": 1, **VALUES})
    later = form.write({"id": 2, "text": PLACEHOLDER, "new": PLACEHOLDER}, other)
    filled = fill_of(form).fill(later, (), earlier, ())
    assert (filled.left, filled.value[:5]) == (1, later[:5])
    assert form.row(filled.value) == {"id": 2, "text": "long text", "new": PLACEHOLDER}
    typed = {"type": "record", "name": "Row", "fields": [fields[0], {"name": "text", "type": "bytes"}]}
    later = form.write({"id": 2, "text": DATA}, typed)
    assert fill_of(form).fill(later, (), earlier, ()) == Filled(later, 1)
    assert len(form.memory.subjects["s"]) == len(form.memory.schemas)
    assert not [path for path in form.memory.asked if path.startswith("POST")]


def test_a_placeholder_may_be_another_and_hexadecimal() -> None:
    """As Debezium's setting has it."""
    form = Json()
    later, earlier = b'{"a":"?"}', b'{"a":"x"}'
    assert fill_of(form, "?").fill(later, (), earlier, ()).value == earlier
    assert fill_of(form, "hex:3f").fill(later, (), earlier, ()).value == earlier
    assert fill_of(form).fill(later, (), earlier, ()).value == later
    assert fill_of(form, "ä\n").may_need(pa.array([b"x", None])).to_pylist() == [True, False]


def test_a_batch_without_records_needs_nothing() -> None:
    """As one of tombstones or rejected records alone is; Arrow gives an empty list no type of its own."""
    nothing = fill_of(Json()).may_need(pa.array([], pa.binary()))
    assert nothing.equals(pa.array([], pa.bool_()))


def test_bytes_have_no_fields() -> None:
    """Such a connector is refused; what it fills stays as it is."""
    fill = ValueFill(BytesConverter({}, is_key=False), Placeholder(), MOST_READ)
    assert fill.fill(DATA, (), b"x", ()) == Filled(DATA, 0)


CELLS = st.sampled_from([PLACEHOLDER, "", "a", None, [PLACEHOLDER], ["a"], {PLACEHOLDER: PLACEHOLDER}, 7, 1.5, True])
ROWS = st.lists(st.dictionaries(st.sampled_from("abc"), CELLS), min_size=1, max_size=6)


@given(ROWS)
def test_filled_one_after_the_other_every_field_has_the_last_value_that_was_there(
    rows: Sequence[dict[str, Any]],
) -> None:
    """Against a plain dict: each record is filled by the one before it, which was filled itself."""
    fill, placeholder = fill_of(Json()), Placeholder()
    before: bytes | None = None
    expected: dict[str, Any] = {}
    for row in rows:
        expected = {
            name: expected[name]
            if placeholder.is_in(value) and name in expected and not placeholder.is_in(expected[name])
            else value
            for name, value in row.items()
        }
        before = fill.fill(json.dumps(row).encode(), (), before, ()).value
        assert json.loads(before) == expected
