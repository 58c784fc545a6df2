"""Finds the type of values without a schema, as plain JSON has them: what each field is in most records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import pyarrow as pa

from connectors.errors import DataError
from connectors.typed.arrow_types import DEEPEST, MOST_COLUMNS, parts_of
from connectors.typed.unite import WHOLE, source_of

_KINDS: Final[dict[type, str]] = {bool: "bool", int: "int", float: "float", str: "text", dict: "object", list: "list"}
_TYPES: Final = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "text": pa.string()}
_NUMBERS: Final = ("int", "float")
_EMPTY: Final = "empty"
"""The kind of objects and lists without members, which are not counted: each column of text takes them."""


class ValueShape(msgspec.Struct):
    """What values of one place are: how many of each kind, and the shapes of the fields and items in them.

    A null, and an object or list without members, says nothing.
    """

    counts: dict[str, int] = {}
    fields: dict[str, ValueShape] = {}
    items: ValueShape | None = None


class Shapes:
    """Collects the shape of many values, of no more than MOST_COLUMNS fields in all and DEEPEST levels."""

    def __init__(self, whole: ValueShape | None = None) -> None:
        self.whole = whole or ValueShape()
        # How many more fields may be added: a record may name any number of new ones.
        self._left = MOST_COLUMNS

    def add(self, values: Iterable[Any]) -> None:
        """Adds values; one that is no object is the field `value`."""
        alike: Counter[tuple[Any, ...]] = Counter()
        for value in values:
            if value is None:
                continue
            if not isinstance(value, dict):
                self._add(self.whole, {WHOLE: value}, 1, 1)
            elif any(type(member) is dict or type(member) is list for member in value.values()):
                self._add(self.whole, value, 1, 1)
            else:
                alike[tuple(value), tuple(map(type, value.values()))] += 1
        for (names, kinds), count in alike.items():
            for name, kind in zip(names, kinds, strict=True):
                self._count(self.whole, name, _KINDS.get(kind), count)

    def merge(self, other: ValueShape) -> None:
        """Adds all that another task has collected."""
        self._merge(self.whole, other)

    def _add(self, shape: ValueShape, value: Any, count: int, depth: int) -> None:
        kind = _KINDS.get(type(value))
        if kind is None:
            return
        if value in ({}, []):
            shape.counts.setdefault(_EMPTY, 0)
            return
        shape.counts[kind] = shape.counts.get(kind, 0) + count
        if depth <= DEEPEST and kind in {"object", "list"}:
            self._add_members(shape, value, count, depth + 1)

    def _add_members(self, shape: ValueShape, value: Any, count: int, depth: int) -> None:
        if isinstance(value, list):
            shape.items = shape.items or ValueShape()
            for item in value:
                self._add(shape.items, item, count, depth)
            return
        for name, member in value.items():
            inner = self._field(shape, name) if member is not None else None
            if inner is not None:
                self._add(inner, member, count, depth)

    def _count(self, shape: ValueShape, name: str, kind: str | None, count: int) -> None:
        inner = None if kind is None else self._field(shape, name)
        if inner is not None and kind is not None:
            inner.counts[kind] = inner.counts.get(kind, 0) + count

    def _field(self, shape: ValueShape, name: str) -> ValueShape | None:
        """Returns the shape of a field, which is made if there is none; None if there is no room for it."""
        inner = shape.fields.get(name)
        if inner is None and self._left > 0:
            self._left -= 1
            inner = shape.fields[name] = ValueShape()
        return inner

    def _merge(self, shape: ValueShape, other: ValueShape) -> None:
        for kind, count in other.counts.items():
            shape.counts[kind] = shape.counts.get(kind, 0) + count
        for name, theirs in other.fields.items():
            inner = self._field(shape, name)
            if inner is not None:
                self._merge(inner, theirs)
        if other.items is not None:
            shape.items = shape.items or ValueShape()
            self._merge(shape.items, other.items)


def columns_of(shape: ValueShape, kept: pa.StructType | None = None) -> pa.StructType:
    """Returns the columns of values of a shape.

    A field of `kept` keeps its type, but that whole numbers become doubles once there is one that is not whole. A new
    field gets the type that most of its values have.
    """
    before = {source_of(field): field.type for field in parts_of(kept)} if kept is not None else {}
    names = {**dict.fromkeys(before), **dict.fromkeys(shape.fields)}
    types = {name: _type_of(shape.fields.get(name), before.get(name)) for name in names}
    return pa.struct([pa.field(name, made) for name, made in types.items() if made is not None])


def _type_of(shape: ValueShape | None, kept: pa.DataType | None) -> pa.DataType | None:
    if shape is None:
        return kept
    if kept is None:
        return _new_type(shape)
    if pa.types.is_struct(kept):
        return columns_of(shape, kept)
    if pa.types.is_list(kept):
        return pa.list_(_type_of(shape.items, kept.value_type) or pa.string())
    return pa.float64() if kept == pa.int64() and shape.counts.get("float") else kept


def _new_type(shape: ValueShape) -> pa.DataType | None:
    counts = {kind: count for kind, count in shape.counts.items() if kind not in _NUMBERS and count}
    numbers = sum(shape.counts.get(kind, 0) for kind in _NUMBERS)
    if numbers:
        counts["float" if shape.counts.get("float") else "int"] = numbers
    if not counts:
        return pa.string() if _EMPTY in shape.counts else None
    kind = max(sorted(counts), key=counts.__getitem__)
    if kind == "object":
        columns = columns_of(shape)
        return columns if columns.num_fields else pa.string()
    if kind == "list":
        items = _new_type(shape.items) if shape.items is not None else None
        return pa.list_(items or pa.string())
    return _TYPES[kind]


def encode(shape: ValueShape) -> bytes:
    """Encodes a shape, for another process."""
    return msgspec.json.encode(shape)


def decode(data: bytes | str) -> ValueShape:
    """Decodes what `encode` has written. Raises DataError."""
    try:
        return msgspec.json.decode(data, type=ValueShape)
    except msgspec.MsgspecError as error:
        raise DataError(f"The shape of values cannot be read: {error}.") from None
