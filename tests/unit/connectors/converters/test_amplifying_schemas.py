"""A registry's schema that repeats its texts is refused before they are made; so is a record that repeats them."""

from __future__ import annotations

import base64
import struct
import time
from typing import Any, Final

import pytest
from google.protobuf import descriptor_pb2

from connectors.chain.key_identity import AvroKeyIdentity
from connectors.converters.avro.converter import AvroConverter
from connectors.converters.json.schema_converter import JsonSchemaConverter
from connectors.converters.protobuf.converter import ProtobufConverter
from connectors.converters.registered import RegisteredConverter
from connectors.data.growth import Room
from connectors.errors import DataError
from connectors.options import read
from connectors.registry.schema_registry import SchemaRegistry
from connectors.registry.settings import registry_settings
from tests.support.clocks import ManualClock
from tests.support.fuzz.hostile import varint
from tests.support.memory.schema_registry import MemoryRegistry
from tests.unit.connectors.test_amplifying_records import little_room

LONG: Final = "n" * 200_000
MOST_S: Final = 20
"""Seconds of this thread, traced, for one case: what is seconds here is less than one without the tracing."""


def passed(kind: type[RegisteredConverter], schema: Any, data: bytes) -> Any:
    """Reads a message with a schema of a registry in memory, and writes what it was again, if there is room for it.

    Returns what was read.
    """
    memory = MemoryRegistry()
    converter = kind(read(kind.OPTIONS, {"schema.registry.url": "http://a:1"}), is_key=True)
    converter.registry = SchemaRegistry(registry_settings(converter.options), transport=memory, clock=ManualClock())
    number = memory.add(schema, schemaType=kind.KIND)
    message = struct.pack(">bI", 0, number) + data
    if isinstance(converter, AvroConverter):
        AvroKeyIdentity(converter).of((), message)
    value_schema, value = converter.to_connect_data("t", [], message)
    Room().check(len(message), value_schema, value)
    converter.from_connect_data("t", [], value_schema, value)
    return value


def _record(name: str, *fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": at, "type": of} for at, of in fields], **more}


def _uses(definition: Any, count: int) -> list[tuple[str, Any]]:
    """Returns fields of a type that is defined in the first of them and named in the others."""
    return [(f"f{number}", definition if number == 0 else definition["name"]) for number in range(count)]


def _nested(levels: int) -> Any:
    """Returns records that hold one another, `levels` of them, and a boolean in the innermost."""
    inner: Any = "boolean"
    for level in range(levels):
        inner = _record(f"R{level}", ("x", inner))
    return inner


def _elements(count: int) -> bytes:
    """Returns a list of elements of which each is one byte."""
    return varint(count) + b"\1" * count + b"\0"


_ENUM: Final = {"type": "enum", "name": "E", "symbols": [f"S{number}" for number in range(2_000)]}
_DEFAULT: Final = {**_record("D"), "fields": [{"name": "d", "type": "bytes", "default": LONG}]}
_BRANCHES: Final = [{"type": "fixed", "name": f"F{number}", "size": 1} for number in range(2_000)]
_WIDE: Final = _record("W", *((f"w{number}", "int") for number in range(500)))

AVRO: Final = {
    "a namespace of many types": (
        _record("R", *((f"f{number}", _record(f"T{number}", ("a", "int"))) for number in range(5_000)),
                namespace="n" * 200_000), b"\0" * 5_000),
    "an enum that is used often": (_record("R", *_uses(_ENUM, 5_000)), b"\0" * 5_000),
    "a default that is used often": (_record("R", *_uses(_DEFAULT, 5_000)), b"\0" * 5_000),
    "a default of many structs": (
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": _WIDE},
                                                    "default": [{}] * 50_000}]}, b"\0"),
    "a union of many types in a list": (
        {"type": "array", "items": _BRANCHES}, varint(50_000) + b"\0\0" * 50_000 + b"\0"),
    "a symbol of many elements": (
        {"type": "array", "items": {"type": "enum", "name": "E", "symbols": ["S" * 200_000]}},
        varint(50_000) + b"\0" * 50_001),
    "a name of many elements": (
        {"type": "array", "items": _record("R", ("a" * 200_000, "int"))}, varint(50_000) + b"\0" * 50_001),
    "fifty records around a boolean": ({"type": "array", "items": _nested(50)}, _elements(50_000)),
    "a map of fifty records around a boolean": (
        {"type": "map", "values": _nested(50)},
        varint(50_000) + b"".join(b"\n%05d\1" % number for number in range(50_000)) + b"\0"),
    "fifteen empty records next to a boolean": (
        {"type": "array", "items": _record("R", ("b", "boolean"), *_uses(_record("E"), 15))}, _elements(300_000)),
    "a field of fifty records around a boolean": (
        _record("R", ("a", {"type": "array", "items": ["null", _nested(50)]})),
        varint(50_000) + b"\2\1" * 50_000 + b"\0"),
}  # fmt: skip
"""By what is repeated: a schema, and data of it."""


def _refer(definition: Any, count: int) -> dict[str, Any]:
    properties = {f"f{number}": {"$ref": "#/definitions/a"} for number in range(count)}
    return {"type": "object", "definitions": {"a": definition}, "properties": properties}


JSON: Final = {
    "an enum that is used often": (_refer({"enum": [f"s{number}" for number in range(2_000)]}, 5_000), b"{}"),
    "parameters that are used often": (
        _refer({"type": "string", "connect.parameters": {f"p{number}": number for number in range(2_000)}}, 5_000),
        b"{}"),
    "required names of many parts": (
        {"allOf": [{"$ref": "#/definitions/a"}] * 5_000,
         "definitions": {"a": {"type": "object", "required": [f"r{number}" for number in range(20_000)]}}}, b"{}"),
    "a list of types": (
        {"type": ["string"] * 5_000, **{f"x{number}": 1 for number in range(5_000)}}, b'""'),
    "a name of many elements": (
        {"type": "array", "items": {"type": "object", "properties": {LONG: {"type": "string"}}}},
        b"[" + b",".join([b"{}"] * 3_000) + b"]"),
}  # fmt: skip


def _file(**more: Any) -> descriptor_pb2.FileDescriptorProto:
    return descriptor_pb2.FileDescriptorProto(name="main.proto", syntax="proto3", **more)


def _package() -> str:
    messages = [descriptor_pb2.DescriptorProto(name=f"M{number}") for number in range(10_000)]
    return base64.b64encode(_file(package="p" * 100_000, message_type=messages).SerializeToString()).decode()


def _oneof() -> str:
    members = "".join(f"int32 f{number} = {number};" for number in range(1, 3_000))
    return f'syntax = "proto3"; message A {{ repeated B b = 1; }} message B {{ oneof o {{ {members} }} }}'


PROTOBUF: Final = {
    "a package of many messages": (_package(), b"\0"),
    "a package of a text": (
        f'syntax = "proto3"; package {"p" * 100_000}; ' + "".join(f"message M{n} {{}}" for n in range(5_000)), b"\0"),
    "an enum that is used often": (
        'syntax = "proto3"; message A { ' + "".join(f"E f{n} = {n};" for n in range(1, 5_000)) + "} enum E { "
        + "".join(f"S{n} = {n};" for n in range(2_000)) + "}", b"\0"),
    "a number that an enum has not": (
        f'syntax = "proto3"; message A {{ repeated {"E" * 400} a = 1; }} enum {"E" * 400} {{ X = 0; }}',
        b"\0\x0a\xc0\x9a\x0c" + b"\x01" * 200_000),
    "a oneof of many messages": (_oneof(), b"\0" + b"\x0a\x02\x08\x01" * 20_000),
}  # fmt: skip
FURTHER: Final = {
    "a map of fifty records around a boolean",
    "a field of fifty records around a boolean",
    "fifteen empty records next to a boolean",
    "parameters that are used often",
}
"""Left to `make long`, as further cases of "fifty records around a boolean" and "an enum that is used often"."""
CASES: Final = [
    pytest.param(kind, name, *case, id=f"{kind.KIND} {name}", marks=[pytest.mark.long] if name in FURTHER else [])
    for kind, cases in ((AvroConverter, AVRO), (JsonSchemaConverter, JSON), (ProtobufConverter, PROTOBUF))
    for name, case in cases.items()
]


@pytest.mark.parametrize(("kind", "name", "schema", "data"), CASES)
def test_what_a_schema_repeats_is_refused_before_it_is_made(
    kind: type[RegisteredConverter], name: str, schema: Any, data: bytes
) -> None:
    """By the bound that it exceeds, within seconds."""
    began = time.thread_time()
    with little_room(), pytest.raises(DataError, match=r"more than|too many|too long|several types"):
        passed(kind, schema, data)
    assert time.thread_time() - began < MOST_S


@pytest.mark.parametrize(
    ("schema", "data", "members"),
    [
        pytest.param(
            {"type": "array", "items": _nested(1)}, _elements(50_000), 50_000, id="small records"),
        pytest.param(
            {"type": "array", "items": _record("R", *((f"f{number}", ["null", "int"]) for number in range(300)))},
            varint(2_000) + b"\0" * 600_001, 2_000, id="fields that are null", marks=pytest.mark.long),
        pytest.param(
            {"type": "map", "values": _nested(5)},
            varint(10_000) + b"".join(b"\x08%04d\1" % number for number in range(10_000)) + b"\0", 10_000,
            id="a map of records", marks=pytest.mark.long),
        pytest.param(
            {"type": "array", "items": ["null", _nested(50)]}, varint(60_000) + b"\0" * 60_001, 60_000,
            id="records that are null"),
    ],
)  # fmt: skip
def test_what_takes_no_more_than_its_bytes_may_is_read(schema: Any, data: bytes, members: int) -> None:
    """A list of as many bytes passes if they do not stand for many objects each."""
    with little_room():
        assert len(passed(AvroConverter, schema, data)) == members


def test_parts_of_all_of_are_merged_in_a_time_that_grows_with_their_members() -> None:
    """1,000 parts of 25 properties of their own each are too many types, which is said within seconds."""
    parts = [{"properties": {f"p{part}_{n}": {"type": "string"} for n in range(25)}} for part in range(1_000)]
    began = time.thread_time()
    with pytest.raises(DataError, match="more than"):
        passed(JsonSchemaConverter, {"type": "object", "allOf": parts}, b"{}")
    assert time.thread_time() - began < MOST_S
