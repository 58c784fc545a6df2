"""JSON is read by a schema of the registry, and written with one that says Connect's types."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.converters.json.schema_converter import JsonSchemaConverter
from connectors.converters.json.schema_types import ENUM
from connectors.data.schema import Schema, Type
from connectors.errors import DataError
from connectors.options import read
from connectors.registry.schema_registry import SchemaRegistry
from connectors.registry.settings import registry_settings
from tests.support.clocks import ManualClock
from tests.support.connect_classes.records import structs, values_of
from tests.support.memory.schema_registry import MemoryRegistry

ORDER = {
    "type": "object",
    "title": "Order",
    "properties": {
        "id": {"type": "integer", "connect.type": "int32", "connect.index": 0},
        "price": {"type": "number", "connect.index": 1},
        "name": {"oneOf": [{"type": "null"}, {"type": "string"}], "connect.index": 2},
        "tags": {"type": "array", "items": {"type": "string"}, "connect.index": 3},
        "where": {"$ref": "#/definitions/place", "connect.index": 4},
        "more": {"type": "object", "additionalProperties": {"type": "boolean"}, "connect.index": 5},
    },
    "required": ["id", "tags"],
    "definitions": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
ITSELF = {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}}
VALUE = {"id": 7, "price": 1.5, "name": None, "tags": ["a"], "where": {"city": "Ulm"}, "more": {"x": True}}


def converter(memory: MemoryRegistry) -> JsonSchemaConverter:
    """Returns a converter that asks `memory`."""
    options = read(JsonSchemaConverter.OPTIONS, {"schema.registry.url": "http://a:1"})
    made = JsonSchemaConverter(options, is_key=False)
    made.registry = SchemaRegistry(registry_settings(options), transport=memory, clock=ManualClock())
    return made


def written(value: Any, number: int) -> bytes:
    """Returns a message as serializers of the registry write it."""
    return struct.pack(">bI", 0, number) + json.dumps(value).encode()


def test_a_value_is_read_by_its_schema() -> None:
    """Types, optional fields, references within the schema, and maps."""
    memory = MemoryRegistry()
    schema, value = converter(memory).to_connect_data("t", [], written(VALUE, memory.add(ORDER, schemaType="JSON")))
    assert value == VALUE
    assert schema is not None
    assert [(one.name, one.schema.type, one.schema.optional) for one in schema.fields] == [
        ("id", Type.INT32, False),
        ("price", Type.FLOAT64, True),
        ("name", Type.STRING, True),
        ("tags", Type.ARRAY, False),
        ("where", Type.STRUCT, True),
        ("more", Type.MAP, True),
    ]


def test_references_between_subjects_are_followed() -> None:
    """By the name that the schema uses."""
    memory = MemoryRegistry()
    memory.add({"type": "object", "properties": {"city": {"type": "string"}}}, "place", schemaType="JSON")
    outer = {"type": "object", "properties": {"where": {"$ref": "place.json"}}}
    number = memory.add(
        outer, "o", schemaType="JSON", references=[{"name": "place.json", "subject": "place", "version": 1}]
    )
    _, value = converter(memory).to_connect_data("t", [], written({"where": {"city": "Ulm"}}, number))
    assert value == {"where": {"city": "Ulm"}}


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_what_is_written_is_read_again(data: st.DataObject) -> None:
    """Schemas of any kind but for bytes' defaults, with values of theirs."""
    schema = data.draw(structs().filter(lambda one: not _has_default(one)))
    value = data.draw(values_of(Schema(**{**_parts(schema), "optional": False})))
    made = converter(MemoryRegistry())
    found, again = made.to_connect_data("t", [], made.from_connect_data("t", [], schema, value))
    assert found is not None
    assert again == value
    assert [(one.name, one.schema.type, one.schema.optional) for one in found.fields] == [
        (one.name, one.schema.type, one.schema.optional) for one in schema.fields
    ]


def _parts(schema: Schema) -> dict[str, Any]:
    return {name: getattr(schema, name) for name in Schema.__struct_fields__}


def _has_default(schema: Schema) -> bool:
    inner = [one.schema for one in schema.fields] + [one for one in (schema.value_schema, schema.key_schema) if one]
    return schema.default is not None or any(map(_has_default, inner))


@pytest.mark.parametrize(
    ("schema", "data", "said"),
    [
        (ORDER, written({"id": "x", "tags": []}, 1), "id: "),
        (ORDER, written({"id": 1}, 1), "tags: "),
        (ORDER, written({}, 1)[:-1], "no JSON"),
        (ORDER, b"\x00\x00\x00\x00\x01" + b"[" * 100_000, "deep"),
        (ITSELF, written({}, 1), "contains itself"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, written(1, 1), "several types"),
        ({"$ref": "other.json"}, written(1, 1), "there is not"),
        ({"type": "object", "properties": {"a": 5}}, written({}, 1), "is an object"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_an_error_of_the_record(schema: Any, data: bytes, said: str) -> None:
    """With what is wrong with it."""
    memory = MemoryRegistry()
    memory.add(schema, schemaType="JSON")
    with pytest.raises(DataError, match=said):
        converter(memory).to_connect_data("t", [], data)


def _read(schema: Any, value: Any) -> tuple[Schema, Any]:
    memory = MemoryRegistry()
    found, again = converter(memory).to_connect_data("t", [], written(value, memory.add(schema, schemaType="JSON")))
    assert found is not None
    return found, again


@pytest.mark.parametrize(
    ("node", "value", "kind", "optional"),
    [
        ({"enum": ["NEW", "PAID"]}, "PAID", Type.STRING, False),
        ({"enum": ["NEW", None]}, None, Type.STRING, True),
        ({"type": "string", "enum": ["NEW"]}, "NEW", Type.STRING, False),
        ({"type": ["string", "null"], "enum": ["NEW", None]}, None, Type.STRING, True),
        ({"enum": [1, 2]}, 2, Type.INT64, False),
        ({"enum": [1, 2.5]}, 2.5, Type.FLOAT64, False),
        ({"enum": [True]}, True, Type.BOOLEAN, False),
        ({"const": "x"}, "x", Type.STRING, False),
        ({"const": 7}, 7, Type.INT64, False),
        ({"const": None}, None, Type.STRING, True),
        ({"type": "integer", "const": 7}, 7, Type.INT64, False),
        ({"minLength": 1}, "x", Type.STRING, False),
        ({"minimum": 1}, 1.5, Type.FLOAT64, False),
        ({"items": {"type": "string"}}, ["x"], Type.ARRAY, False),
        ({"allOf": [{"type": "string"}, {"maxLength": 5}]}, "x", Type.STRING, False),
        ({"allOf": [{"type": "integer"}, {"type": "number", "minimum": 1}]}, 3, Type.INT64, False),
        ({"allOf": [{"oneOf": [{"type": "null"}, {"type": "string"}]}]}, None, Type.STRING, True),
    ],
)
def test_a_schema_without_a_type_has_that_of_its_values(node: Any, value: Any, kind: Type, optional: bool) -> None:
    """Of `enum`, `const`, `allOf`, or of what is said of values of one type alone."""
    schema, found = _read({"type": "object", "properties": {"a": node}, "required": ["a"]}, {"a": value})
    assert (schema.fields[0].schema.type, schema.fields[0].schema.optional) == (kind, optional)
    assert found == {"a": value}


def test_all_of_has_the_fields_of_all_its_parts() -> None:
    """Also behind references, in further ones, and beside it."""
    root = {
        "allOf": [{"$ref": "#/definitions/base"}, {"allOf": [{"properties": {"b": {"type": "integer"}}}]}],
        "properties": {"c": {"enum": ["X"]}},
        "required": ["c"],
        "title": "Order",
        "definitions": {"base": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}},
    }
    schema, value = _read(root, {"a": "x", "b": 1, "c": "X"})
    assert value == {"a": "x", "b": 1, "c": "X"}
    fields = [(one.name, one.schema.type, one.schema.optional) for one in schema.fields]
    assert fields == [("a", Type.STRING, False), ("b", Type.INT64, True), ("c", Type.STRING, False)]
    assert schema.name == "Order"


def test_the_texts_of_an_enum_are_kept() -> None:
    """Confluent's class keeps them as parameters; what is written names them."""
    memory = MemoryRegistry()
    made = converter(memory)
    number = memory.add({"enum": ["NEW", "PAID"]}, schemaType="JSON")
    schema, value = made.to_connect_data("t", [], written("PAID", number))
    assert schema is not None
    assert schema.parameters == {ENUM: "", f"{ENUM}.NEW": "NEW", f"{ENUM}.PAID": "PAID"}
    made.from_connect_data("t", [], schema, value)
    assert json.loads(memory.schemas[-1]["schema"])["enum"] == ["NEW", "PAID"]


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"enum": ["a", 1]}, "of several types"),
        ({"enum": [{}]}, "none that is plain"),
        ({"enum": 5}, "is an array"),
        ({}, "without a type"),
        ({"type": "integer", "default": "x"}, "is a whole number"),
        ({"type": "integer", "connect.version": 10**30}, "whole number of 32 bits"),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "wants types at once"),
        ({"allOf": [{"$ref": "#"}]}, "there is not"),
        ({"allOf": 5}, "allOf of a JSON Schema is an array"),
        (
            {"allOf": [{"$ref": "#/definitions/a"}], "definitions": {"a": {"allOf": [{"$ref": "#/definitions/a"}]}}},
            "deep",
        ),
        ({"type": "string", "title": {"a": 1}, "connect.parameters": 5}, "is no JSON Schema: "),
        ('{"type": "integer", "maximum": ' + "9" * 5_000 + "}", "is no JSON Schema: Exceeds the limit"),
        ("[" * 100_000, "is no JSON Schema: it is nested too deep"),
    ],
)
def test_a_schema_that_makes_no_sense_says_why(node: Any, said: str) -> None:
    """Never with the name of Python's error alone, and it is asked for and read once."""
    memory = MemoryRegistry()
    made, number = converter(memory), memory.add(node, schemaType="JSON")
    for _ in range(2):
        with pytest.raises(DataError, match=said) as raised:
            made.to_connect_data("t", [], written(None, number))
        assert len(raised.value.message) < 500
    assert len(memory.asked) == 1


def test_a_float_is_one_of_32_bits() -> None:
    """In a value, and in a default, which is written with the digits of a float."""
    memory = MemoryRegistry()
    made = converter(memory)
    node = {"type": "number", "connect.type": "float32", "default": 0.1}
    number = memory.add({"type": "object", "properties": {"a": node}}, schemaType="JSON")
    schema, value = made.to_connect_data("t", [], written({"a": 16777217}, number))
    assert schema is not None
    assert (schema.fields[0].schema.default, value) == (0.10000000149011612, {"a": 16777216.0})
    made.from_connect_data("out", [], schema, value)
    assert '"default":0.1}' in memory.schemas[-1]["schema"]
