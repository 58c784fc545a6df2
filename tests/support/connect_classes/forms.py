"""Writes records, schemas and values as JSON, as `Classes.java` reads and writes them, with nothing lost."""

from __future__ import annotations

import base64
import json
import math
from decimal import Decimal
from typing import Any

from connectors.data.record import ConnectRecord, Header
from connectors.data.schema import Field, Schema, Type
from connectors.data.values import Date


def schema_form(schema: Schema | None) -> Any:
    """Returns a schema as JSON."""
    if schema is None:
        return None
    node: dict[str, Any] = {
        "type": schema.type.name,
        "optional": schema.optional or None,
        "name": schema.name,
        "version": schema.version,
        "doc": schema.doc,
        "parameters": dict(schema.parameters) if schema.parameters else None,
        "default": value_form(schema, schema.default),
    }
    if schema.type is Type.STRUCT:
        node["fields"] = [[one.name, schema_form(one.schema)] for one in schema.fields]
    if schema.type is Type.MAP:
        node["keys"] = schema_form(schema.key_schema)
    if schema.type in {Type.MAP, Type.ARRAY}:
        node["values"] = schema_form(schema.value_schema)
    return {name: one for name, one in node.items() if one is not None}


def schema_of(node: Any) -> Schema | None:
    """Returns the schema of its JSON."""
    if node is None:
        return None
    kind = Type[node["type"]]
    made = Schema(
        type=kind,
        optional=node.get("optional", False),
        name=node.get("name"),
        version=node.get("version"),
        doc=node.get("doc"),
        parameters=node.get("parameters"),
        fields=tuple(Field(name, schema_of(one) or Schema(type=kind)) for name, one in node.get("fields", ())),
        key_schema=schema_of(node.get("keys")),
        value_schema=schema_of(node.get("values")),
    )
    default = value_of(node.get("default"))
    return Schema(**{**{name: getattr(made, name) for name in Schema.__struct_fields__}, "default": default})


def value_form(schema: Schema | None, value: Any) -> Any:  # noqa: C901  # a line for each kind
    """Returns a value as JSON: null, or an object of its kind and what it holds."""
    match value:
        case None:
            return None
        case bool():
            return {"boolean": value}
        case Date():
            return {"date": int(value)}
        case int():
            return {"int": value}
        case float():
            return {"float": _float(value)}
        case str():
            return {"string": value}
        case bytes():
            return {"bytes": base64.b64encode(value).decode()}
        case Decimal():
            return {"decimal": str(value)}
        case list():
            inner = schema.value_schema if schema else None
            return {"list": [value_form(inner, one) for one in value]}
    if schema is not None and schema.type is Type.STRUCT:
        pairs = [[{"string": one.name}, value_form(one.schema, value.get(one.name))] for one in schema.fields]
        return {"dict": pairs}
    keys, values = (schema.key_schema, schema.value_schema) if schema else (None, None)
    return {"dict": [[value_form(keys, name), value_form(values, one)] for name, one in value.items()]}


def _float(value: float) -> str:
    return "NaN" if math.isnan(value) else repr(value).replace("inf", "Infinity")


def value_of(node: Any) -> Any:
    """Returns the value of its JSON."""
    if node is None:
        return None
    ((kind, held),) = node.items()
    if kind == "list":
        return [value_of(one) for one in held]
    if kind == "dict":
        return {_hashable(value_of(name)): value_of(one) for name, one in held}
    kinds: dict[str, Any] = {"bytes": base64.b64decode, "float": float, "decimal": Decimal, "date": Date}
    return kinds[kind](held) if kind in kinds else held


def _hashable(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list) else value


def record_form(record: ConnectRecord) -> dict[str, Any]:
    """Returns a record that is asked about as JSON."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key_schema": schema_form(record.key_schema),
        "key": value_form(record.key_schema, record.key),
        "value_schema": schema_form(record.value_schema),
        "value": value_form(record.value_schema, record.value),
        "headers": [[one.key, base64.b64encode(one.value).decode()] for one in record.headers],
    }


def record_of(node: dict[str, Any]) -> ConnectRecord:
    """Returns the record of its JSON."""
    key_schema, value_schema = schema_of(node["key_schema"]), schema_of(node["value_schema"])
    headers = tuple(Header(name, base64.b64decode(value)) for name, value in node["headers"])
    return ConnectRecord(
        node["topic"], node["partition"], node["offset"], node["timestamp"],
        key_schema, value_of(node["key"]), value_schema, value_of(node["value"]), headers,
    )  # fmt: skip


def result_form(record: ConnectRecord | None) -> Any:
    """Returns what a transform has made of a record, as Java's classes answer it."""
    if record is None:
        return None
    return {
        "topic": record.topic,
        "key": pair_form(record.key_schema, record.key),
        "value": pair_form(record.value_schema, record.value),
        "headers": [[one.key, pair_form(one.schema, one.value)] for one in record.headers],
    }


def pair_form(schema: Schema | None, value: Any) -> list[Any]:
    """Returns schema and value as JSON."""
    return [schema_form(schema), value_form(schema, value)]


def comparable(node: Any) -> Any:
    """Returns JSON of a result in which what means the same is equal: orders of maps, digits of floats, no parts."""
    if isinstance(node, dict):
        if node.keys() == {"dict"}:
            return {"dict": sorted((comparable(pair) for pair in node["dict"]), key=json.dumps)}
        if node.keys() == {"float"}:
            return {"float": repr(float(node["float"]))}
        return {name: comparable(one) for name, one in node.items() if _says(name, one)}
    return [comparable(one) for one in node] if isinstance(node, list) else node


def _says(name: str, part: Any) -> bool:
    """Returns whether a part of a schema says anything; of a value all does."""
    return part is not None and (part is not False or name == "boolean")
