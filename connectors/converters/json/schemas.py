"""Reads and writes Connect's schemas as JsonConverter has them: an object next to the payload.

Source: `org.apache.kafka.connect.json.JsonConverter`, asConnectSchema and asJsonSchema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from connectors.data.bounds import Extent, is_int
from connectors.data.schema import Field, Schema, Type
from connectors.errors import DataError
from connectors.rejection import shown

_NAMED: Final = {kind.value: kind for kind in Type}
FIX: Final = "Correct what writes the schema; docs/converters.md has the form."

Default = Callable[[Schema, Any], Any]
"""Reads a default, which has the form of a value of its schema."""


def read_schema(node: Any, default: Default) -> Schema:
    """Makes a schema of its JSON form. Raises DataError, which names what is missing or wrong."""
    return _read_schema(node, default, Extent())


def _read_schema(node: Any, default: Default, extent: Extent) -> Schema:
    with extent:
        return _made(node, default, extent)


def _made(node: Any, default: Default, extent: Extent) -> Schema:
    if not isinstance(node, dict):
        raise DataError(f"A schema is a JSON object, and this is {shown(node)}.", FIX)
    kind = _NAMED.get(str(node.get("type")))
    if kind is None:
        raise DataError(f'A schema has a "type" of {", ".join(_NAMED)}; this has {shown(node.get("type"))}.', FIX)
    made = Schema(
        type=kind,
        optional=node.get("optional") is True,
        name=_text(node, "name"),
        version=_version(node),
        doc=_text(node, "doc"),
        parameters=_parameters(node),
        fields=_fields(node, default, extent) if kind is Type.STRUCT else (),
        key_schema=_inner(node, "keys", default, extent) if kind is Type.MAP else None,
        value_schema=_inner(node, "items" if kind is Type.ARRAY else "values", default, extent)
        if kind in {Type.ARRAY, Type.MAP}
        else None,
    )
    given = node.get("default")
    if given is None:
        return made
    return replace(made, default=default(made, given))


def write_schema(schema: Schema, default: Default, field: str | None = None) -> dict[str, Any]:
    """Makes the JSON form of `schema`, in the order in which Java's class writes it."""
    node: dict[str, Any] = {"type": schema.type.value}
    if schema.type is Type.STRUCT:
        node["fields"] = [write_schema(member.schema, default, member.name) for member in schema.fields]
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        node["items"] = write_schema(schema.value_schema, default)
    if schema.type is Type.MAP and schema.key_schema is not None and schema.value_schema is not None:
        node["keys"] = write_schema(schema.key_schema, default)
        node["values"] = write_schema(schema.value_schema, default)
    node["optional"] = schema.optional
    more = {"name": schema.name, "version": schema.version, "doc": schema.doc, "parameters": schema.parameters or None}
    node.update({name: value for name, value in more.items() if value is not None})
    if schema.default is not None:
        node["default"] = default(schema, schema.default)
    return node if field is None else {**node, "field": field}


def _fields(node: Mapping[str, Any], default: Default, extent: Extent) -> tuple[Field, ...]:
    fields = node.get("fields")
    if not isinstance(fields, list):
        raise DataError('A schema of type struct has "fields", a list of schemas.', FIX)
    return tuple(_field(field, default, extent) for field in fields)


def _field(node: Any, default: Default, extent: Extent) -> Field:
    name = node.get("field") if isinstance(node, dict) else None
    if not isinstance(name, str):
        raise DataError('Each of the "fields" of a struct has its name as "field".', FIX)
    return Field(name, _read_schema(node, default, extent))


def _inner(node: Mapping[str, Any], name: str, default: Default, extent: Extent) -> Schema:
    if node.get(name) is None:
        raise DataError(f'A schema of type {node["type"]} has "{name}", a schema.', FIX)
    return _read_schema(node[name], default, extent)


def _text(node: Mapping[str, Any], name: str) -> str | None:
    text = node.get(name)
    return text if isinstance(text, str) else None


def _version(node: Mapping[str, Any]) -> int | None:
    version = node.get("version")
    if version is not None and (type(version) is not int or not is_int(version)):
        raise DataError(f"The version of a schema is a whole number of 32 bits, and this is {shown(version)}.", FIX)
    return version


def _parameters(node: Mapping[str, Any]) -> dict[str, str] | None:
    parameters = node.get("parameters")
    if parameters is None:
        return None
    if not isinstance(parameters, dict) or not all(isinstance(text, str) for text in parameters.values()):
        raise DataError("The parameters of a schema are an object of texts.", FIX)
    return parameters
