"""Makes Connect's defaults of those of Avro's schemas, which are JSON, and back."""

from __future__ import annotations

from typing import Any

from connectors.data.bounds import Absences
from connectors.data.schema import BITS, UNION, Schema, Type
from connectors.data.values import float32, short_float
from connectors.errors import DataError
from connectors.rejection import shown


def value_of_default(schema: Schema, node: Any, absences: Absences) -> Any:
    """Returns an Avro default as a value: that of a union is one of its first type, bytes are texts of their codes.

    `absences` counts the fields that it lacks. Raises DataError for what is no value of `schema`, as AvroData does.
    """
    match schema.type:
        case Type.STRUCT if schema.name == UNION:
            first = schema.fields[0]
            absences.add(len(schema.fields) - 1)
            held = value_of_default(first.schema, node, absences)
            return {field.name: None for field in schema.fields} | {first.name: held}
        case Type.STRUCT if isinstance(node, dict):
            absences.add(max(0, len(schema.fields) - len(node)))
            return {field.name: _inner(field.schema, node.get(field.name), absences) for field in schema.fields}
        case Type.ARRAY if isinstance(node, list) and schema.value_schema is not None:
            return [_inner(schema.value_schema, item, absences) for item in node]
        case Type.MAP if isinstance(node, dict) and schema.value_schema is not None:
            return {name: _inner(schema.value_schema, item, absences) for name, item in node.items()}
        case _:
            return _plain(schema, node)


def _inner(schema: Schema, node: Any, absences: Absences) -> Any:
    """Returns a part of a default; if a struct's default lacks a field, the field's own."""
    return schema.default if node is None else value_of_default(schema, node, absences)


def _plain(schema: Schema, node: Any) -> Any:
    bits = BITS.get(schema.type)
    if bits is not None and type(node) is int and -(1 << (bits - 1)) <= node < 1 << (bits - 1):
        return node
    if schema.type in {Type.FLOAT32, Type.FLOAT64} and type(node) in {int, float}:
        return _float(schema, node)
    if schema.type is Type.BYTES and isinstance(node, str) and all(ord(char) < 256 for char in node):
        return node.encode("latin-1")
    if (schema.type is Type.STRING and isinstance(node, str)) or (schema.type is Type.BOOLEAN and type(node) is bool):
        return node
    raise DataError(f"A default is no value of its type {schema.type.value}: {shown(node)}.")


def _float(schema: Schema, node: float) -> float:
    try:
        return float32(float(node)) if schema.type is Type.FLOAT32 else float(node)
    except OverflowError:
        raise DataError(f"A default is too large for its type {schema.type.value}: {shown(node)}.") from None


def avro_default(schema: Schema, value: Any) -> Any:
    """Returns a default as Avro's schema says it, in JSON."""
    match schema.type:
        case Type.STRUCT if schema.name == UNION:
            given = next((field for field in schema.fields if value.get(field.name) is not None), None)
            return None if given is None else avro_default(given.schema, value[given.name])
        case Type.STRUCT:
            return {field.name: _nested(field.schema, value.get(field.name)) for field in schema.fields}
        case Type.ARRAY if schema.value_schema is not None:
            return [_nested(schema.value_schema, item) for item in value]
        case Type.MAP if schema.value_schema is not None:
            return {name: _nested(schema.value_schema, item) for name, item in value.items()}
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return short_float(value) if schema.type is Type.FLOAT32 else value


def _nested(schema: Schema, value: Any) -> Any:
    return None if value is None else avro_default(schema, value)
