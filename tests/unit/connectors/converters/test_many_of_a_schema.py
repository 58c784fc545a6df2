"""What a schema has many of costs no more than it is long: types of one name, references, small records."""

from __future__ import annotations

import json
import struct
import time
from typing import Any, Final

import pytest

from connectors.converters.avro.converter import AvroConverter
from connectors.converters.json.schema_converter import JsonSchemaConverter
from connectors.converters.protobuf.text import ToProtobuf
from connectors.converters.registered import RegisteredConverter
from connectors.data.bounds import LONGEST_SCHEMA
from connectors.data.schema import INT32, Field, Schema, Type
from connectors.errors import DataError
from connectors.options import read
from connectors.registry.schema_registry import SchemaRegistry
from connectors.registry.settings import registry_settings
from tests.support.clocks import ManualClock
from tests.support.fuzz.hostile import varint
from tests.support.memory.schema_registry import MemoryRegistry

REFERENCES: Final = 490


def converter(kind: type[RegisteredConverter], memory: MemoryRegistry) -> RegisteredConverter:
    made = kind(read(kind.OPTIONS, {"schema.registry.url": "http://a:1"}), is_key=False)
    made.registry = SchemaRegistry(registry_settings(made.options), transport=memory, clock=ManualClock())
    return made


def framed(number: int, data: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + data


def referring(memory: MemoryRegistry, *texts: str, **more: str) -> list[dict[str, Any]]:
    """Registers `texts`; returns references to them by the names n0, n1 and so on."""
    for number, text in enumerate(texts):
        memory.add(text, f"s{number}", **more)
    return [{"name": f"n{number}", "subject": f"s{number}", "version": 1} for number in range(len(texts))]


def test_the_symbols_of_an_enum_are_looked_at_once_for_all_references() -> None:
    """Of a large one that hundreds of small types follow."""
    memory = MemoryRegistry()
    enum = {"type": "enum", "name": "E", "symbols": [f"S{number:x}" for number in range(130_000)]}
    small = ({"type": "fixed", "name": f"F{number}", "size": 1} for number in range(REFERENCES))
    references = referring(memory, json.dumps(enum), *map(json.dumps, small))
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "E"}]}
    made, number = converter(AvroConverter, memory), memory.add(record, references=references)
    began = time.process_time()
    assert made.to_connect_data("t", [], framed(number, b"\0"))[1] == {"a": "S0"}
    assert time.process_time() - began < 1.7


def test_a_record_that_is_counted_through_costs_no_more_than_its_bytes() -> None:
    """What counts it is made once for its schema, which may be far longer."""
    deep: Any = "boolean"
    for level in range(90):
        deep = {"type": "record", "name": f"D{level}", "fields": [{"name": "d", "type": deep}]}
    fields = [
        {"name": "list", "type": {"type": "array", "items": deep}},
        {"name": "nulls", "type": [*["null"] * 100_000, "int"]},
        {"name": "bytes", "type": "bytes"},
    ]
    memory = MemoryRegistry()
    made = converter(AvroConverter, memory)
    number = memory.add({"type": "record", "name": "R", "fields": fields})
    message = framed(number, b"\0\0" + varint(100_000) + bytes(100_000))
    made.to_connect_data("t", [], message)
    began = time.process_time()
    for _ in range(100):
        made.to_connect_data("t", [], message)
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("name", ["/" * 1_000_000, "r" * 1_000_000])
def test_the_name_of_a_reference_is_bounded_by_its_uses(name: str) -> None:
    """A JSON Schema says it once, in a definition that is used often."""
    memory = MemoryRegistry()
    referring(memory, '{"type": "string"}', schemaType="JSON")
    properties = {f"p{number}": {"$ref": "#/definitions/D"} for number in range(3_000)}
    schema = {"type": "object", "definitions": {"D": {"$ref": name}}, "properties": properties}
    references = [{"name": name, "subject": "s0", "version": 1}]
    number = memory.add(schema, schemaType="JSON", references=references)
    began = time.process_time()
    with pytest.raises(DataError, match="more than"):
        converter(JsonSchemaConverter, memory).to_connect_data("t", [], framed(number, b"{}"))
    assert time.process_time() - began < 2


def test_the_names_of_references_count_as_a_schema_does() -> None:
    """A registry may answer each question with a hundred thousand of them."""
    memory = MemoryRegistry()
    inner = [{"name": "n" * 100, "subject": f"s{number}", "version": 1} for number in range(20_000)]
    for subject in ("s0", "s1"):
        memory.add(f'"{subject}"', subject, references=inner)
    number = memory.add('"string"', references=[{"name": "n", "subject": "s0", "version": 1}])
    with pytest.raises(DataError, match=f"more than {LONGEST_SCHEMA} characters"):
        converter(AvroConverter, memory).to_connect_data("t", [], framed(number, b"\0"))


def test_types_of_one_name_are_bounded() -> None:
    """Each that is written into a Protobuf message is compared with those before it."""

    def inner(number: int) -> Schema:
        return Schema(type=Type.STRUCT, name="X", fields=(Field(f"a{number}", INT32),))

    few = Schema(type=Type.STRUCT, fields=tuple(Field(f"f{at}", inner(at)) for at in range(100)))
    assert "message X100 {" in ToProtobuf(nullables=False).file(few).text
    many = Schema(type=Type.STRUCT, fields=tuple(Field(f"f{at}", inner(at)) for at in range(10_000)))
    began = time.process_time()
    with pytest.raises(DataError, match="have the name 'X' in one message"):
        ToProtobuf(nullables=False).file(many)
    assert time.process_time() - began < 1
