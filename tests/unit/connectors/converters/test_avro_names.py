"""What an Avro schema says comes through: names of types, fixed decimals, letters that are not ASCII, defaults."""

from __future__ import annotations

import io
import json
import struct
import time
from collections.abc import Callable
from typing import Any

import fastavro
import pytest

from connectors.converters.avro.converter import AvroConverter, without_logical_types
from connectors.converters.avro.parsed import is_name, parsed_schema, without_defaults
from connectors.data.bounds import DEEPEST_SCHEMA, EMPTY_PARTS, MOST_TYPES
from connectors.data.schema import DECIMAL, Field, Schema, Type
from connectors.errors import DataError
from tests.support.memory.schema_registry import MemoryRegistry
from tests.unit.connectors.converters.test_avro import converter

ENUMS = {"enhanced.avro.schema.support": "true"}


def fixed(name: str, size: int, scale: int = 2, precision: int = 18) -> dict[str, Any]:
    """Returns a decimal of so many bytes."""
    number = {"logicalType": "decimal", "precision": precision, "scale": scale}
    return {"type": "fixed", "name": name, "size": size, **number}


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """Returns a record of types."""
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{at}", "type": one} for at, one in enumerate(fields)],
        **more,
    }


def defaulted(kind: Any, default: Any) -> dict[str, Any]:
    """Returns a record of one field with a default."""
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind, "default": default}]}


def message(memory: MemoryRegistry, schema: Any, value: Any) -> bytes:
    """Registers a schema, and returns a value of it, of which logical types are encoded, as serializers write it."""
    buffer = io.BytesIO(struct.pack(">bI", 0, memory.add(schema)))
    buffer.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(buffer, parsed_schema(without_defaults(without_logical_types(schema)), {}), value)
    return buffer.getvalue()


def rewritten(memory: MemoryRegistry, made: AvroConverter, data: bytes) -> tuple[bytes, Any]:
    """Returns a message as it is written anew, and the schema that it is registered with."""
    again = made.from_connect_data("out", [], *made.to_connect_data("t", [], data))
    assert again is not None
    return again, json.loads(memory.schemas[struct.unpack(">bI", again[:5])[1] - 1]["schema"])


def test_decimals_of_fixed_size_keep_all_that_their_schema_says() -> None:
    """Readers would else get raw bytes; two of different size are two types."""
    memory = MemoryRegistry()
    price, rate = fixed("Price", 8), fixed("money.Rate", 4, scale=3, precision=9)
    schema = record(price, ["null", rate], "shop.Price", namespace="shop")
    value = {"f0": b"\0" * 7 + b"\x05", "f1": b"\xff" * 4, "f2": b"\1" * 8}
    made, data = converter(memory), message(memory, schema, value)
    assert made.to_connect_data("t", [], data)[1] == value
    again, written = rewritten(memory, made, data)
    assert again[5:] == data[5:]
    first, (_, second), third = (one["type"] for one in written["fields"])
    for found, asked, namespace in ((first, price, "shop"), (second, rate, "money")):
        said = {name: found[name] for name in ("type", "size", "logicalType", "precision", "scale", "name")}
        assert said == {**asked, "name": asked["name"].rpartition(".")[2]}
        assert found["namespace"] == namespace
    assert third == "shop.Price"
    assert made.to_connect_data("t", [], again) == made.to_connect_data("t", [], data)
    plain = converter(memory, connect_meta_data="false")
    assert rewritten(memory, plain, data)[1]["fields"][0]["type"] == {**price, "namespace": "shop"}


def test_a_fixed_decimal_in_a_union_is_told_by_its_type() -> None:
    """Of two that differ in size alone."""
    memory = MemoryRegistry()
    schema = record(["null", "string", fixed("P", 2), fixed("Q", 1)])
    made = converter(memory)
    for name, value in (("P", b"\0\1"), ("Q", b"\1")):
        data = message(memory, schema, {"f0": (name, value)})
        assert made.to_connect_data("t", [], data)[1]["f0"] == {"string": None, "P": None, "Q": None, name: value}
        assert rewritten(memory, made, data)[0][5:] == data[5:]


def test_letters_that_are_not_ascii_are_names() -> None:
    """Of fields, records, fixed types, enums and their symbols."""
    memory = MemoryRegistry()
    state = {"type": "enum", "name": "Zustände", "symbols": ["BEZAHLT", "ÜBERFÄLLIG"], "default": "BEZAHLT"}
    schema = record(
        "int", state, ["null", {"type": "array", "items": "läden.Zustände"}],
        name="Größe", namespace="läden",
    )  # fmt: skip
    schema["fields"][0] = {"name": "größe", "type": "int"}
    made = converter(memory, **ENUMS)
    data = message(memory, schema, {"größe": 7, "f1": "ÜBERFÄLLIG", "f2": ["BEZAHLT", "ÜBERFÄLLIG"]})
    found, value = made.to_connect_data("t", [], data)
    assert value == {"größe": 7, "f1": "ÜBERFÄLLIG", "f2": ["BEZAHLT", "ÜBERFÄLLIG"]}
    assert found is not None
    assert found.name == "läden.Größe"
    again, written = rewritten(memory, made, data)
    assert again[5:] == data[5:]
    assert (written["name"], written["fields"][0]["name"]) == ("Größe", "größe")
    assert written["fields"][1]["type"]["symbols"] == state["symbols"]


@pytest.mark.parametrize(
    "shape", [lambda one: one, lambda one: ["null", one], lambda one: {"type": "array", "items": one}]
)
def test_symbols_that_are_not_ascii_are_read_outside_of_records(shape: Any) -> None:
    """Also the second time."""
    memory = MemoryRegistry()
    data = (
        struct.pack(">bI", 0, memory.add(shape({"type": "enum", "name": "E", "symbols": ["A", "Ä"]}))) + b"\x02\x02\x00"
    )
    made = converter(memory)
    assert [made.to_connect_data("t", [], data)[1] for _ in range(2)] in (["Ä"] * 2, [["Ä"]] * 2)


@pytest.mark.parametrize(
    ("name", "is_taken"),
    [
        ("a1_", True), ("größe", True), ("名前", True), ("ª", True), ("_", True), ("a٣", True), ("ǅ", True),
        ("", False), ("1a", False), ("a-b", False), ("a.b", False), ("a b", False), ("o\u0308", False), ("a²", False),
        ("٣a", False), ("\U0001d4d0", False), ("aⅫ", False),
    ],
)  # fmt: skip
def test_names_are_those_that_java_takes(name: str, is_taken: bool) -> None:
    """`Character.isLetter` and `isLetterOrDigit` of each char; two halves of a pair are no letters."""
    assert is_name(name) is is_taken
    schema = Schema(type=Type.STRUCT, fields=(Field(name, Schema(type=Type.INT32)),))
    made = converter(MemoryRegistry())
    if is_taken:
        assert made.from_connect_data("t", [], schema, {name: 1})
    else:
        with pytest.raises(DataError, match="as the name of a field"):
            made.from_connect_data("t", [], schema, {name: 1})


def test_a_type_without_a_namespace_keeps_none() -> None:
    """It would else be taken for one of the namespace of the record around it."""
    memory = MemoryRegistry()
    plain = {"type": "record", "name": "Plain", "namespace": "", "fields": [{"name": "a", "type": "int"}]}
    made = converter(memory)
    data = message(memory, record(plain, namespace="shop"), {"f0": {"a": 1}})
    again, written = rewritten(memory, made, data)
    assert written["fields"][0]["type"]["namespace"] == ""
    assert made.to_connect_data("t", [], again) == made.to_connect_data("t", [], data)


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("float", 0.1, 0.10000000149011612),
        ("float", 1, 1.0),
        ("double", 0.1, 0.1),
        ("double", 1, 1.0),
        ("bytes", "\u00ff", b"\xff"),
        ({"type": "map", "values": "bytes"}, {"a": "\u00ff"}, {"a": b"\xff"}),
        ({"type": "array", "items": "float"}, [0.1], [0.10000000149011612]),
        (["int", "string"], 5, {"int": 5, "string": None}),
    ],
)
def test_a_default_is_a_value_of_its_type_and_comes_through(kind: Any, default: Any, value: Any) -> None:
    """A float's has 32 bits, and the digits of a float again where it is written."""
    memory = MemoryRegistry()
    schema = {**record(), "fields": [{"name": "a", "type": kind, "default": default}, {"name": "b", "type": "int"}]}
    made = converter(memory)
    data = struct.pack(">bI", 0, memory.add({**schema, "fields": schema["fields"][1:]})) + b"\x02"
    assert made.to_connect_data("t", [], data)[1] == {"b": 1}
    found = made._parsed(made.registry.schema(memory.add(schema))).schema
    assert found is not None
    assert found.fields[0].schema.default == value
    made.from_connect_data("out", [], found, {"a": value, "b": 1})
    assert json.loads(memory.schemas[-1]["schema"])["fields"][0]["default"] == default


BOMB = record(name="T0")
for _number in range(1, 31):
    BOMB = record(BOMB, f"T{_number - 1}", name=f"T{_number}")
DEEP: Any = "int"
for _number in range(DEEPEST_SCHEMA + 1):
    DEEP = {"type": "array", "items": DEEP}
NOTHING = {"type": "record", "name": "Nothing", "fields": []}
LITTLE = record("boolean", *({"type": "fixed", "name": f"N{number}", "size": 0} for number in range(EMPTY_PARTS + 1)))
HUGE = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
"""How many elements a block has: 2**62 - 1."""


@pytest.mark.parametrize(
    ("schema", "data", "said"),
    [
        (BOMB, b"", f"more than {MOST_TYPES} types"),
        (DEEP, b"", f"nested deeper than {DEEPEST_SCHEMA} levels"),
        ("[" * 100_000, b"", "nested too deep"),
        (record(NOTHING, {"type": "array", "items": "Nothing"}), HUGE, "of what has no bytes"),
        (record({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}), HUGE, "of what has no bytes"),
        (record({"type": "array", "items": LITTLE}, name="A"), HUGE, "of what has no bytes"),
        (record({"type": "map", "values": LITTLE}, name="A"), HUGE, "of what has no bytes"),
        (record({"type": "array", "items": {"type": "null"}}), HUGE, "any length"),
        (record({"type": "array", "items": "int"}), HUGE, "ends too early"),
        (record({"type": "map", "values": "int"}), HUGE, "ends too early"),
        (record("string"), HUGE, "ends too early"),
        (record("string"), b"\x05abc", "ends too early"),
        (record(["null", "int"]), b"\x08", "where its schema has nothing"),
        (record({"type": "enum", "name": "E", "symbols": ["A"]}), b"\x08", "where its schema has nothing"),
        (record("string"), b"\x02\xff", "codec can't decode"),
        (record(fixed("F", 2**70)), b"", "size of a fixed is a whole number of 32 bits"),
        (record(fixed("F", -1)), b"", "is not below 0"),
        (record(fixed("F", 1, scale=10**9 * 9)), b"", "scale of a Decimal is a whole number of 32 bits"),
        (record(fixed("F", 1, precision=10**30)), b"", "precision of a Decimal is a whole number of 32 bits"),
        (record({"type": "bytes", "logicalType": "decimal", "scale": "x"}), b"", "scale of a Decimal"),
        (record({"type": "int", "connect.version": "9" * 5_000}), b"", "version of a schema"),
        (record({"type": "enum", "name": "E", "symbols": ["a b"]}), b"", "as a symbol of an enum"),
        (defaulted("int", "x"), b"", "A default is no value of its type int32"),
        (defaulted("int", 2**31), b"", "A default is no value of its type int32"),
        (defaulted("float", 10**400), b"", "too large for its type float"),
        (record("int", name={"a": 1}), b"", "no Avro schema"),  # type: ignore[arg-type]
        ({"type": "record", "name": "R"}, b"", "there is no 'fields'"),
        (record(5), b"", "is a name, a list or an object"),
        ("9" * 5_000, b"", "Exceeds the limit"),
    ],
)  # fmt: skip
def test_what_would_hold_or_fill_the_worker_is_refused_at_once(schema: Any, data: bytes, said: str) -> None:
    """By the schema or by the data, the second time without reading the schema anew; with a sentence."""
    memory = MemoryRegistry()
    head = struct.pack(">bI", 0, memory.add(schema))
    made, began = converter(memory), time.process_time()
    for _ in range(2):
        with pytest.raises(DataError, match=said) as raised:
            made.to_connect_data("t", [], head + data)
        assert "Error" not in raised.value.message
        assert len(raised.value.message) < 500
    assert time.process_time() - began < 1.0
    assert len(memory.asked) == 1


@pytest.mark.parametrize("parameters", [{"scale": "9" * 5_000}, {"scale": "2", "connect.decimal.precision": "x"}])
def test_a_decimal_of_no_scale_or_precision_is_not_written(parameters: dict[str, str]) -> None:
    """Each may come with a record's own schema."""
    schema = Schema(type=Type.BYTES, name=DECIMAL, parameters=parameters)
    with pytest.raises(DataError, match="of a Decimal is a whole number of 32 bits"):
        converter(MemoryRegistry()).from_connect_data("t", [], schema, b"\1")


OTHER = {"type": "array", "items": "null"}
"""What a schema's own marks say of the type X: a list of any length, in a few bytes."""
MARKS = {"__fastavro_parsed": True, "__named_schemas": {"X": OTHER}}
X = {"type": "enum", "name": "X", "symbols": ["A", "B"]}


@pytest.mark.parametrize("marks", [MARKS, {"__fastavro_parsed": True}, {"__named_schemas": {"X": OTHER}}], ids=str)
@pytest.mark.parametrize(
    "place",
    [
        lambda x, marks: {**record(x, "X"), **marks},
        lambda x, marks: ["null", {**record(x, "X"), **marks}],
        lambda x, marks: record({**x, **marks}, "X"),
        lambda x, marks: record({"type": "array", "items": {**x, **marks}}, {"type": "map", "values": "X", **marks}),
    ],
    ids=range(4),
)
def test_a_schema_is_read_as_if_it_had_no_marks(place: Callable[..., Any], marks: dict[str, Any]) -> None:
    """Whoever registers one says with them which types are in it: others than those that were checked.

    Java's Avro ignores properties that it does not know.
    """
    memory = MemoryRegistry()
    plain, marked = place(X, {}), place(X, marks)
    value = {"f0": ["B"], "f1": {"k": "A"}} if "array" in str(plain) else {"f0": "B", "f1": "A"}
    for schema in (plain, marked):
        assert converter(memory).to_connect_data("t", [], message(memory, schema, value))[1] == value
