"""Whatever converter reads or writes a large record, it can be given up in its midst."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any, Final

import pytest

from connectors.converters.avro.converter import AvroConverter
from connectors.converters.avro.skips import skip_of
from connectors.converters.avro.stream import LARGE
from connectors.converters.converter import Converter
from connectors.converters.json.converter import JsonConverter
from connectors.converters.protobuf.converter import ProtobufConverter
from connectors.converters.registered import RegisteredConverter
from connectors.data.pace import EVERY, limited
from connectors.errors import PortionLateError
from connectors.options import read
from connectors.registry.schema_registry import SchemaRegistry
from connectors.registry.settings import registry_settings
from tests.support.clocks import ManualClock
from tests.support.memory.schema_registry import MemoryRegistry

TIMES: Final = 6
"""How often the limit is asked at least, by as many times EVERY members."""
COUNT: Final = (TIMES + 2) * EVERY
READS: Final = LARGE // 2
"""Elements of two bytes of a large record of Avro."""


def with_registry(kind: type[RegisteredConverter], schema: str, **sort: str) -> tuple[Converter, bytes]:
    """Returns a converter, and what data of `schema` begins with."""
    memory = MemoryRegistry()
    made = kind(read(kind.OPTIONS, {"schema.registry.url": "http://a:1"}), is_key=False)
    made.registry = SchemaRegistry(registry_settings(made.options), transport=memory, clock=ManualClock())
    return made, struct.pack(">bI", 0, memory.add(schema, **sort))


def avro(kind: Any, element: bytes, count: int = READS) -> tuple[Converter, bytes]:
    """Returns a list of `count` elements of a type in Avro."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}
    made, head = with_registry(AvroConverter, json.dumps(schema))
    return made, head + varint(2 * count) + element * count + b"\0"


def protobuf(text: str, data: bytes) -> tuple[Converter, bytes]:
    """Returns a message of Protobuf."""
    made, head = with_registry(ProtobufConverter, f'syntax = "proto3"; {text}', schemaType="PROTOBUF")
    return made, head + b"\0" + data


def varint(number: int) -> bytes:
    """Returns a number without its sign."""
    made = b""
    while number > 0x7F:
        made, number = made + bytes([number & 0x7F | 0x80]), number >> 7
    return made + bytes([number])


def without_schema(data: bytes) -> tuple[Converter, bytes]:
    return JsonConverter(read(JsonConverter.OPTIONS, {"schemas.enable": "false"}), is_key=False), data


def entries(value: bytes) -> bytes:
    """Returns a map of COUNT entries in Protobuf, each with the bytes of a value."""
    keys = (b"%06d" % number for number in range(COUNT))
    parts = (b"\x0a\x06" + key + b"\x12" + bytes([len(value)]) + value for key in keys)
    return b"".join(b"\x0a" + bytes([len(part)]) + part for part in parts)


ARRAY: Final = {"type": "array", "items": "int"}
NESTED: Final = b"[" * 4 + b"1" + b"]" * 4
READ: Final[dict[str, Callable[[], tuple[Converter, bytes]]]] = {
    "Avro, numbers": lambda: avro(ARRAY, b"\x02", 2 * READS),
    "Avro, lists": lambda: avro({"type": "array", "items": ARRAY}, b"\x02\x02\x00"),
    "Avro, one of two": lambda: avro({"type": "array", "items": ["null", "int"]}, b"\x02\x02"),
    "Avro, one of three": lambda: avro({"type": "array", "items": ["null", "int", "string"]}, b"\x02\x02", COUNT),
    "Avro, a map": lambda: avro({"type": "map", "values": "int"}, b"\x02a\x02"),
    "Protobuf, numbers": lambda: protobuf("message M { repeated int32 a = 1; }", b"\x08\x01" * COUNT),
    "Protobuf, messages": lambda: protobuf(
        "message M { repeated E a = 1; } message E { int32 a = 1; }", b"\x0a\x02\x08\x01" * (COUNT // 2)
    ),
    "Protobuf, a map": lambda: protobuf("message M { map<string, string> a = 1; }", entries(b"v")),
    "JSON, small lists": lambda: without_schema(b"[" + b"[1,2]," * (COUNT // 3) + b"1]"),
    "JSON, small lists in small lists": lambda: without_schema(
        b"[" + b",".join([b"[" + b",".join([NESTED] * 10) + b"]"] * (COUNT // 40)) + b"]"
    ),
    "JSON, small objects": lambda: without_schema(b"[" + b'{"a":1},' * (COUNT // 2) + b"1]"),
}
WRITTEN: Final = [name for name in READ if not name.startswith("Avro")]
"""fastavro writes a record in one call."""


def asked(work: Callable[[], object]) -> int:
    """Returns how often the limit is asked during `work`."""
    times = 0

    def check() -> None:
        nonlocal times
        times += 1

    with limited(check):
        work()
    return times


def late() -> None:
    raise PortionLateError("It takes too long.", "")


@pytest.mark.parametrize("case", READ)
def test_reading_is_given_up(case: str) -> None:
    """The limit is asked by the members, and what it raises is no fault of the record."""
    converter, data = READ[case]()
    assert asked(lambda: converter.to_connect_data("t", [], data)) >= TIMES
    with limited(late), pytest.raises(PortionLateError):
        converter.to_connect_data("t", [], data)


@pytest.mark.parametrize("case", WRITTEN)
def test_writing_is_given_up(case: str) -> None:
    """As reading is."""
    converter, data = READ[case]()
    schema, value = converter.to_connect_data("t", [], data)
    assert asked(lambda: converter.from_connect_data("t", [], schema, value)) >= TIMES
    with limited(late), pytest.raises(PortionLateError):
        converter.from_connect_data("t", [], schema, value)


def test_counting_the_room_of_a_record_is_given_up() -> None:
    """Messages of two bytes each may take much memory, so they are counted before they are parsed."""
    many = " ".join(f"int32 f{number} = {number};" for number in range(1, 60))
    text = f"message M {{ repeated E a = 1; }} message E {{ {many} }}"
    converter, data = protobuf(text, b"\x0a\0" * LARGE)
    with limited(late), pytest.raises(PortionLateError):
        converter.to_connect_data("t", [], data)


def test_what_is_passed_over_is_given_up() -> None:
    """Lists of Avro that no step looks at."""
    data = varint(2 * COUNT) + b"\x02" * COUNT + b"\0"
    assert asked(lambda: skip_of(ARRAY)(data, 0)) >= TIMES
