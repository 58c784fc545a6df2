"""Avro is read with the schema that it was written with, and written with one of the registry's."""

from __future__ import annotations

import io
import json
import random
import struct
import time
from decimal import Decimal
from typing import Any

import fastavro
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.converters import registered
from connectors.converters.avro.converter import AvroConverter
from connectors.converters.avro.schemas import ENUM, FromAvro, ToAvro
from connectors.data.record import Header
from connectors.data.schema import DATE, DECIMAL, TIMESTAMP, UNION, Field, Schema, Type
from connectors.data.values import bytes_of_decimal
from connectors.errors import DataError, RegistryError
from connectors.options import read
from connectors.registry.schema_registry import SchemaRegistry
from connectors.registry.settings import registry_settings
from tests.support.clocks import ManualClock
from tests.support.connect_classes.records import structs, values_of
from tests.support.memory.schema_registry import MemoryRegistry

ROW = {
    "type": "record",
    "name": "Row",
    "namespace": "shop",
    "doc": "An order.",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": "double"}},
        {"name": "count", "type": "int", "default": 7},
    ],
}
ITSELF = {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}
VALUE = {
    "id": 1, "name": None, "price": bytes_of_decimal(2, Decimal("12.34")), "day": 20_000, "at": 1_700_000_000_123,
    "state": "PAID", "tags": ["a", "b"], "more": {"x": 1.5}, "count": 3,
}  # fmt: skip


def converter(memory: MemoryRegistry, **texts: str) -> AvroConverter:
    """Returns a converter that asks `memory`."""
    given = {"schema.registry.url": "http://a:1", **{name.replace("_", "."): text for name, text in texts.items()}}
    options = read(AvroConverter.OPTIONS, given)
    made = AvroConverter(options, is_key=False)
    made.registry = SchemaRegistry(registry_settings(options), transport=memory, clock=ManualClock())
    return made


def written(schema: Any, value: Any, number: int = 1, start: str = ">bI") -> bytes:
    """Returns a message as serializers of the registry write it."""
    buffer = io.BytesIO(struct.pack(start, 0, number))
    buffer.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
    return buffer.getvalue()


def plain(schema: Any) -> Any:
    """Returns `schema` without logical types, so that fastavro writes values that are encoded already."""
    return json.loads(json.dumps(schema).replace("logicalType", "was"))


def test_a_record_is_read_with_its_schema_and_written_as_it_was() -> None:
    """Values of logical types stay in their encoded form."""
    memory = MemoryRegistry()
    made, number = converter(memory, enhanced_avro_schema_support="true"), memory.add(ROW)
    data = written(plain(ROW), VALUE, number)
    schema, value = made.to_connect_data("t", [], data)
    assert value == VALUE
    assert schema is not None
    assert (schema.name, schema.doc) == ("shop.Row", "An order.")
    kinds = {field.name: (field.schema.type, field.schema.name, field.schema.optional) for field in schema.fields}
    assert kinds["id"] == (Type.INT64, None, False)
    assert kinds["name"] == (Type.STRING, None, True)
    assert kinds["price"] == (Type.BYTES, DECIMAL, False)
    assert kinds["day"] == (Type.INT32, DATE, False)
    assert kinds["at"] == (Type.INT64, TIMESTAMP, False)
    again = made.from_connect_data("out", [], schema, value)
    assert again is not None
    assert again[5:] == data[5:]
    assert memory.subjects["out-value"] == [struct.unpack(">bI", again[:5])[1]]


def test_a_schema_is_registered_once_and_asked_for_once() -> None:
    """Whatever number of records there are."""
    memory = MemoryRegistry()
    made, number = converter(memory), memory.add(ROW)
    for _ in range(3):
        made.from_connect_data("out", [], *made.to_connect_data("t", [], written(plain(ROW), VALUE, number)))
    assert memory.asked == [f"GET /schemas/ids/{number}", "POST /subjects/out-value/versions"]


def test_a_null_is_a_null() -> None:
    """A tombstone needs no schema."""
    made = converter(MemoryRegistry())
    assert made.to_connect_data("t", [], None) == (None, None)
    assert made.from_connect_data("t", [], None, None) is None
    assert made.from_connect_data("t", [], Schema(type=Type.STRING, optional=True), None) is None


def test_evolved_records_are_read_each_with_its_own_schema() -> None:
    """A field that one has and the other has not."""
    memory = MemoryRegistry()
    made = converter(memory)
    old = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    new = {**old, "fields": [*old["fields"], {"name": "b", "type": "string", "default": "x"}]}
    first, second = memory.add(old), memory.add(new)
    assert made.to_connect_data("t", [], written(old, {"a": 1}, first))[1] == {"a": 1}
    schema, value = made.to_connect_data("t", [], written(new, {"a": 1, "b": "y"}, second))
    assert value == {"a": 1, "b": "y"}
    assert schema is not None
    assert schema.fields[1].schema.default == "x"


def test_references_are_followed() -> None:
    """A type that another subject has, and one that it refers to itself."""
    memory = MemoryRegistry()
    inner = {"type": "record", "name": "In", "namespace": "n", "fields": [{"name": "x", "type": "int"}]}
    middle = {"type": "record", "name": "Mid", "namespace": "n", "fields": [{"name": "i", "type": "n.In"}]}
    outer = {"type": "record", "name": "Out", "namespace": "n", "fields": [{"name": "m", "type": "n.Mid"}]}
    memory.add(inner, "inner")
    memory.add(middle, "middle", references=[{"name": "n.In", "subject": "inner", "version": 1}])
    number = memory.add(outer, "outer", references=[{"name": "n.Mid", "subject": "middle", "version": 1}])
    whole = {**outer, "fields": [{"name": "m", "type": {**middle, "fields": [{"name": "i", "type": inner}]}}]}
    schema, value = converter(memory).to_connect_data("t", [], written(whole, {"m": {"i": {"x": 5}}}, number))
    assert value == {"m": {"i": {"x": 5}}}
    assert schema is not None
    assert schema.fields[0].schema.fields[0].schema.name == "n.In"


def test_a_union_of_several_types_is_a_struct_of_which_one_field_is_there() -> None:
    """And is written as the union that it was."""
    memory = MemoryRegistry()
    union = ["null", "int", "string", {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}]
    schema = {"type": "record", "name": "U", "fields": [{"name": "u", "type": union}]}
    made, number = converter(memory), memory.add(schema)
    for value, field in ((5, "int"), ("x", "string"), ({"a": 1}, "R"), (None, None)):
        data = written(schema, {"u": value}, number)
        connect, found = made.to_connect_data("t", [], data)
        assert connect is not None
        assert connect.fields[0].schema.name == UNION
        held = {name: one for name, one in (found["u"] or {}).items() if one is not None}
        assert held == ({} if field is None else {field: value})
        assert (made.from_connect_data("t", [], connect, found) or b"")[5:] == data[5:]


def test_a_union_of_records_with_the_same_fields_is_written_as_the_one_that_it_was() -> None:
    """Fixed bytes and, where they are kept, enums too."""
    memory = MemoryRegistry()
    fields = [{"name": "id", "type": "long"}]
    union = [
        *({"type": "record", "name": name, "namespace": "n", "fields": fields} for name in ("A", "B")),
        *({"type": "fixed", "name": name, "size": 1} for name in ("F", "G")),
        *({"type": "enum", "name": name, "symbols": ["X"]} for name in ("E", "D")),
    ]
    alone = {"name": "v", "type": ["null", "n.A"], "default": None}
    schema = {"type": "record", "name": "U", "fields": [{"name": "u", "type": union}, alone]}
    made, number = converter(memory, **{"enhanced.avro.schema.support": "true"}), memory.add(schema)
    values = [("n.A", {"id": 7}), ("n.B", {"id": 7}), ("F", b"a"), ("G", b"a"), ("E", "X"), ("D", "X")]
    for name, value in values:
        data = written(schema, {"u": (name, value), "v": {"id": 8}}, number)
        connect, found = made.to_connect_data("t", [], data)
        assert found["v"] == {"id": 8}
        assert {field: one for field, one in found["u"].items() if one is not None} == {name[-1]: value}
        assert (made.from_connect_data("t", [], connect, found) or b"")[5:] == data[5:]


def test_ids_of_apicurio_are_found() -> None:
    """Eight bytes before the data, or in a header with nothing before the data."""
    memory = MemoryRegistry()
    number = memory.add({"type": "string"})
    long = converter(memory, **{"apicurio.registry.id-handler": "io.apicurio.Legacy8ByteIdHandler"})
    assert long.to_connect_data("t", [], written({"type": "string"}, "x", number, ">bq"))[1] == "x"
    headers = [Header("apicurio.value.globalId", struct.pack(">q", number))]
    data = written({"type": "string"}, "x")[5:]
    own = converter(memory, schema_registry_url="http://a:1/apis/ccompat/v7")
    assert own.to_connect_data("t", headers, data)[1] == "x"


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("TopicNameStrategy", "out-value"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "shop.Row"),
        ("TopicRecordNameStrategy", "out-shop.Row"),
    ],
)
def test_subjects_follow_their_strategy(strategy: str, subject: str) -> None:
    """With Confluent's names for them."""
    memory = MemoryRegistry()
    made = converter(memory, value_subject_name_strategy=strategy)
    made.from_connect_data("out", [], FromAvro().schema(ROW), VALUE)
    assert list(memory.subjects) == [subject]


def test_without_auto_register_a_schema_has_to_be_there() -> None:
    """It is an error of the record that says what to do."""
    made = converter(MemoryRegistry(), auto_register_schemas="false")
    with pytest.raises(DataError, match=r"auto\.register\.schemas"):
        made.from_connect_data("out", [], FromAvro().schema(ROW), VALUE)


def test_a_registry_that_is_away_is_no_error_of_the_record() -> None:
    """The caller reads the record again."""
    memory = MemoryRegistry()
    memory.fails = [httpx.ConnectError("refused")] * 9
    with pytest.raises(RegistryError):
        converter(memory).to_connect_data("t", [], written({"type": "string"}, "x"))


@pytest.mark.parametrize(
    ("schema", "data", "said"),
    [
        ({"type": "string"}, b"", "no id"),
        ({"type": "string"}, b"\x01\x00\x00\x00\x01", "no id"),
        ({"type": "string"}, b"\x00\x00\x00\x00\x63\x02a", "no schema 99"),
        ({"type": "string"}, b"\x00\x00\x00\x00\x01\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", "no Avro"),
        ({"type": "array", "items": "null"}, b"\x00\x00\x00\x00\x01\xfe\xff\xff\xff\x0f\x00", "any length"),
        (ITSELF, b"\x00\x00\x00\x00\x01\x00", "contains itself"),
        ("{", b"\x00\x00\x00\x00\x01\x00", "no Avro schema"),
        ({"type": "nothing"}, b"\x00\x00\x00\x00\x01\x00", "not defined"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_an_error_of_the_record(schema: Any, data: bytes, said: str) -> None:
    """With what is wrong with it."""
    memory = MemoryRegistry()
    memory.add(schema)
    with pytest.raises(DataError, match=said):
        converter(memory).to_connect_data("t", [], data)


def test_thousands_of_broken_records_are_errors_and_nothing_else() -> None:
    """Cut off, changed, lengthened: each within a moment."""
    memory, chance = MemoryRegistry(), random.Random(7)
    made, number = converter(memory), memory.add(ROW)
    sound = written(plain(ROW), VALUE, number)
    broken = [sound[:end] for end in range(5, len(sound))]
    for _ in range(5_000):
        changed = bytearray(sound)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(5, len(changed))] = chance.randrange(256)
        broken.append(bytes(changed))
    refused = sum(_is_refused(made, data) for data in broken)
    assert refused > 1_000


def _is_refused(made: AvroConverter, data: bytes) -> bool:
    began = time.monotonic()
    try:
        made.to_connect_data("t", [], data)
    except DataError:
        return True
    finally:
        assert time.monotonic() - began < 1.0
    return False


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_what_is_written_is_read_again(data: st.DataObject) -> None:
    """Schemas and values of any kind come back as they were, but for what Avro does not keep."""
    schema = data.draw(structs(maps=False).filter(_is_avro))
    value = data.draw(values_of(Schema(**{**_parts(schema), "optional": False})))
    made = converter(MemoryRegistry())
    message = made.from_connect_data("t", [], schema, value)
    found, again = made.to_connect_data("t", [], message)
    assert again == value
    assert found is not None
    assert [field.name for field in found.fields] == [field.name for field in schema.fields]
    for ours, theirs in zip(schema.fields, found.fields, strict=True):
        assert (ours.schema.type, ours.schema.optional, ours.schema.default) == (
            theirs.schema.type,
            theirs.schema.optional,
            theirs.schema.default,
        )


def _parts(schema: Schema) -> dict[str, Any]:
    return {name: getattr(schema, name) for name in Schema.__struct_fields__}


def _is_avro(schema: Schema) -> bool:
    """Names that Avro takes, and one struct of each name."""
    names = _names(schema)
    return len(names) == len(set(names)) and all(field.isidentifier() and field.isascii() for field in _fields(schema))


def _names(schema: Schema) -> list[str]:
    own = [schema.name or "default"] if schema.type is Type.STRUCT else []
    inner = [one.schema for one in schema.fields] + [one for one in (schema.value_schema,) if one is not None]
    return own + [name for one in inner for name in _names(one)]


def _fields(schema: Schema) -> list[str]:
    return [field.name for field in schema.fields] + [name for field in schema.fields for name in _fields(field.schema)]


def test_an_enum_is_text_unless_asked_for() -> None:
    """As Confluent's converter has it."""
    schema = FromAvro().schema({"type": "enum", "name": "E", "symbols": ["A", "B"]})
    assert schema.parameters == {ENUM: "E", f"{ENUM}.A": "A", f"{ENUM}.B": "B"}
    assert ToAvro(properties=False).schema(schema) == "string"
    assert ToAvro(properties=False, enums=True).schema(schema) == {"type": "enum", "name": "E", "symbols": ["A", "B"]}


def test_a_field_that_avro_cannot_name_is_an_error_that_says_how_to_rename() -> None:
    """Flatten makes names with dots, for one."""
    schema = Schema(type=Type.STRUCT, fields=(Field("a.b", Schema(type=Type.STRING)),))
    with pytest.raises(DataError, match="Rename"):
        converter(MemoryRegistry()).from_connect_data("t", [], schema, {"a.b": "x"})


def test_ids_are_kept_of_the_newest_schemas_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that makes a new schema for each record costs requests, and no memory."""
    monkeypatch.setattr(registered, "MOST_IDS", 3)
    memory = MemoryRegistry()
    found = converter(memory)
    ids = [found.id_of("t", json.dumps({"type": "fixed", "name": "f", "size": size}), None) for size in range(1, 6)]
    assert len(found._ids) == 3
    asked = len(memory.asked)
    assert found.id_of("t", json.dumps({"type": "fixed", "name": "f", "size": 5}), None) == ids[-1]
    assert len(memory.asked) == asked
    assert found.id_of("t", json.dumps({"type": "fixed", "name": "f", "size": 1}), None) == ids[0]
    assert len(memory.asked) == asked + 1
