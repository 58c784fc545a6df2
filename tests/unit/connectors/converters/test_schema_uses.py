"""What a definition says once is bounded by its uses, whichever part of a schema says it: in time and in memory."""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from resource import RUSAGE_SELF, getrusage
from typing import Any, Final

import pytest
from google.protobuf import descriptor_pb2

from connectors.converters.avro.converter import AvroConverter
from connectors.converters.json.schema_converter import JsonSchemaConverter
from connectors.converters.protobuf.converter import ProtobufConverter
from connectors.converters.registered import RegisteredConverter
from connectors.errors import DataError
from connectors.options import read
from connectors.registry.schema_registry import SchemaRegistry
from connectors.registry.settings import registry_settings
from tests.support.clocks import ManualClock
from tests.support.memory.schema_registry import MemoryRegistry

USES: Final = 1_000
"""Fields that use one definition; a few of these are within the bounds."""
SIZE: Final = 200_000
"""Characters of the part that is tried, about."""
MOST_S: Final = 6.0
"""Seconds of CPU for one case: the bounds allow one, on a machine that does nothing else."""
ROOM: Final = 300 << 20
"""Bytes by which a case may raise the memory of this process; without bounds some take gigabytes."""
LONG: Final = "n" * SIZE
WORDS: Final = [f"w{number}" for number in range(SIZE // 8)]
TABLE: Final = dict.fromkeys(WORDS, "")
NUMBERS: Final = [10**4_000 + number for number in range(SIZE // 4_000)]
PARTS: Final = {"a text": LONG, "an object": TABLE, "long numbers": NUMBERS, "a list in lists": [[[WORDS]]]}
"""Whatever JSON may have in place of what is expected."""


def bounded(kind: type[RegisteredConverter], schema: Any, data: bytes) -> None:
    """Reads and writes a value in bounded time and memory; whether its schema is refused does not matter."""
    memory = MemoryRegistry()
    converter = kind(read(kind.OPTIONS, {"schema.registry.url": "http://a:1"}), is_key=False)
    converter.registry = SchemaRegistry(registry_settings(converter.options), transport=memory, clock=ManualClock())
    converter.ask_only(lambda schema: frozenset({"u", "f1"}))
    message = struct.pack(">bI", 0, memory.add(schema, schemaType=kind.KIND)) + data
    began, before = time.process_time(), getrusage(RUSAGE_SELF).ru_maxrss
    with suppress(DataError):
        value_schema, value = converter.to_connect_data("t", [], message)
        converter.from_connect_data("t", [], value_schema, value)
    took, grown = time.process_time() - began, (getrusage(RUSAGE_SELF).ru_maxrss - before) << 10
    assert took < MOST_S
    assert grown < ROOM, f"{grown >> 20} MiB"


def _record(name: str, *fields: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def _field(name: str, avro: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": avro, **more}


def _enum(symbols: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": symbols}


INT: Final = _field("a", "int")
AVRO: Final[dict[str, Callable[[Any], dict[str, Any]]]] = {
    "namespace": lambda part: _record("D", INT, namespace=part),
    "doc": lambda part: _record("D", INT, doc=part),
    "aliases": lambda part: _record("D", INT, aliases=part),
    "any property": lambda part: _record("D", INT, any=part),
    "connect.name": lambda part: _record("D", INT, **{"connect.name": part}),
    "connect.doc": lambda part: _record("D", INT, **{"connect.doc": part}),
    "connect.version": lambda part: _record("D", INT, **{"connect.version": part}),
    "connect.type": lambda part: _record("D", INT, **{"connect.type": part}),
    "connect.parameters": lambda part: _record("D", INT, **{"connect.parameters": part}),
    "a parameter": lambda part: _record("D", INT, **{"connect.parameters": {"p": part}}),
    "connect.default": lambda part: _record("D", INT, **{"connect.default": part}),
    "default of a field": lambda part: _record("D", _field("a", "string", default=part)),
    "default of a list": lambda part: _record("D", _field("a", {"type": "array", "items": "string"}, default=part)),
    "doc of a field": lambda part: _record("D", _field("a", "int", doc=part)),
    "aliases of a field": lambda part: _record("D", _field("a", "int", aliases=part)),
    "any property of a field": lambda part: _record("D", _field("a", "int", any=part)),
    "name of a field": lambda part: _record("D", _field(part, "int")),
    "type of a field": lambda part: _record("D", _field("a", part)),
    "a branch": lambda part: _record("D", _field("a", ["null", part])),
    "items": lambda part: _record("D", _field("a", {"type": "array", "items": part})),
    "values": lambda part: _record("D", _field("a", {"type": "map", "values": part})),
    "symbols": lambda part: _record("D", _field("a", _enum(part))),
    "a symbol": lambda part: _record("D", _field("a", _enum([part]))),
    "default of an enum": lambda part: _record("D", _field("a", {**_enum(["A"]), "default": part})),
    "size": lambda part: _record("D", _field("a", {"type": "fixed", "name": "F", "size": part})),
    "logical type": lambda part: _record("D", _field("a", {"type": "bytes", "logicalType": part})),
    "scale": lambda part: _record("D", _field("a", {"type": "bytes", "logicalType": "decimal", "scale": part})),
    "precision": lambda part: _record("D", _field("a", {"type": "bytes", "logicalType": "decimal", "precision": part})),
}
"""By its name, a part of Avro's schemas: the definition in which it is what is given."""


def _avro(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a record of a nullable record, which a partial reader keeps, with USES of the definition."""
    name = definition["name"]
    uses = [_field(f"f{number}", name) for number in range(1, USES)]
    return _record("R", _field("u", ["null", _record("U", _field("f0", definition), *uses)]), _field("f1", "int"))


JSON: Final[dict[str, Callable[[Any], Any]]] = {
    **{
        f"{name} of a {kind}": lambda part, kind=kind, name=name: {"type": kind, name: part}  # type: ignore[misc]
        for kind in ("string", "object")
        for name in (
            "title", "description", "enum", "const", "required", "properties", "any", "default", "connect.type",
            "connect.index", "connect.version", "connect.parameters", "definitions",
        )
    },
    "enum without a type": lambda part: {"enum": part},
    "a value of an enum": lambda part: {"enum": [part, part]},
    "const without a type": lambda part: {"const": part},
    "type": lambda part: {"type": part},
    "a parameter": lambda part: {"type": "string", "connect.parameters": {"p": part}},
    "oneOf": lambda part: {"oneOf": part},
    "allOf": lambda part: {"allOf": part},
    "required of a part": lambda part: {"allOf": [{"type": "object", "required": part}]},
    "reference": lambda part: {"$ref": part},
    "name of a property": lambda part: {"type": "object", "properties": {str(part): {"type": "string"}}},
    "items": lambda part: {"type": "array", "items": part},
    "items of a map": lambda part: {"type": "array", "connect.type": "map", "items": {"properties": part}},
    "additional properties": lambda part: {"type": "object", "additionalProperties": part},
}  # fmt: skip
"""By its name, a part of JSON Schemas: the definition in which it is what is given."""


def _json(definition: Any) -> dict[str, Any]:
    properties = {f"p{number}": {"$ref": "#/definitions/D"} for number in range(USES)}
    return {"type": "object", "definitions": {"D": definition}, "properties": properties}


def _long_unless(is_tried: bool) -> list[pytest.MarkDecorator]:
    return [] if is_tried else [pytest.mark.long]


MANY: Final = 50_000
NAMES: Final = [f"n{number:x}" for number in range(100_000)]
COUNTED: Final[dict[str, tuple[type[RegisteredConverter], Any]]] = {
    "symbols": (AvroConverter, _record("D", _field("a", _enum(NAMES)))),
    "required names": (JsonSchemaConverter, {"type": "object", "required": NAMES}),
    "values of an enum": (JsonSchemaConverter, {"type": "string", "enum": NAMES}),
    "values without a type": (JsonSchemaConverter, {"enum": [1] * len(NAMES)}),
    "branches that are null": (AvroConverter, _record("D", _field("a", [*["null"] * MANY, "int"]))),
    "types that are null": (JsonSchemaConverter, {"type": [*["null"] * MANY, "string"]}),
    "names beside a list of types": (JsonSchemaConverter, {**dict.fromkeys(WORDS, 0), "type": ["string", "null"]}),
    "branches of oneOf": (JsonSchemaConverter, {"oneOf": [*[{"type": "null"}] * MANY, {"type": "string"}]}),
    "branches of anyOf": (JsonSchemaConverter, {"anyOf": [{"type": "string"}, *[{"type": "null"}] * MANY]}),
    "parts that say nothing": (JsonSchemaConverter, {"allOf": [*[{}] * MANY, {"type": "string"}]}),
    "parts within parts": (JsonSchemaConverter, {"allOf": [{"allOf": [{}] * (MANY // 10)}] * 10, "type": "string"}),
}
"""By its name, a list of many members, most of which say nothing: the definition that has it."""
MAKES: Final[dict[type[RegisteredConverter], Callable[[Any], Any]]] = {AvroConverter: _avro, JsonSchemaConverter: _json}
FAMILY: Final = [
    *(pytest.param(kind, definition, id=name) for name, (kind, definition) in COUNTED.items()),
    *(
        pytest.param(kind, of(part), id=f"{kind.KIND} {name}: {said}", marks=_long_unless(number % len(PARTS) == turn))
        for kind, cases in ((AvroConverter, AVRO), (JsonSchemaConverter, JSON))
        for number, (name, of) in enumerate(cases.items())
        for turn, (said, part) in enumerate(PARTS.items())
    ),
]
"""Each part of a schema is tried with one of PARTS in turn; with the three others, which takes 40 s, by `make long`."""


@pytest.mark.parametrize(("kind", "definition"), FAMILY)
def test_each_part_of_a_definition_is_bounded_by_its_uses(kind: type[RegisteredConverter], definition: Any) -> None:
    """Whatever stands there: a text, an object, a list, numbers of thousands of digits."""
    bounded(kind, MAKES[kind](definition), b"\2" + b"\0" * 2 * USES if kind is AvroConverter else b"{}")


Field = descriptor_pb2.FieldDescriptorProto
Message = descriptor_pb2.DescriptorProto
Oneof = descriptor_pb2.OneofDescriptorProto


def _int(name: str, number: int, **more: Any) -> Field:
    return Field(name=name, number=number, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL, **more)


def _values(count: int, length: int = 1, step: int = 1) -> list[descriptor_pb2.EnumValueDescriptorProto]:
    names = (f"V{number}" + "v" * length for number in range(count))
    return [descriptor_pb2.EnumValueDescriptorProto(name=name, number=step * at) for at, name in enumerate(names)]


def _enum_of(**more: Any) -> descriptor_pb2.EnumDescriptorProto:
    return descriptor_pb2.EnumDescriptorProto(name="E", **more)


def _using(enum: descriptor_pb2.EnumDescriptorProto) -> Message:
    field = Field(name="e", number=1, type=Field.TYPE_ENUM, label=Field.LABEL_OPTIONAL, type_name=".p.M.E")
    return Message(name="M", enum_type=[enum], field=[field])


def _nested(levels: int) -> Message:
    """Returns messages within each other, with a large enum in the innermost."""
    inner = Message(name="M", enum_type=[_enum_of(value=_values(20_000))], field=[_int("a", 1)])
    for level in range(levels):
        field = Field(name="m", number=1, type=Field.TYPE_MESSAGE, label=Field.LABEL_OPTIONAL)
        field.type_name = ".p." + ".".join(["M"] * (levels - level + 1))
        inner = Message(name="M", nested_type=[inner], field=[field])
    return inner


def _oneof() -> Message:
    return Message(name="M", oneof_decl=[Oneof(name="o" * SIZE)], field=[_int("a", 1, oneof_index=0)])


ALIASED: Final = descriptor_pb2.EnumOptions(allow_alias=True)
PROTOBUF: Final[dict[str, Callable[[], Message]]] = {
    "name of a field": lambda: Message(name="M", field=[_int(LONG, 1)]),
    "JSON name of a field": lambda: Message(name="M", field=[_int("a", 1, json_name=LONG)]),
    "default of a field": lambda: Message(name="M", field=[
        Field(name="a", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL, default_value=LONG)]),
    "name of an enum": lambda: _using(_enum_of(value=_values(1, SIZE))),
    "values": lambda: _using(_enum_of(value=_values(40_000))),
    "values of one number": lambda: _using(_enum_of(value=_values(40_000, step=0), options=ALIASED)),
    "an enum that no field uses": lambda: Message(
        name="M", enum_type=[_enum_of(value=_values(40_000))], field=[_int("a", 1)]),
    "an enum within many messages": lambda: _nested(30),
    "name of a oneof": _oneof,
    "reserved numbers": lambda: Message(name="M", field=[_int("a", 1)], reserved_range=[
        Message.ReservedRange(start=2 * at + 2, end=2 * at + 3) for at in range(50_000)]),
    "reserved names": lambda: Message(name="M", field=[_int("a", 1)], reserved_name=WORDS),
    "numbers of extensions": lambda: Message(name="M", field=[_int("a", 1)], extension_range=[
        Message.ExtensionRange(start=2 * at + 2, end=2 * at + 3) for at in range(50_000)]),
    "fields": lambda: Message(name="M", field=[_int(f"f{at}", at) for at in range(1, 10_000)]),
    "fields that are optional": lambda: Message(
        name="M", oneof_decl=[Oneof(name=f"_f{at}") for at in range(1, 5_000)],
        field=[_int(f"f{at}", at, oneof_index=at - 1, proto3_optional=True) for at in range(1, 5_000)]),
}  # fmt: skip
"""By its name, a part of Protobuf's schemas: a message in which it is large."""


def _file(message: Message, package: str = "p", **more: Any) -> str:
    """Returns a schema with USES of `message`, in base64, as its text would take protoc seconds."""
    uses = [
        Field(name=f"u{at}", number=at, type=Field.TYPE_MESSAGE, label=Field.LABEL_OPTIONAL, type_name=f".{package}.M")
        for at in range(1, USES)
    ]
    file = descriptor_pb2.FileDescriptorProto(name="main.proto", package=package, **{"syntax": "proto3", **more})
    file.message_type.extend([Message(name="R", field=uses), message])
    return base64.b64encode(file.SerializeToString()).decode()


@pytest.mark.parametrize("part", PROTOBUF)
def test_each_part_of_a_descriptor_is_bounded_by_its_uses(part: str) -> None:
    """Its names, values and fields, and what stands in it and is not used."""
    syntax = "proto2" if part in {"default of a field", "numbers of extensions"} else "proto3"
    bounded(ProtobufConverter, _file(PROTOBUF[part](), syntax=syntax), b"\0")


def test_the_full_name_of_a_message_is_bounded_by_its_uses() -> None:
    """It stands in the package, once."""
    file = descriptor_pb2.FileDescriptorProto(name="main.proto", package="p" * SIZE, syntax="proto3")
    file.message_type.add(name="R", field=[Field(name="m", number=1, **_of("M11"))])
    for level in range(12):
        name = f"M{level - 1}" if level else "M"
        file.message_type.add(name=f"M{level}", field=[Field(name=f"m{at}", number=at, **_of(name)) for at in (1, 2)])
    file.message_type.append(Message(name="M", field=[_int("a", 1)]))
    bounded(ProtobufConverter, base64.b64encode(file.SerializeToString()).decode(), b"\0")


def _of(name: str) -> dict[str, Any]:
    return {"type": Field.TYPE_MESSAGE, "label": Field.LABEL_OPTIONAL, "type_name": name}
