"""Turns the values of unions of several types into structs of one field that is not null, and back.

On its own because only schemas with such unions need any of it: all other values of Avro are Connect's as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from connectors.data.schema import UNION, Schema, Type
from connectors.errors import DataError

Convert = Callable[[Any], Any]
_PYTHON: Final[dict[Type, tuple[type, ...]]] = {
    Type.INT8: (int,), Type.INT16: (int,), Type.INT32: (int,), Type.INT64: (int,), Type.FLOAT32: (float,),
    Type.FLOAT64: (float,), Type.BOOLEAN: (bool,), Type.STRING: (str,), Type.BYTES: (bytes,), Type.ARRAY: (list,),
    Type.MAP: (dict,), Type.STRUCT: (dict,),
}  # fmt: skip
_SMALLEST: Final = {Type.INT32: 1 << 31, Type.INT16: 1 << 15, Type.INT8: 1 << 7}


def reader_of_unions(schema: Schema) -> Convert | None:
    """Returns what makes Connect's values of fastavro's; None where they are the same."""
    return _converter(schema, _read_union)


def writer_of_unions(schema: Schema) -> Convert | None:
    """Returns what makes fastavro's values of Connect's; None where they are the same."""
    return _converter(schema, _write_union)


def _converter(schema: Schema, of_union: Callable[[Schema], Convert]) -> Convert | None:
    if schema.name == UNION:
        return of_union(schema)
    if schema.type is Type.STRUCT:
        return _of_struct(schema, of_union)
    inner = _converter(schema.value_schema, of_union) if schema.value_schema is not None else None
    if inner is None:
        return None
    if schema.type is Type.ARRAY:
        return lambda value: None if value is None else [inner(one) for one in value]
    return lambda value: None if value is None else {name: inner(one) for name, one in value.items()}


def _of_struct(schema: Schema, of_union: Callable[[Schema], Convert]) -> Convert | None:
    found = ((field.name, _converter(field.schema, of_union)) for field in schema.fields)
    converters = {name: one for name, one in found if one is not None}
    if not converters:
        return None

    def convert(value: Any) -> Any:
        if value is None:
            return None
        return {**value, **{name: one(value.get(name)) for name, one in converters.items()}}

    return convert


def _read_union(schema: Schema) -> Convert:
    inner = {field.name: _converter(field.schema, _read_union) for field in schema.fields}

    def read(value: Any) -> Any:
        if value is None:
            return None
        field = next((one for one in schema.fields if _fits(one.schema, value)), None)
        if field is None:
            raise DataError(f"A {type(value).__name__} is of no type of the union.")
        convert = inner[field.name]
        return {one.name: None for one in schema.fields} | {field.name: convert(value) if convert else value}

    return read


def _write_union(schema: Schema) -> Convert:
    inner = {field.name: _converter(field.schema, _write_union) for field in schema.fields}

    def write(value: Any) -> Any:
        if value is None:
            return None
        name = next((name for name, one in value.items() if one is not None), None)
        convert = inner.get(name) if name is not None else None
        found = None if name is None else value[name]
        return convert(found) if convert is not None else found

    return write


def _fits(schema: Schema, value: Any) -> bool:
    """Returns whether `value` can be of `schema`: of its type, of its bits, with its fields."""
    kinds: Any = _PYTHON[schema.type]
    if not isinstance(value, kinds) or (isinstance(value, bool) and schema.type is not Type.BOOLEAN):
        return False
    bound = _SMALLEST.get(schema.type)
    if bound is not None:
        return bool(-bound <= value < bound)
    return schema.type is not Type.STRUCT or set(value) == {field.name for field in schema.fields}
