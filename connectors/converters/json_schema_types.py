"""Makes Connect's schemas of JSON Schema and back, as Confluent's JsonSchemaData does.

`connect.type` says which of Connect's types a number or text is; `connect.index` in which order a struct's fields are;
`title` is a struct's name. A union with null is optional; of any other union nothing is known but that it is JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from connectors.data.schema import DATE, DECIMAL, SCALE, TIME, TIMESTAMP, Field, Schema, Type
from connectors.errors import DataError

_NUMBERS: Final = {
    "int8": Type.INT8,
    "int16": Type.INT16,
    "int32": Type.INT32,
    "int64": Type.INT64,
    "float32": Type.FLOAT32,
    "float64": Type.FLOAT64,
}
_PLAIN: Final = {"integer": Type.INT64, "number": Type.FLOAT64, "string": Type.STRING, "boolean": Type.BOOLEAN}
_LOGICAL: Final = (DECIMAL, DATE, TIME, TIMESTAMP)
_DEFINITIONS: Final = ("definitions", "$defs")


class FromJsonSchema:
    """Makes the schema of one JSON Schema. `references` has those of other subjects, by the name that they go by.

    Raises DataError for what Connect's schemas cannot say: types that contain themselves, unions of several types.
    """

    def __init__(self, root: Any, references: Mapping[str, Any]) -> None:
        self._root = root
        self._references = references
        self._inside: list[str] = []

    def schema(self, node: Any) -> Schema:
        """Returns the schema of `node`."""
        if not isinstance(node, dict):
            raise DataError(f"A JSON Schema is an object, and this is {node!r:.100}.")
        if "$ref" in node:
            return self._referred(node["$ref"])
        union = node.get("oneOf") or node.get("anyOf")
        if union is not None:
            return self._union(union, node)
        kinds = node.get("type")
        if isinstance(kinds, list):
            return self._union([{**node, "type": kind} for kind in kinds], {})
        return self._of_type(str(kinds), node)

    def _referred(self, reference: str) -> Schema:
        if reference in self._inside:
            raise DataError(f"The type {reference} contains itself, which Connect's schemas cannot say.")
        found = self._references.get(reference, self._in_root(reference))
        if found is None:
            raise DataError(f"The JSON Schema refers to {reference}, which there is not.")
        self._inside.append(reference)
        made = self.schema(found)
        self._inside.pop()
        return made

    def _in_root(self, reference: str) -> Any:
        parts = reference.split("/")
        if len(parts) != 3 or parts[0] != "#" or parts[1] not in _DEFINITIONS:
            return None
        return (self._root.get(parts[1]) or {}).get(parts[2])

    def _union(self, branches: Sequence[Any], node: Mapping[str, Any]) -> Schema:
        others = [one for one in branches if not (isinstance(one, dict) and one.get("type") == "null")]
        if len(others) != 1:
            raise DataError("A JSON Schema with a union of several types is not read.", "Use keyfold.Json.")
        made = self.schema(others[0])
        return made.as_optional() if len(others) < len(branches) or node.get("connect.optional") else made

    def _of_type(self, kind: str, node: Mapping[str, Any]) -> Schema:
        about: dict[str, Any] = {"name": node.get("title"), "doc": node.get("description")}
        if node.get("connect.parameters"):
            about["parameters"] = {name: str(one) for name, one in node["connect.parameters"].items()}
        if node.get("connect.version") is not None:
            about["version"] = int(node["connect.version"])
        if kind == "object":
            return self._object(node, about)
        if kind == "array":
            return self._array(node, about)
        if kind not in _PLAIN:
            raise DataError(f"A JSON Schema of type {kind} is not read.")
        return Schema(type=_type_of(kind, node), default=node.get("default"), **about)

    def _object(self, node: Mapping[str, Any], about: dict[str, Any]) -> Schema:
        if node.get("connect.type") == "map" or ("properties" not in node and "additionalProperties" in node):
            more = node.get("additionalProperties")
            values = self.schema(more) if isinstance(more, dict) else Schema(type=Type.STRING, optional=True)
            return Schema(type=Type.MAP, key_schema=Schema(type=Type.STRING), value_schema=values, **about)
        required = set(node.get("required") or ())
        ordered = sorted((node.get("properties") or {}).items(), key=lambda one: _index(one[1]))
        fields = (self._field(name, one, is_required=name in required) for name, one in ordered)
        return Schema(type=Type.STRUCT, fields=tuple(fields), **about)

    def _field(self, name: str, node: Any, *, is_required: bool) -> Field:
        made = self.schema(node)
        return Field(name, made if is_required else made.as_optional())

    def _array(self, node: Mapping[str, Any], about: dict[str, Any]) -> Schema:
        items = node.get("items")
        if node.get("connect.type") != "map" or not isinstance(items, dict):
            return Schema(type=Type.ARRAY, value_schema=self.schema(items), **about)
        pair = items.get("properties") or {}
        key, value = self.schema(pair.get("key")), self.schema(pair.get("value"))
        return Schema(type=Type.MAP, key_schema=key, value_schema=value, **about)


def to_json_schema(schema: Schema, index: int | None = None) -> dict[str, Any]:
    """Returns the JSON Schema of `schema`; `index` is its place among the fields of a struct."""
    node = _required(schema)
    about = {
        "title": schema.name,
        "description": schema.doc,
        "connect.version": schema.version,
        "connect.parameters": dict(schema.parameters) if schema.parameters else None,
        "default": schema.default if schema.type not in {Type.BYTES, Type.STRUCT} else None,
    }
    node |= {name: one for name, one in about.items() if one is not None}
    if schema.optional:
        place = {} if index is None else {"connect.index": index}
        return {"oneOf": [{"type": "null"}, node], **place}
    return node if index is None else {**node, "connect.index": index}


def _required(schema: Schema) -> dict[str, Any]:
    if schema.type is Type.STRUCT:
        pairs = enumerate(schema.fields)
        properties = {one.name: to_json_schema(one.schema, place) for place, one in pairs}
        required = [one.name for one in schema.fields if not one.schema.optional]
        return {"type": "object", "properties": properties, **({"required": required} if required else {})}
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        return {"type": "array", "items": to_json_schema(schema.value_schema)}
    if schema.type is Type.MAP and schema.key_schema is not None and schema.value_schema is not None:
        return _map(schema.key_schema, schema.value_schema)
    if schema.name == DECIMAL:
        return {"type": "number", "connect.type": "bytes"}
    name = next((name for name, kind in _NUMBERS.items() if kind is schema.type), None)
    if name is not None:
        return {"type": "number" if name.startswith("float") else "integer", "connect.type": name}
    return {"type": "string", "connect.type": "bytes"} if schema.type is Type.BYTES else {"type": schema.type.value}


def _map(key: Schema, value: Schema) -> dict[str, Any]:
    if key.type is Type.STRING and not key.optional:
        return {"type": "object", "connect.type": "map", "additionalProperties": to_json_schema(value)}
    pair = {"key": to_json_schema(key, 0), "value": to_json_schema(value, 1)}
    return {"type": "array", "connect.type": "map", "items": {"type": "object", "properties": pair}}


def _type_of(kind: str, node: Mapping[str, Any]) -> Type:
    said = node.get("connect.type")
    if said == "bytes" or (node.get("title") == DECIMAL and SCALE in (node.get("connect.parameters") or {})):
        return Type.BYTES
    return _NUMBERS.get(str(said), _PLAIN[kind])


def _index(node: Any) -> int:
    found = node.get("connect.index") if isinstance(node, dict) else None
    return found if isinstance(found, int) else 1 << 30
