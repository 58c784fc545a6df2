"""JSON is read by a schema of the registry, and written with one that says Connect's types."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.converters.json_schema_converter import JsonSchemaConverter
from connectors.data.schema import Schema, Type
from connectors.errors import DataError
from connectors.options import read
from connectors.registry.schema_registry import SchemaRegistry
from connectors.registry.settings import registry_settings
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
    made.registry = SchemaRegistry(registry_settings(options), transport=memory, sleep=lambda _: None)
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
