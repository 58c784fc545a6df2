"""Makes Connect's schemas of JSON Schema and back, as Confluent's JsonSchemaData does.

`connect.type` says which of Connect's types a number or text is; `connect.index` in which order a struct's fields are;
`title` is a struct's name. A union with null is optional; of any other union nothing is known but that it is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from connectors.data.bounds import Extent, is_int
from connectors.data.schema import DATE, DECIMAL, NUMBERS, SCALE, TIME, TIMESTAMP, Field, Schema, Type
from connectors.data.values import short_float
from connectors.errors import DataError
from connectors.rejection import shown

_PLAIN: Final = {"integer": Type.INT64, "number": Type.FLOAT64, "string": Type.STRING, "boolean": Type.BOOLEAN}
_LOGICAL: Final = (DECIMAL, DATE, TIME, TIMESTAMP)
ENUM: Final = "io.confluent.connect.json.Enum"
"""The parameter of a text that is one of several, as Confluent's class names it; each value follows it and a dot."""
_VALUES: Final = frozenset({"enum", "const"})
_KINDS: Final[dict[type, str]] = {str: "string", bool: "boolean", int: "integer", float: "number"}
_SAYING: Final = {
    "object": frozenset({"properties", "additionalProperties", "required", "minProperties", "maxProperties"}),
    "array": frozenset({"items", "minItems", "maxItems", "uniqueItems"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
}
"""What is said of values of one type alone."""
_PART: Final = 4
"""Members that a part of `allOf` counts as, besides its own: it takes 1 µs if it says nothing."""
_DEFINITIONS: Final = ("definitions", "$defs")
_WALKED: Final = frozenset({"properties", "oneOf", "anyOf"})
"""Parts of a schema that hold others in an object or a list, which is gone through at each use. `allOf` is, too."""
_HOLDING: Final = frozenset({*_WALKED, *_DEFINITIONS, "allOf", "items", "additionalProperties"})
"""Parts of a schema that hold others, each of which is counted as it is met."""


class FromJsonSchema:
    """Makes the schema of one JSON Schema. `references` has those of other subjects, by the name that they go by.

    `default` makes a value of a default. Raises DataError for what Connect's schemas cannot say: types that contain
    themselves, unions of several types.
    """

    def __init__(self, root: Any, references: Mapping[str, Any], default: Callable[[Schema, Any], Any]) -> None:
        self._root = root
        self._references = references
        self._default = default
        # The references that are being followed now; one that is met again within itself is refused.
        self._inside: list[str] = []
        self._extent = Extent()

    def schema(self, node: Any) -> Schema:
        """Returns the schema of `node`."""
        with self._extent:
            return self._schema(node)

    def _schema(self, node: Any) -> Schema:
        if not isinstance(node, dict):
            raise DataError(f"A JSON Schema is an object, and this is {shown(node)}.")
        self._count(node)
        if "$ref" in node:
            return self._referred(node["$ref"])
        if "allOf" in node:
            return self.schema(self._merged(node))
        union = node.get("oneOf") or node.get("anyOf")
        if union is not None:
            return self._union(union, node)
        kinds = node.get("type")
        if isinstance(kinds, list):
            others = [kind for kind in kinds if kind != "null"]
            if len(others) != 1:
                raise _several()
            made = self.schema({**node, "type": others[0]})
            return made.as_optional() if len(others) < len(kinds) else made
        if kinds is None and _VALUES & node.keys():
            return self._of_values(node)
        return self._of_type(_implied(node) if kinds is None else str(kinds), node)

    def _count(self, node: Mapping[str, Any]) -> None:
        """Counts what a schema says, apart from the schemas in it: these are counted as they are met."""
        self._extent.add_said({name: part for name, part in node.items() if name not in _HOLDING})
        walked = (node.get(name) for name in _WALKED)
        self._extent.add_members(sum(len(part) for part in walked if isinstance(part, list | dict)))

    def _of_values(self, node: Mapping[str, Any]) -> Schema:
        """Returns the schema of `enum` or `const` without a type: that of their values; null among them is optional.

        Confluent's class takes numbers for texts, and reads a null for each.
        """
        values = _values(node)
        kinds = {_KINDS.get(type(value)) for value in values if value is not None} or {"string"}
        kind = "number" if kinds == {"integer", "number"} else kinds.pop() if len(kinds) == 1 else None
        if kind is None:
            raise DataError(
                f"The values {shown(values)} of a JSON Schema are of several types, or of none that is plain."
            )
        made = self._of_type(kind, node)
        return made.as_optional() if None in values else made

    def _merged(self, node: Mapping[str, Any]) -> dict[str, Any]:
        """Returns one object that says what the objects of `allOf` and its sibling keywords say together."""
        with self._extent:
            parts = _array_in(node, "allOf")
            self._extent.add_members(_PART * len(parts))
            own = {name: value for name, value in node.items() if name != "allOf"}
            merged = _Merged(self._extent)
            for inner in parts:
                merged.add(self._flat(inner))
            merged.add(own)
            return merged.node()

    def _flat(self, node: Any) -> dict[str, Any]:
        """Returns an object of `allOf` without references and further ones."""
        if not isinstance(node, dict):
            raise DataError(f"A JSON Schema is an object, and this is {shown(node)}.")
        if "$ref" in node:
            with self._extent:
                return self._flat(self._target(node["$ref"]))
        return self._merged(node) if "allOf" in node else node

    def _referred(self, reference: str) -> Schema:
        target = self._target(reference)
        if reference in self._inside:
            raise DataError(f"The type {reference} contains itself, which Connect's schemas cannot say.")
        self._inside.append(reference)
        made = self.schema(target)
        self._inside.pop()
        return made

    def _target(self, reference: str) -> Any:
        """Returns what a reference stands for."""
        target = self._references.get(reference, self._in_root(reference))
        if target is None:
            raise DataError(f"The JSON Schema refers to {reference}, which there is not.")
        return target

    def _in_root(self, reference: str) -> Any:
        parts = reference.split("/")
        if len(parts) != 3 or parts[0] != "#" or parts[1] not in _DEFINITIONS:
            return None
        return (self._root.get(parts[1]) or {}).get(parts[2])

    def _union(self, branches: Sequence[Any], node: Mapping[str, Any]) -> Schema:
        others = [branch for branch in branches if not (isinstance(branch, dict) and branch.get("type") == "null")]
        if len(others) != 1:
            raise _several()
        made = self.schema(others[0])
        return made.as_optional() if len(others) < len(branches) or node.get("connect.optional") else made

    def _of_type(self, kind: str, node: Mapping[str, Any]) -> Schema:
        about: dict[str, Any] = {"name": node.get("title"), "doc": node.get("description")}
        if node.get("connect.parameters"):
            about["parameters"] = {name: str(value) for name, value in node["connect.parameters"].items()}
        if node.get("connect.version") is not None:
            about["version"] = _version(node["connect.version"])
        if kind == "object":
            return self._object(node, about)
        if kind == "array":
            return self._array(node, about)
        if kind not in _PLAIN:
            raise DataError(f"A JSON Schema of type {shown(kind)} is not read.", "Use keyfold.Json.")
        if kind == "string" and "enum" in node:
            values = [value for value in _values(node) if value is not None]
            self._extent.add_text(len(ENUM), len(values))
            symbols = {f"{ENUM}.{text}": text for text in map(str, values)}
            about["parameters"] = {ENUM: "", **symbols, **about.get("parameters", {})}
        made = Schema(type=_type_of(kind, node), **about)
        default = node.get("default")
        return made if default is None else replace(made, default=self._default(made, default))

    def _object(self, node: Mapping[str, Any], about: dict[str, Any]) -> Schema:
        if node.get("connect.type") == "map" or ("properties" not in node and "additionalProperties" in node):
            more = node.get("additionalProperties")
            values = self.schema(more) if isinstance(more, dict) else Schema(type=Type.STRING, optional=True)
            return Schema(type=Type.MAP, key_schema=Schema(type=Type.STRING), value_schema=values, **about)
        required = set(node.get("required") or ())
        ordered = sorted((node.get("properties") or {}).items(), key=lambda pair: _index(pair[1]))
        fields = (self._field(name, field, is_required=name in required) for name, field in ordered)
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
        "default": _default(schema),
    }
    node |= {name: value for name, value in about.items() if value is not None}
    if schema.optional:
        place = {} if index is None else {"connect.index": index}
        return {"oneOf": [{"type": "null"}, node], **place}
    return node if index is None else {**node, "connect.index": index}


def _default(schema: Schema) -> Any:
    """Returns the default as JSON has it; None if it has none: of bytes, also in lists, of structs, and NaN."""
    default = short_float(schema.default) if schema.type is Type.FLOAT32 and schema.default else schema.default
    if schema.type in {Type.BYTES, Type.STRUCT}:
        return None
    try:
        json.dumps(default, allow_nan=False)
    except (TypeError, ValueError):
        return None
    return default


def _required(schema: Schema) -> dict[str, Any]:
    if schema.type is Type.STRUCT:
        pairs = enumerate(schema.fields)
        properties = {field.name: to_json_schema(field.schema, place) for place, field in pairs}
        required = [field.name for field in schema.fields if not field.schema.optional]
        return {"type": "object", "properties": properties, **({"required": required} if required else {})}
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        return {"type": "array", "items": to_json_schema(schema.value_schema)}
    if schema.type is Type.MAP and schema.key_schema is not None and schema.value_schema is not None:
        return _map(schema.key_schema, schema.value_schema)
    if schema.name == DECIMAL:
        return {"type": "number", "connect.type": "bytes"}
    return _plain(schema)


def _plain(schema: Schema) -> dict[str, Any]:
    name = next((name for name, kind in NUMBERS.items() if kind is schema.type), None)
    if name is not None:
        return {"type": "number" if name.startswith("float") else "integer", "connect.type": name}
    if schema.type is Type.STRING and ENUM in (schema.parameters or {}):
        symbols = [symbol for name, symbol in (schema.parameters or {}).items() if name.startswith(f"{ENUM}.")]
        return {"type": "string", "enum": symbols}
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
    return NUMBERS.get(str(said), _PLAIN[kind])


def _index(node: Any) -> int:
    index = node.get("connect.index") if isinstance(node, dict) else None
    return index if isinstance(index, int) else 1 << 30


def _values(node: Mapping[str, Any]) -> list[Any]:
    """Returns the values that `enum` or `const` allows."""
    return _array_in(node, "enum") if "enum" in node else [node["const"]]


def _array_in(node: Mapping[str, Any], name: str) -> list[Any]:
    array = node[name]
    if not isinstance(array, list):
        raise DataError(f"The {name} of a JSON Schema is an array, and this is {shown(array)}.")
    return array


def _implied(node: Mapping[str, Any]) -> str:
    """Returns the type of a schema that names none, by what else it says, as Confluent's parser does."""
    implied = next((kind for kind, names in _SAYING.items() if names & node.keys()), None)
    if implied is None:
        raise DataError(f"A JSON Schema without a type is not read: {shown(dict(node))}.", "Use keyfold.Json.")
    return implied


class _Merged:
    """Merges the parts of one `allOf`: properties and required names of all parts, else the last word.

    Each member of each part is counted in `extent`, as parts may name one definition many times.
    """

    def __init__(self, extent: Extent) -> None:
        self._extent = extent
        # What all parts said so far; `add` extends each of them in place.
        self._node: dict[str, Any] = {}
        self._properties: dict[str, Any] = {}
        self._required: dict[str, None] = {}

    def add(self, part: Mapping[str, Any]) -> None:
        """Adds another part. Raises DataError for one of another type than those before, or for too many members."""
        properties, required = part.get("properties") or {}, part.get("required") or ()
        self._extent.add_members(len(part) + len(properties) + len(required))
        self._properties.update(properties)
        self._required.update(dict.fromkeys(required))
        kinds = {kind for kind in (self._node.get("type"), part.get("type")) if isinstance(kind, str)}
        if len(kinds) > 1 and kinds != {"integer", "number"}:
            raise DataError(
                f"allOf of a JSON Schema wants types at once that no value has: {', '.join(sorted(kinds))}."
            )
        self._node.update(part)
        if len(kinds) > 1:
            self._node["type"] = "integer"

    def node(self) -> dict[str, Any]:
        """Returns one object that says what all parts say together."""
        if self._properties:
            self._node["properties"] = self._properties
        if self._required:
            self._node["required"] = list(self._required)
        return self._node


def _several() -> DataError:
    return DataError("A JSON Schema with a union of several types is not read.", "Use keyfold.Json.")


def _version(value: Any) -> int:
    if not isinstance(value, int) or not is_int(value):
        raise DataError(f"The version of a schema is a whole number of 32 bits, and this is {shown(value)}.")
    return value
