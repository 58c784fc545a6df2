"""Protobuf is read with the schema that it was written with, and written with one of the registry's."""

from __future__ import annotations

import base64
import random
import struct
import time
from contextlib import suppress
from typing import Any

import httpx
import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.converters.protobuf.converter import ProtobufConverter
from connectors.converters.protobuf.files import compiled
from connectors.converters.protobuf.text import ToProtobuf, numbers_of
from connectors.converters.protobuf.types import ENUM, ONEOF, TAG, TYPE
from connectors.data.bounds import DEEPEST_SCHEMA, MOST_ABSENT, MOST_TYPES
from connectors.data.record import Header
from connectors.data.schema import (
    BOOLEAN,
    DATE,
    DECIMAL,
    FLOAT64,
    INT32,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    Field,
    Schema,
    Type,
)
from connectors.errors import DataError, RegistryError
from connectors.options import read
from connectors.registry.schema_registry import SchemaRegistry
from connectors.registry.settings import registry_settings
from tests.support.clocks import ManualClock
from tests.support.memory.schema_registry import MemoryRegistry

ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto";
import "google/type/timeofday.proto";

message Order {
  int64 id = 1;
  string name = 2;
  uint64 large = 3;
  sint32 small = 4;
  optional string note = 5;
  Line first = 6;
  repeated Line lines = 7;
  map<string, int32> counts = 8;
  oneof paid {
    string card = 9;
    int64 cash = 10;
  }
  State state = 11;
  google.protobuf.Timestamp at = 12;
  google.protobuf.Int32Value rating = 13;
  google.type.Date day = 14;
  google.type.TimeOfDay time = 15;
  bytes raw = 16;
  double weight = 17;
  enum State { NEW = 0; PAID = 1; }
  message Line { string sku = 1; }
}

message Second {
  string other = 1;
  message Inner { int32 n = 1; map<string, string> m = 2; message Deep { bool x = 1; } }
}
"""
VALUE: dict[str, Any] = {
    "paid_0": {"card": None, "cash": 5}, "id": 7, "name": "ä", "large": -1, "small": -3, "note": "",
    "first": {"sku": "a"}, "lines": [{"sku": "b"}, {"sku": ""}], "counts": {"x": 1}, "state": "PAID",
    "at": 1_700_000_000_123, "rating": 4, "day": 20_000, "time": 3_723_004, "raw": b"\xff", "weight": 0.5,
}  # fmt: skip


@pytest.fixture
def memory() -> MemoryRegistry:
    return MemoryRegistry()


def converter(memory: MemoryRegistry, **texts: str) -> ProtobufConverter:
    """Returns a converter that asks `memory`."""
    given_texts = {"schema.registry.url": "http://a:1", **{name.replace("_", "."): one for name, one in texts.items()}}
    options = read(ProtobufConverter.OPTIONS, given_texts)
    made = ProtobufConverter(options, is_key=False)
    made.registry = SchemaRegistry(registry_settings(options), transport=memory, clock=ManualClock())
    return made


def add(memory: MemoryRegistry, text: str = ORDER, subject: str = "s", **more: Any) -> int:
    return memory.add(text, subject, schemaType="PROTOBUF", **more)


def message(text: str, *path: int, **fields: Any) -> Any:
    return GetMessageClass(compiled(text, {}).message(path or (0,)))(**fields)


def framed(number: int, data: bytes, path: bytes = b"\x00") -> bytes:
    return struct.pack(">bI", 0, number) + path + data


def order() -> Any:
    """Returns a message of what VALUE is."""
    found = message(ORDER, id=7, name="ä", large=(1 << 64) - 1, small=-3, cash=5, state=1, raw=b"\xff", weight=0.5)
    found.first.sku = "a"
    found.lines.add().sku = "b"
    found.lines.add()
    found.counts["x"] = 1
    found.at.seconds, found.at.nanos = 1_700_000_000, 123_456_789
    found.rating.value = 4
    found.day.year, found.day.month, found.day.day = 2024, 10, 4
    found.time.hours, found.time.minutes, found.time.seconds, found.time.nanos = 1, 2, 3, 4_000_000
    return found


def test_each_type_has_its_value(memory: MemoryRegistry) -> None:
    """As Confluent's converter gives them: a oneof is a struct, 64 bits without a sign are Java's long."""
    number = add(memory)
    schema, value = converter(memory).to_connect_data("t", [], framed(number, order().SerializeToString()))
    assert value == VALUE
    assert schema is not None
    assert (schema.type, schema.name) == (Type.STRUCT, "Order")
    parameters = {one.name: dict(one.schema.parameters or {}) for one in schema.fields}
    assert parameters["large"] == {TAG: "3", TYPE: "uint64"}
    assert parameters["state"] == {TAG: "11", ENUM: "State", f"{ENUM}.NEW": "0", f"{ENUM}.PAID": "1"}
    kinds = {one.name: (one.schema.type, one.schema.name, one.schema.optional) for one in schema.fields}
    assert kinds["paid_0"] == (Type.STRUCT, f"{ONEOF}paid", True)
    assert kinds["id"] == (Type.INT64, None, True)
    assert kinds["at"] == (Type.INT64, TIMESTAMP, True)
    assert kinds["day"] == (Type.INT32, DATE, True)
    assert kinds["time"] == (Type.INT32, TIME, True)
    assert kinds["rating"] == (Type.INT32, None, True)
    assert kinds["counts"] == (Type.MAP, None, True)


def test_what_is_not_there_is_a_default_or_null(memory: MemoryRegistry) -> None:
    """A scalar is its type's default, a message null; with optional.for.nullables an `optional` scalar is null too."""
    number = add(memory)
    schema, value = converter(memory).to_connect_data("t", [], framed(number, b""))
    assert (value["id"], value["note"], value["first"], value["paid_0"], value["lines"]) == (0, "", None, None, [])
    schema, value = converter(memory, optional_for_nullables="true").to_connect_data("t", [], framed(number, b""))
    assert (value["id"], value["note"]) == (0, None)
    assert schema is not None
    assert {one.name for one in schema.fields if not one.schema.optional} == {
        "id", "name", "large", "small", "state", "raw", "weight",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "inside", "fields"),
    [
        (b"\x02\x02", (1,), {"other": "x"}),
        (b"\x04\x02\x00", (1, 0), {"n": 3}),
        (b"\x06\x02\x00\x00", (1, 0, 0), {"x": True}),
        (b"\x02\x00", (0,), {"id": 1}),
    ],
)
def test_the_message_is_the_one_that_its_numbers_name(
    memory: MemoryRegistry, path: bytes, inside: tuple[int, ...], fields: dict[str, Any]
) -> None:
    """From the outermost inwards; what protoc makes for a map is none of them."""
    number = add(memory)
    data = message(ORDER, *inside, **fields).SerializeToString()
    _, value = converter(memory).to_connect_data("t", [], framed(number, data, path))
    assert fields.items() <= value.items()


def test_an_unknown_number_of_an_enum_is_said(memory: MemoryRegistry) -> None:
    """As Java names it, and it is written as that number again."""
    number = add(memory)
    data = framed(number, message(ORDER, state=9).SerializeToString())
    made = converter(memory)
    schema, value = made.to_connect_data("t", [], data)
    assert value["state"] == "UNKNOWN_ENUM_VALUE_State_9"
    again = made.from_connect_data("t", [], schema, value)
    assert made.to_connect_data("t", [], again)[1]["state"] == "UNKNOWN_ENUM_VALUE_State_9"


def test_what_was_read_is_written_with_its_numbers_and_types(memory: MemoryRegistry) -> None:
    """A reader of the old schema reads it: the file that is registered has the fields as they were."""
    made = converter(memory)
    schema, value = made.to_connect_data("t", [], framed(add(memory), order().SerializeToString()))
    data = made.from_connect_data("t", [], schema, value)
    assert data is not None
    assert data[5:6] == b"\x00"
    expected = order()
    expected.at.nanos = 123_000_000
    assert data[6:] == expected.SerializeToString(deterministic=True)
    assert made.to_connect_data("t", [], data)[1] == VALUE
    assert memory.schemas[-1]["schemaType"] == "PROTOBUF"
    assert memory.subjects["t-value"] == [2]


def test_the_file_of_a_schema_of_any_source() -> None:
    """Numbers follow the order, names of types are their own inside the message."""
    inner = Schema(type=Type.STRUCT, name="a.Line", fields=(Field("n", INT32),))
    other = Schema(type=Type.STRUCT, name="b.Line", fields=(Field("n", STRING),))
    schema = Schema(
        type=Type.STRUCT,
        name="shop.Order",
        fields=(
            Field("one", inner),
            Field("many", Schema(type=Type.ARRAY, value_schema=other)),
            Field("known", replace_tag(INT64, "7")),
            Field("by", Schema(type=Type.MAP, key_schema=STRING, value_schema=inner)),
            Field("may", BOOLEAN.as_optional()),
            Field("day", Schema(type=Type.INT32, name=DATE)),
        ),
    )
    file = ToProtobuf(nullables=True).file(schema)
    assert file.name == "shop.Order"
    lines = [line.strip() for line in file.text.splitlines() if line.strip()]
    assert lines[:3] == ['syntax = "proto3";', "package shop;", 'import "google/type/date.proto";']
    assert lines[4:10] == [
        "Line one = 8;",
        "repeated Line2 many = 9;",
        "int64 known = 7;",
        "map<string, Line> by = 10;",
        "optional bool may = 11;",
        "google.type.Date day = 12;",
    ]
    compiled(file.text, {})


def replace_tag(schema: Schema, number: str) -> Schema:
    return Schema(type=schema.type, parameters={TAG: number})


def test_a_group_is_a_message(memory: MemoryRegistry) -> None:
    """As proto2 had them."""
    text = 'syntax = "proto2"; message M { optional group G = 1 { optional int32 n = 1; } }'
    _, value = converter(memory).to_connect_data("t", [], framed(add(memory, text), b"\x0b\x08\x05\x0c"))
    assert value == {"g": {"n": 5}}


def test_python_registers_descriptors(memory: MemoryRegistry) -> None:
    """In base64, with what they import as references or known."""
    found = compiled(ORDER, {})
    proto = FileDescriptorProto()
    found.message((0,)).file.CopyToProto(proto)
    number = add(memory, base64.b64encode(proto.SerializeToString()).decode())
    _, value = converter(memory).to_connect_data("t", [], framed(number, order().SerializeToString()))
    assert value == VALUE
    own = FileDescriptorProto(name="own.proto", dependency=["stamps.proto"])
    own.message_type.add(name="M").field.add(name="at", number=1, type=11, type_name=".google.protobuf.Timestamp")
    stamps = base64.b64encode(timestamp_pb2.DESCRIPTOR.serialized_pb).decode()
    add(memory, stamps, "stamps")
    references = [{"name": "stamps.proto", "subject": "stamps", "version": 1}]
    number = add(memory, base64.b64encode(own.SerializeToString()).decode(), references=references)
    _, value = converter(memory).to_connect_data("t", [], framed(number, b"\x0a\x02\x08\x05"))
    assert value == {"at": 5_000}


def test_references_are_compiled_with_the_schema(memory: MemoryRegistry) -> None:
    """Under the names by which they are imported, and theirs too."""
    add(memory, 'syntax = "proto3"; message Deep { int32 n = 1; }', "deep")
    deep = [{"name": "common/deep.proto", "subject": "deep", "version": 1}]
    middle = 'syntax = "proto3"; import "common/deep.proto"; message Mid { Deep deep = 1; }'
    add(memory, middle, "mid", references=deep)
    text = 'syntax = "proto3"; import "mid.proto"; message Top { Mid mid = 1; }'
    number = add(memory, text, references=[{"name": "mid.proto", "subject": "mid", "version": 1}])
    _, value = converter(memory).to_connect_data("t", [], framed(number, b"\x0a\x04\x0a\x02\x08\x05"))
    assert value == {"mid": {"deep": {"n": 5}}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("message {", "is no Protobuf"),
        ('syntax = "proto3"; import "gone.proto"; message M {}', "gone.proto"),
        ('syntax = "proto3"; message M { M m = 1; }', "contains itself"),
        ('syntax = "proto3";', r"has no message \[0\]"),
        (base64.b64encode(b"\x0a\x01x\x1a\x04gone").decode(), "gone"),
    ],
)
def test_a_schema_that_cannot_be_used_is_an_error_of_its_records(memory: MemoryRegistry, text: str, said: str) -> None:
    """It says what is wrong, in one line, and no path of this machine."""
    with pytest.raises(DataError, match=said) as caught:
        converter(memory).to_connect_data("t", [], framed(add(memory, text), b""))
    assert "/tmp" not in str(caught.value)


@pytest.mark.parametrize("name", ["../out.proto", "/etc/out.proto", "a/../../b.proto"])
def test_no_reference_is_written_outside_of_its_folder(memory: MemoryRegistry, name: str) -> None:
    """Whatever name a registry gives it."""
    add(memory, 'syntax = "proto3";', "other")
    number = add(memory, 'syntax = "proto3";', references=[{"name": name, "subject": "other", "version": 1}])
    with pytest.raises(DataError, match="no name of a file"):
        converter(memory).to_connect_data("t", [], framed(number, b""))


def test_another_kind_of_schema_and_another_form_of_data_are_errors(memory: MemoryRegistry) -> None:
    """Each says what it found."""
    made, number = converter(memory), memory.add('"string"')
    for data, said in (
        (framed(number, b""), "of type AVRO"),
        (b"\x01abcd", "no id of a schema"),
        (framed(9, b""), "9"),
        (framed(add(memory), b"", b"\x7e"), "63 deep"),
        (framed(add(memory), b"", b"\x03"), "-2 deep"),
        (framed(add(memory), b"", b"\x80" * 20), "which message it is"),
        (framed(add(memory), b"", b""), "which message it is"),
        (framed(add(memory), b"", b"\x02\x14"), r"no message \[10\]"),
        (framed(add(memory), b"\x0f"), "no Protobuf"),
    ):
        with pytest.raises(DataError, match=said):
            made.to_connect_data("t", [], data)


@given(st.binary(max_size=60) | st.builds(lambda seed: mangled(random.Random(seed)), st.integers(0, 1 << 32)))
@settings(max_examples=1_000, deadline=None)
def test_any_bytes_are_read_or_are_an_error_of_the_record(data: bytes) -> None:
    """Nothing else comes out."""
    with suppress(DataError):
        _MADE.to_connect_data("t", [Header("h", b"x")], framed(_NUMBER, data, b""))


def mangled(chance: random.Random) -> bytes:
    """Returns a message of which some bytes are others, and some may be missing."""
    data = bytearray(_ORDER)
    for _ in range(chance.randrange(4)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data[: chance.randrange(len(data) + 1)])


_MEMORY = MemoryRegistry()
_NUMBER = add(_MEMORY)
_ORDER = b"\x00" + order().SerializeToString()
_MADE = converter(_MEMORY)


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        (None, 1, "with a schema only"),
        (STRING, "a", "structs only"),
        (Schema(type=Type.STRUCT, fields=(Field("n", INT32),)), {"n": "x"}, "does not fit"),
        (Schema(type=Type.STRUCT, fields=(Field("n", INT32),)), {"n": 1 << 40}, "does not fit"),
        (
            Schema(type=Type.STRUCT, fields=(Field("n", Schema(type=Type.BYTES, name=DECIMAL)),)),
            {"n": b"\x01"},
            "a Decimal",
        ),
        (
            Schema(
                type=Type.STRUCT, fields=(Field("m", Schema(type=Type.MAP, key_schema=FLOAT64, value_schema=INT32)),)
            ),
            {"m": {}},
            "maps do not take",
        ),
        (
            Schema(
                type=Type.STRUCT,
                fields=(Field("l", Schema(type=Type.ARRAY, value_schema=Schema(type=Type.ARRAY, value_schema=INT32))),),
            ),
            {"l": []},
            "lists or maps in lists",
        ),
        (Schema(type=Type.STRUCT, fields=(Field("not a name", INT32),)), {}, "as a name"),
    ],
)
def test_what_protobuf_cannot_hold_is_an_error(
    memory: MemoryRegistry, schema: Schema | None, value: Any, said: str
) -> None:
    """Of the record."""
    with pytest.raises(DataError, match=said):
        converter(memory).from_connect_data("t", [], schema, value)


def test_a_null_is_a_tombstone(memory: MemoryRegistry) -> None:
    """Read and written."""
    made = converter(memory)
    assert made.to_connect_data("t", [], None) == (None, None)
    assert made.from_connect_data("t", [], None, None) is None


def test_a_registry_that_is_away_is_no_error_of_a_record(memory: MemoryRegistry) -> None:
    """Nothing is known of it then."""
    number = add(memory)
    memory.fails += [httpx.ConnectError("refused")] * 10
    with pytest.raises(RegistryError):
        converter(memory).to_connect_data("t", [], framed(number, b""))


def test_a_schema_that_does_not_compile_is_compiled_once(
    memory: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for each record that has it, read or written."""
    compiles: list[str] = []

    def refuse(text: str, _: Any) -> Any:
        compiles.append(text)
        raise DataError("The schema is no Protobuf.")

    monkeypatch.setattr("connectors.converters.protobuf.converter.compiled", refuse)
    made, number = converter(memory), memory.add("message {", schemaType="PROTOBUF")
    schema = Schema(type=Type.STRUCT, name="Row", fields=(Field("a", INT32),))
    for _ in range(3):
        with pytest.raises(DataError, match="no Protobuf"):
            made.to_connect_data("t", [], struct.pack(">bI", 0, number) + b"\0")
        with pytest.raises(DataError, match="no Protobuf"):
            made.from_connect_data("t", [], schema, {"a": 1})
    assert len(compiles) == 2


def _holding_twice(depth: int) -> str:
    """Returns a file whose last message stands for two to the power of `depth` others."""
    messages = ["message T0 { string a = 1; }"]
    messages += [f"message T{at} {{ T{at - 1} a = 1; T{at - 1} b = 2; }}" for at in range(1, depth + 1)]
    return 'syntax = "proto3";\n' + "\n".join(messages)


def _nested(depth: int) -> str:
    return 'syntax = "proto3";\n' + "".join(f"message T{at} {{ T{at + 1} a = 1; }} " for at in range(depth)) + (
        f"message T{depth} {{ string a = 1; }}"
    )  # fmt: skip


SPARSE = 'syntax = "proto3"; message A { repeated B b = 1; } message B { ' + "".join(
    f"string f{at} = {at}; " for at in range(1, 1_001)
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "data", "path", "said"),
    [
        (_holding_twice(30), b"", b"\x02\x3c", f"more than {MOST_TYPES} types"),
        (_nested(DEEPEST_SCHEMA + 1), b"", b"\x00", f"nested deeper than {DEEPEST_SCHEMA} levels"),
        (SPARSE + "}", b"\x0a\x00" * 1_000, b"\x00", f"lacks more than {MOST_ABSENT} fields"),
        (ORDER, b"\x62\x0c\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x10\x01", b"\x00", "between the years 1 and 9999"),
        (ORDER, b"\x7a\x06\x08\xff\xff\xff\xff\x07", b"\x00", "between 0 and 24 hours"),
        (ORDER, b"\x72\x06\x08\xff\xff\xff\xff\x07", b"\x00", "A date is none"),
        (ORDER, b"", b"\x02\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", "has no message"),
        (ORDER, b"", b"\xff" * 20, "ends before it says which message"),
    ],
)
def test_what_would_hold_or_fill_the_worker_is_refused(
    memory: MemoryRegistry, text: str, data: bytes, path: bytes, said: str
) -> None:
    """Within a moment, and read once."""
    made, number = converter(memory), add(memory, text)
    for _ in range(2):
        began = time.process_time()
        with pytest.raises(DataError, match=said):
            made.to_connect_data("t", [], framed(number, data, path))
        assert time.process_time() - began < 6.0


@pytest.mark.parametrize("said", ["9" * 5_000, "0", "19000", "-1", "x", "٣", str(1 << 29)])
def test_the_number_of_a_field_is_one_that_protobuf_takes(memory: MemoryRegistry, said: str) -> None:
    """A record's own schema may say any; the next free one stands in its place."""
    fields = (Field("a", INT32), Field("b", Schema(type=Type.INT32, parameters={TAG: said})))
    made = converter(memory)
    assert made.from_connect_data("t", [], Schema(type=Type.STRUCT, fields=fields), {"a": 1, "b": 2})
    assert "int32 b = 2;" in memory.schemas[-1]["schema"]


def test_the_numbers_of_an_enum_and_names_are_bounded(memory: MemoryRegistry) -> None:
    """They become text of a file that is compiled."""
    made = converter(memory)
    enum = Schema(type=Type.STRING, parameters={ENUM: "E", f"{ENUM}.A": "9" * 5_000})
    with pytest.raises(DataError, match="has 32 bits"):
        made.from_connect_data("t", [], Schema(type=Type.STRUCT, fields=(Field("e", enum),)), {"e": "A"})
    with pytest.raises(DataError, match="as a name"):
        made.from_connect_data("t", [], Schema(type=Type.STRUCT, name="A { } message B"), {})


def test_the_numbers_of_many_fields_take_no_time(memory: MemoryRegistry) -> None:
    """Ten thousand fields are numbered one after the other, but for those that Protobuf keeps for itself."""
    fields = tuple(Field(f"f{at}", INT32) for at in range(20_000))
    began = time.process_time()
    numbers = numbers_of(Schema(type=Type.STRUCT, fields=fields))
    assert time.process_time() - began < 3.0
    assert (numbers[("f18998",)], numbers[("f18999",)], numbers[("f19999",)]) == (18_999, 20_000, 21_000)
