"""Makes the arrays of a typed snapshot's columns of values, column by column.

What an `Encode` is given are values of one schema, or of none, in which None stands for a null. It raises DataError,
or what Arrow raises, if any of them does not fit: the caller then tries them one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from compactor.ports import WHOLE
from connectors.data.schema import Field, Schema, Type
from connectors.errors import DataError
from connectors.typed import arrow_types, plain_leaves
from connectors.typed.arrow_types import leaf_count, parts_of
from connectors.typed.unite import MisfitError, source_of, united

Encode = Callable[[list[Any]], pa.Array]
StructEncode = Callable[[pa.StructArray], pa.Array]
MOST_CELLS: Final = 2 << 20
"""Cells that the structs of one column may have in columns which their own schema lacks: a list of a million structs
of one field, in a column of structs of a thousand, would be gigabytes of nulls."""
_NONE: Final = type(None)


def encoder(schema: Schema | None, columns: pa.StructType) -> Encode:
    """Returns what makes structs of `columns` (`unite.named`) of values with `schema`, or without one.

    A value that is no struct is the field `value`. Raises MisfitError if no value of the schema fits, DataError.
    """
    if schema is None:
        inner = _struct_without_schema(columns, ())
        return lambda values: inner([_as_struct(value) for value in values])
    if schema.type is Type.STRUCT and not arrow_types.is_leaf(schema):
        return _struct(schema, columns, ())
    inner = _struct(Schema(type=Type.STRUCT, fields=(Field(WHOLE, schema),)), columns, ())
    return lambda values: inner([{WHOLE: value} for value in values])


def struct_encoder(schema: Schema, columns: pa.StructType) -> Callable[[pa.StructArray], pa.Array]:
    """Returns what makes structs of `columns` of structs with `schema`, with fields in their encoded form.

    Raises MisfitError as `encoder`, and for lists and maps.
    """
    return _struct_of_arrays(schema, columns, ())


def _struct_of_arrays(schema: Schema, target: pa.StructType, path: tuple[str, ...]) -> Callable[[pa.Array], pa.Array]:
    own, fields = schema.by_name(), parts_of(target)
    names = [source_of(field) for field in fields]
    encoders = {
        name: _of_array(own[name].schema, field.type, (*path, name))
        for name, field in zip(names, fields, strict=True)
        if name in own
    }
    places = {field.name: place for place, field in enumerate(schema.fields)}

    def made(structs: pa.Array) -> pa.Array:
        arrays = [
            encoders[name](structs.field(places[name])) if name in encoders else pa.nulls(len(structs), field.type)
            for name, field in zip(names, fields, strict=True)
        ]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=structs.is_null())

    return made


def _of_array(schema: Schema, target: pa.DataType, path: tuple[str, ...]) -> Callable[[pa.Array], pa.Array]:
    if arrow_types.is_leaf(schema):
        return _leaf(schema, target, path)
    if schema.type is Type.STRUCT and pa.types.is_struct(target):
        return _struct_of_arrays(schema, target, path)
    raise MisfitError(path, target, arrow_types.type_of(schema))


def _as_struct(value: Any) -> Any:
    return value if value is None or isinstance(value, dict) else {WHOLE: value}


def _of(schema: Schema, target: pa.DataType, path: tuple[str, ...]) -> Encode:
    if arrow_types.is_leaf(schema):
        return _leaf(schema, target, path)
    if schema.type is Type.STRUCT and pa.types.is_struct(target):
        return _struct(schema, target, path)
    if schema.value_schema is not None and schema.key_schema is None and pa.types.is_list(target):
        return _list(target, _of(schema.value_schema, target.value_type, path))
    if schema.value_schema is not None and schema.key_schema is not None and pa.types.is_map(target):
        return _map(
            target, _of(schema.key_schema, target.key_type, path), _of(schema.value_schema, target.item_type, path)
        )
    raise MisfitError(path, target, arrow_types.type_of(schema))


def _leaf(schema: Schema, target: pa.DataType, path: tuple[str, ...]) -> arrow_types.ToArray:
    own, to_array = arrow_types.leaf_of(schema)
    if own == target:
        return to_array
    if united(target, own, path) != target:
        raise MisfitError(path, target, own)
    return lambda values: to_array(values).cast(target)


def _struct(schema: Schema, target: pa.DataType, path: tuple[str, ...]) -> Encode:
    own, fields = schema.by_name(), parts_of(target)
    names = [source_of(field) for field in fields]
    if missing := own.keys() - set(names):
        raise MisfitError((*path, min(missing)), pa.null(), arrow_types.type_of(own[min(missing)].schema))
    encoders = [
        _of(own[name].schema, field.type, (*path, name)) if name in own else None
        for name, field in zip(names, fields, strict=True)
    ]
    return _structs(fields, names, encoders)


def _structs(fields: Sequence[pa.Field], names: Sequence[str], encoders: Sequence[Encode | None]) -> Encode:
    """Returns what makes structs; a field without an encoder is null in all."""
    absent = sum(leaf_count(field.type) for field, own in zip(fields, encoders, strict=True) if own is None)

    def made(values: list[Any]) -> pa.Array:
        count = len(values)
        if absent * count > MOST_CELLS:
            raise DataError(f"Its structs lack more than {MOST_CELLS} fields of their column.")
        nulls = [value is None for value in values]
        some = any(nulls)
        arrays = [
            pa.nulls(count, field.type) if own is None else own(_members(values, name, some=some))
            for field, name, own in zip(fields, names, encoders, strict=True)
        ]
        if not fields:
            return pa.array([None if is_null else {} for is_null in nulls], pa.struct([]))
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(nulls, pa.bool_()) if some else None)

    return made


def _members(values: list[Any], name: str, *, some: bool) -> list[Any]:
    """Returns the member `name` of each value; `some` of these are None."""
    if some:
        return [None if value is None else value.get(name) for value in values]
    return [value.get(name) for value in values]


def _list(target: pa.DataType, items: Encode) -> Encode:
    def made(values: list[Any]) -> pa.Array:
        flat = items(list(chain.from_iterable(value for value in values if value)))
        return pa.ListArray.from_arrays(_offsets(values), flat, type=target, mask=_mask(values))

    return made


def _map(target: pa.DataType, keys: Encode, items: Encode) -> Encode:
    def made(values: list[Any]) -> pa.Array:
        entries = [value for value in values if value]
        of_keys = keys(list(chain.from_iterable(entries)))
        of_items = items(list(chain.from_iterable(value.values() for value in entries)))
        return pa.MapArray.from_arrays(_offsets(values), of_keys, of_items, target, mask=_mask(values))

    return made


def _offsets(values: Iterable[Any]) -> pa.Array:
    return pa.array(np.cumsum([0, *(len(value) if value else 0 for value in values)]), pa.int32())


def _mask(values: Iterable[Any]) -> pa.Array | None:
    nulls = [value is None for value in values]
    return pa.array(nulls, pa.bool_()) if any(nulls) else None


def _without_schema(target: pa.DataType, path: tuple[str, ...]) -> Encode:
    if pa.types.is_struct(target):
        return _struct_without_schema(target, path)
    if pa.types.is_list(target):
        inner = _list(target, _without_schema(target.value_type, path))
        return lambda values: inner(_checked(values, frozenset({list, _NONE}), target, path))
    if pa.types.is_map(target):
        inner = _map(target, lambda names: pa.array(names, pa.string()), _without_schema(target.item_type, path))
        return lambda values: inner(_checked(values, frozenset({dict, _NONE}), target, path))
    kinds, to_array = plain_leaves.leaf(target)

    def made(values: list[Any]) -> pa.Array:
        texts = [_text(value) for value in values] if target == pa.string() else values
        try:
            return to_array(_checked(texts, kinds, target, path))
        except pa.ArrowInvalid as error:
            raise _misfit(path, "value", target) from error

    return made


def _struct_without_schema(target: pa.DataType, path: tuple[str, ...]) -> Encode:
    fields = parts_of(target)
    names = [source_of(field) for field in fields]
    encoders = [_without_schema(field.type, (*path, name)) for field, name in zip(fields, names, strict=True)]
    inner, known = _structs(fields, names, encoders), frozenset(names)

    def made(values: list[Any]) -> pa.Array:
        for value in _checked(values, frozenset({dict, _NONE}), target, path):
            if value and not known.issuperset(value):
                strange = [name for name in value if name not in known and value[name] is not None]
                if strange:
                    raise DataError(f"{'.'.join((*path, strange[0]))[:200]}: there is no column of this name.")
        return inner(values)

    return made


def _checked(values: list[Any], kinds: frozenset[type], target: pa.DataType, path: tuple[str, ...]) -> list[Any]:
    """Returns `values`. Raises DataError if one is of another type than `kinds`."""
    strange = {type(value) for value in values} - kinds
    if strange:
        name = min(kind.__name__ for kind in strange)
        raise _misfit(path, name, target)
    return values


def _misfit(path: tuple[str, ...], name: str, target: pa.DataType) -> DataError:
    return DataError(f"{'.'.join(path)[:200]}: a {name} does not fit a column of {str(target)[:100]}.")


def _text(value: Any) -> Any:
    """Returns the text of an object or list without members, which has no columns; other values as they are."""
    return "{}" if value == {} else "[]" if value == [] else value
