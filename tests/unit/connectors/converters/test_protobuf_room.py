"""What the messages of a record take is counted before they are parsed, whichever way they come."""

from __future__ import annotations

import base64
import time
from contextlib import suppress
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Final

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from connectors.errors import DataError
from tests.support.fuzz.hostile import varint
from tests.support.memory.schema_registry import MemoryRegistry
from tests.unit.connectors.converters.test_protobuf import add, converter, framed

FIELDS: Final = 8_000
MANY: Final = 30_000
ROOM: Final = 280 << 20
"""Bytes by which a record of 60 kB may raise the memory of this process; parsed at once each takes 2 GB."""
PROTO3: Final = 'syntax = "proto3"; '
PROTO2: Final = 'syntax = "proto2"; '
WIDE: Final = "message M { " + " ".join(f"int64 f{at} = {at};" for at in range(1, FIELDS)) + " } "
WIDE2: Final = WIDE.replace("int64", "optional int64")
GROUPS: Final = WIDE2.replace("message M", "message R { repeated group M = 1") + "}"


def sized(tag: bytes, data: bytes) -> bytes:
    """Returns a field of an even number of bytes: `varint` writes numbers of Avro, which are twice as large."""
    assert len(data) % 2 == 0
    return tag + varint(len(data) // 2) + data


EMPTY: Final = b"\x0a\0" * MANY
CASES: Final = {
    "in a list": (PROTO3 + "message R { repeated M m = 1; } " + WIDE, EMPTY),
    "in a map": (PROTO3 + "message R { map<string, M> m = 1; } " + WIDE, EMPTY),
    "in a list in a message": (
        PROTO3 + "message R { N n = 1; } message N { repeated M m = 1; } " + WIDE, sized(b"\x0a", EMPTY)),
    "in a value of a map": (
        PROTO3 + "message R { map<string, N> n = 1; } message N { repeated M m = 1; } " + WIDE,
        sized(b"\x0a", sized(b"\x12", EMPTY))),
    "as groups": (GROUPS, b"\x0b\x0c" * MANY),
    "by turns in a oneof": (
        PROTO3 + "message R { oneof o { M m = 1; N n = 2; } } message N {} " + WIDE, b"\x0a\0\x12\0" * MANY),
    "with a long tag": (PROTO3 + "message R { repeated M m = 1; } " + WIDE, b"\x8a\x80\0\0" * MANY),
    "after a group that the schema has not": (
        PROTO3 + "message R { repeated M m = 1; } " + WIDE, b"\x13\x0a\0\x14" + EMPTY),
}  # fmt: skip
"""By how they come, messages without a byte: a schema, and data of it."""


@pytest.mark.parametrize("case", CASES)
def test_messages_are_counted_before_they_are_parsed(case: str) -> None:
    """Two bytes of each take 64,000 once they are parsed."""
    text, data = CASES[case]
    memory = MemoryRegistry()
    made, number = converter(memory), add(memory, text)
    made.to_connect_data("t", [], framed(number, b""))
    before, began = getrusage(RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(DataError, match="would take more than"):
        made.to_connect_data("t", [], framed(number, data))
    assert getrusage(RUSAGE_SELF).ru_maxrss - before < ROOM >> 10
    assert time.process_time() - began < 2


def test_extensions_are_not_parsed() -> None:
    """No schema of Connect's has them, and each would take the room of its message."""
    memory = MemoryRegistry()
    head = "message R { optional int32 a = 1; extensions 100 to 200; } extend R { repeated M m = 100; } "
    made, number = converter(memory), add(memory, PROTO2 + head + WIDE2)
    before = getrusage(RUSAGE_SELF).ru_maxrss
    _, value = made.to_connect_data("t", [], framed(number, b"\x08\x05" + b"\xa2\x06\0" * MANY))
    assert value == {"a": 5}
    assert getrusage(RUSAGE_SELF).ru_maxrss - before < ROOM >> 10


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05", b"\x0b" * 300, b"\x0c", b"\x0f", b"\x0a\x01\xff", b"\xff" * 20])
def test_data_that_is_no_message_is_an_error(data: bytes) -> None:
    """Also after so much data that it is counted first."""
    memory = MemoryRegistry()
    made, number = converter(memory), add(memory, PROTO3 + "message R { repeated M m = 1; bytes b = 2; } " + WIDE)
    filling = b"\x12\x80\x80\x01" + bytes(1 << 14)
    with pytest.raises(DataError, match="is no Protobuf"):
        made.to_connect_data("t", [], framed(number, filling + data))


def test_messages_with_as_much_in_them_as_they_take_are_read() -> None:
    """A record of 700 kB is counted through, and is no larger than it may be."""
    memory = MemoryRegistry()
    text = PROTO3 + "message R { repeated M m = 1; } message M { string a = 1; int64 b = 2; map<string, M2> c = 3; } "
    made, number = converter(memory), add(memory, text + "message M2 { repeated int64 d = 1; }")
    item = b"\x0a\x12" + b"\x0a\x02xy" + b"\x10\x05" + b"\x1a\x0a\x0a\x01k\x12\x05\x0a\x03\x01\x02\x03"
    _, value = made.to_connect_data("t", [], framed(number, item * 35_000))
    assert value["m"][-1] == {"a": "xy", "b": 5, "c": {"k": {"d": [1, 2, 3]}}}


def _in_base64(*imports: str) -> str:
    file = FileDescriptorProto(name="main.proto", syntax="proto3", dependency=imports)
    file.message_type.add(name="R").field.add(name="a", number=1, type=5, label=1)
    return base64.b64encode(file.SerializeToString()).decode()


def test_what_a_descriptor_imports_is_compiled_at_once() -> None:
    """Eight files that import one another have 36 edges: each would cost a process of protoc."""
    memory = MemoryRegistry()
    references = []
    for number in range(8):
        imports = "".join(f'import "f{other}";' for other in range(number))
        add(memory, f"{PROTO3}{imports} message F{number} {{}}", f"s{number}")
        references.append({"name": f"f{number}", "subject": f"s{number}", "version": 1})
    alone = add(memory, _in_base64("f0"), references=references[:1])
    many = add(memory, _in_base64(*(f"f{at}" for at in range(8))), references=references)
    costs = []
    for number in (alone, many):
        before = getrusage(RUSAGE_CHILDREN)
        assert converter(memory).to_connect_data("t", [], framed(number, b"\x08\x05"))[1] == {"a": 5}
        after = getrusage(RUSAGE_CHILDREN)
        costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert costs[1] < 4 * costs[0]


def test_an_import_that_is_named_often_is_compiled_once() -> None:
    """A descriptor of 1 kB may name one file thirty times, and one of 100 kB too many for a registry."""
    memory = MemoryRegistry()
    began = time.monotonic()
    with suppress(DataError):
        text = _in_base64(*["google/protobuf/any.proto"] * 300)
        converter(memory).to_connect_data("t", [], framed(add(memory, text), b""))
    before = getrusage(RUSAGE_CHILDREN).ru_utime
    with pytest.raises(DataError, match="imports more than"):
        converter(memory).to_connect_data("t", [], framed(add(memory, _in_base64(*map(str, range(9_000)))), b""))
    assert getrusage(RUSAGE_CHILDREN).ru_utime == before
    assert time.monotonic() - began < 30
