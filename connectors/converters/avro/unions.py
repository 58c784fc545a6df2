"""Turns the values of unions of several types into structs of one field that is not null, and back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from connectors.converters.avro.schemas import name_of
from connectors.data.bounds import Absences
from connectors.data.pace import paced, width_of
from connectors.data.schema import UNION, Schema, Type
from connectors.errors import DataError

Convert = Callable[[Any], Any]
_PYTHON: Final[dict[Type, tuple[type, ...]]] = {
    Type.INT8: (int,), Type.INT16: (int,), Type.INT32: (int,), Type.INT64: (int,), Type.FLOAT32: (float,),
    Type.FLOAT64: (float,), Type.BOOLEAN: (bool,), Type.STRING: (str,), Type.BYTES: (bytes,), Type.ARRAY: (list,),
    Type.MAP: (dict,),
}  # fmt: skip
BY_NAME: Final[dict[str, Any]] = {"return_named_type": True}
"""How fastavro reads unions: a value of a named type comes with the type's name."""
_SMALLEST: Final = {Type.INT32: 1 << 31, Type.INT16: 1 << 15, Type.INT8: 1 << 7}


def reader_of_unions(schema: Schema) -> Convert | None:
    """Returns what makes Connect's values of fastavro's, read with BY_NAME; None if there is no such union.

    It raises DataError for a record with more than MOST_ABSENT fields that are null in all of its unions.
    """
    if not _has_union(schema):
        return None
    absences = Absences()
    inner = _converter(schema, partial(_read_union, absences=absences), _unnamed)
    assert inner is not None  # as there is a union

    def read(value: Any) -> Any:
        absences.begin()
        return inner(value)

    return read


def writer_of_unions(schema: Schema, *, enums: bool = False) -> Convert | None:
    """Returns what makes fastavro's values of Connect's; None if they are the same. `enums`: see `ToAvro`."""
    return _converter(schema, partial(_write_union, enums=enums), _same)


def _has_union(schema: Schema) -> bool:
    inner = (schema.value_schema, *(field.schema for field in schema.fields))
    return schema.name == UNION or any(_has_union(part) for part in inner if part is not None)


def _converter(
    schema: Schema, of_union: Callable[[Schema], Convert], of_type: Callable[[Convert | None], Convert | None]
) -> Convert | None:
    """Returns what converts values of `schema`; `of_type` adds to it what values of named types need."""
    if schema.name == UNION:
        return of_union(schema)
    if schema.type is Type.STRUCT:
        return of_type(_of_struct(schema, of_union, of_type))
    inner = _converter(schema.value_schema, of_union, of_type) if schema.value_schema is not None else None
    if inner is None or schema.value_schema is None:
        return of_type(None) if name_of(schema, enums=True) else None
    width = width_of(schema.value_schema)
    if schema.type is Type.ARRAY:
        return lambda value: None if value is None else [inner(item) for item in paced(value, width)]
    return lambda value: None if value is None else {name: inner(item) for name, item in paced(value.items(), width)}


def _same(convert: Convert | None) -> Convert | None:
    return convert


def _unnamed(convert: Convert | None) -> Convert:
    """Takes the name off a value that was one of a type and null."""

    def unnamed(value: Any) -> Any:
        plain = value[1] if type(value) is tuple else value
        return plain if convert is None else convert(plain)

    return unnamed


def _of_struct(
    schema: Schema, of_union: Callable[[Schema], Convert], of_type: Callable[[Convert | None], Convert | None]
) -> Convert | None:
    pairs = ((field.name, _converter(field.schema, of_union, of_type)) for field in schema.fields)
    converters = {name: converter for name, converter in pairs if converter is not None}
    if not converters:
        return None

    def convert(value: Any) -> Any:
        if value is None:
            return None
        return {**value, **{name: converter(value.get(name)) for name, converter in converters.items()}}

    return convert


def _read_union(schema: Schema, absences: Absences) -> Convert:
    again = partial(_read_union, absences=absences)
    inner = {field.name: _converter(field.schema, again, _unnamed) for field in schema.fields}

    def read(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is tuple:
            name, value = value[0].rpartition(".")[2], value[1]
        else:
            name = _branch_of(schema, value)
        convert = inner[name]
        absences.add(len(inner) - 1)
        return {branch.name: None for branch in schema.fields} | {name: convert(value) if convert else value}

    return read


def _branch_of(schema: Schema, value: Any) -> str:
    """Returns which type without a name a value is of."""
    unnamed = (field for field in schema.fields if name_of(field.schema, enums=True) is None)
    name = next((field.name for field in unnamed if _fits(field.schema, value)), None)
    if name is None:
        raise DataError(f"A {type(value).__name__} is of no type of the union.")
    return name


def _write_union(schema: Schema, *, enums: bool) -> Convert:
    again = partial(_write_union, enums=enums)
    inner = {field.name: _converter(field.schema, again, _same) for field in schema.fields}
    names = {field.name: name_of(field.schema, enums=enums) for field in schema.fields}

    def write(value: Any) -> Any:
        if value is None:
            return None
        name = next((name for name, part in value.items() if part is not None), None)
        if name is None:
            return None
        convert, held = inner.get(name), value[name]
        made = convert(held) if convert is not None else held
        return made if names[name] is None else (names[name], made)

    return write


def _fits(schema: Schema, value: Any) -> bool:
    """Returns whether `value` can be of `schema`: of its type, of its bits."""
    kinds: Any = _PYTHON[schema.type]
    if not isinstance(value, kinds) or (isinstance(value, bool) and schema.type is not Type.BOOLEAN):
        return False
    bound = _SMALLEST.get(schema.type)
    return bound is None or bool(-bound <= value < bound)
