"""Finds the type of values without a schema, as plain JSON has them: what each field is in most records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, Final

import msgspec
import pyarrow as pa

from compactor.ports import WHOLE
from connectors.typed.arrow_types import DEEPEST, MOST_COLUMNS, MOST_NAMES, Place, leaf_count, name_bytes, parts_of
from connectors.typed.unite import source_of

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
    """Collects the shape of many values, of no more than DEEPEST levels, and of the fields that most values have.

    A record may name any number of new fields. Twice as many as a layout may have are counted. Once there are more,
    those of the fewest values are forgotten.
    """

    def __init__(self) -> None:
        self.whole = ValueShape()
        # How many more fields, and bytes of their names, may be added.
        self._left = 2 * MOST_COLUMNS
        self._names_left = 2 * MOST_NAMES
        # Whether there was no room for a field since the last `_make_room`.
        self._is_full = False

    def add(self, values: Iterable[Any]) -> None:
        """Adds values; one that is no object is the field `value`."""
        alike: Counter[tuple[Any, ...]] = Counter()
        for value in values:
            if value is None:
                continue
            self._make_room()
            if not isinstance(value, dict):
                self._add(self.whole, {WHOLE: value}, 1, 1)
            elif any(type(member) is dict or type(member) is list for member in value.values()):
                self._add(self.whole, value, 1, 1)
            else:
                alike[tuple(value), tuple(map(type, value.values()))] += 1
        for (names, kinds), count in alike.items():
            self._make_room()
            for name, kind in zip(names, kinds, strict=True):
                self._count(self.whole, name, _KINDS.get(kind), count)

    def merge(self, other: ValueShape) -> None:
        """Adds all that another task has collected."""
        self._make_room()
        self._merge(self.whole, other)

    def _make_room(self) -> None:
        """Forgets the fields of the fewest values, if there was no room for another one."""
        if self._is_full:
            fields, names = keep_most_frequent(self.whole)
            self._left, self._names_left = 2 * MOST_COLUMNS - fields, 2 * MOST_NAMES - names
            self._is_full = False

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
        if inner is None:
            if self._left <= 0 or len(name) > self._names_left:
                self._is_full = True
                return None
            self._left -= 1
            self._names_left -= len(name)
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


def keep_most_frequent(shape: ValueShape, kept: pa.DataType | None = None) -> tuple[int, int]:
    """Leaves in `shape` the fields that most values have, MOST_COLUMNS with MOST_NAMES at most.

    A field of `kept` comes before others of as many values, and counts as one of one value at least. Returns how many
    fields there are then, those that hold others among them, and the length of their names.
    """
    fields = leaves = names = 0
    for _, outer, name in sorted(_ranked(shape, kept, None), key=itemgetter(0), reverse=True):
        is_leaf = not _has_fields(outer.fields[name])
        if leaves + is_leaf <= MOST_COLUMNS and names + len(name) <= MOST_NAMES:
            fields, leaves, names = fields + 1, leaves + is_leaf, names + len(name)
        else:
            del outer.fields[name]
    return fields, names


def _has_fields(shape: ValueShape | None) -> bool:
    return shape is not None and (bool(shape.fields) or _has_fields(shape.items))


def _ranked(
    shape: ValueShape, kept: pa.DataType | None, most: int | None
) -> Iterator[tuple[tuple[int, bool], ValueShape, str]]:
    """Yields each field within `shape`, the outer ones first: how it ranks, the shape that it is in, and its name.

    It ranks by its values, of which it has no more than what it is in: a list of one record may have many items.
    """
    before = _fields_of(kept)
    for name, inner in shape.fields.items():
        is_kept = name in before
        values = max(sum(inner.counts.values()), is_kept)
        values = values if most is None else min(values, most)
        yield (values, is_kept), shape, name
        yield from _ranked(inner, before.get(name), values)
    if shape.items is not None:
        yield from _ranked(shape.items, _items_of(kept), most)


def columns_of(shape: ValueShape, kept: pa.StructType | None = None) -> pa.StructType:
    """Returns the columns of values of a shape, as many as may be (`arrow_types.check_size`).

    A field of `kept` keeps its type, but that whole numbers become doubles once there is one that is not whole. A new
    field gets the type that most of its values have. If there is no room for all, those of the most values are there;
    of equally many values that of `kept`.
    """
    before = pa.struct([]) if kept is None else kept
    made = _Columns(before)
    columns = made.struct(shape, before, Place())
    if made.has_room:
        return columns
    every = _with_kept(shape, before)
    keep_most_frequent(every, before)
    stays = _that_stay(before, every)
    return _Columns(stays).struct(every, stays, Place())


def _with_kept(shape: ValueShape | None, kept: pa.DataType | None) -> ValueShape:
    """Returns a copy of `shape` with the fields of `kept`, first of all; one that no value has is without counts."""
    own, before, items = shape or ValueShape(), _fields_of(kept), _items_of(kept)
    names = dict.fromkeys([*before, *own.fields])
    return ValueShape(
        counts=dict(own.counts),
        fields={name: _with_kept(own.fields.get(name), before.get(name)) for name in names},
        items=None if own.items is None and items is None else _with_kept(own.items, items),
    )


def _that_stay(kept: pa.DataType, shape: ValueShape) -> pa.DataType:
    """Returns `kept` with those fields alone that `shape` has."""
    if pa.types.is_struct(kept):
        fields = ((field, shape.fields.get(source_of(field))) for field in parts_of(kept))
        return pa.struct([field.with_type(_that_stay(field.type, own)) for field, own in fields if own is not None])
    if pa.types.is_list(kept) and shape.items is not None:
        return pa.list_(_that_stay(kept.value_type, shape.items))
    return kept


def _fields_of(kept: pa.DataType | None) -> dict[str, pa.DataType]:
    if kept is None or not pa.types.is_struct(kept):
        return {}
    return {source_of(field): field.type for field in parts_of(kept)}


def _items_of(kept: pa.DataType | None) -> pa.DataType | None:
    return kept.value_type if kept is not None and pa.types.is_list(kept) else None


class _Columns:
    """Makes the columns of one shape. Those that are kept have their room; the new ones get what is left of it."""

    def __init__(self, kept: pa.StructType) -> None:
        # How many leaf columns, and bytes of their names, may still be added.
        self._left = MOST_COLUMNS - (leaf_count(kept) if kept.num_fields else 0)
        self._names_left = MOST_NAMES - name_bytes(kept)
        # Whether there was room for each column that is not too deep.
        self.has_room = True

    def struct(self, shape: ValueShape, kept: pa.StructType | None, place: Place) -> pa.StructType:
        before = _fields_of(kept)
        names = {**dict.fromkeys(before), **dict.fromkeys(shape.fields)}
        types = {name: self._type(shape.fields.get(name), before.get(name), place.inside(name)) for name in names}
        return pa.struct([pa.field(name, made) for name, made in types.items() if made is not None])

    def _type(self, shape: ValueShape | None, kept: pa.DataType | None, place: Place) -> pa.DataType | None:
        if shape is None:
            return kept
        if kept is None:
            return self._new(shape, place)
        if pa.types.is_struct(kept):
            return self.struct(shape, kept, place)
        if pa.types.is_list(kept):
            return pa.list_(self._type(shape.items, kept.value_type, place.inside("")) or pa.string())
        return pa.float64() if kept == pa.int64() and shape.counts.get("float") else kept

    def _new(self, shape: ValueShape, place: Place) -> pa.DataType | None:
        counts = {kind: count for kind, count in shape.counts.items() if kind not in _NUMBERS and count}
        numbers = sum(shape.counts.get(kind, 0) for kind in _NUMBERS)
        if numbers:
            counts["float" if shape.counts.get("float") else "int"] = numbers
        if not counts:
            return self._leaf(pa.string(), place) if _EMPTY in shape.counts else None
        kind = max(sorted(counts), key=counts.__getitem__)
        if kind == "object":
            columns = self.struct(shape, None, place)
            return columns if columns.num_fields else self._leaf(pa.string(), place)
        if kind == "list":
            inside = place.inside("")
            items = self._new(shape.items, inside) if shape.items is not None else None
            items = items or self._leaf(pa.string(), inside)
            return None if items is None else pa.list_(items)
        return self._leaf(_TYPES[kind], place)

    def _leaf(self, made: pa.DataType, place: Place) -> pa.DataType | None:
        """Returns `made`; None if there is no room for a column of it."""
        if place.depth > DEEPEST:
            return None
        if self._left <= 0 or place.names > self._names_left:
            self.has_room = False
            return None
        self._left -= 1
        self._names_left -= place.names
        return made
