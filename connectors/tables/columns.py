"""Says which columns a table has of those of a typed snapshot, and makes its rows. Pure.

Neither format has a time of day that all engines read, Iceberg no integers below 32 bits; both count microseconds. A
table keeps its columns: those of the next snapshot are united with them by name, and a type becomes the wider of both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from connectors.data.column_paths import has_dot, paths
from connectors.tables.positions import PLACE


class TableFormat(NamedTuple):
    """What a format has: `leaf` returns its type for one without parts; no column may have a name of `reserved`.

    `identity` returns the paths, below a path, of the parts of a key that together tell a row by it in the format; none
    if the format has no such columns, or takes none of this type.
    """

    leaf: Callable[[pa.DataType], pa.DataType]
    reserved: frozenset[str] = frozenset()
    identity: Callable[[str, pa.DataType], tuple[str, ...]] = lambda _path, _kind: ()


_WHOLE: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_FLOATS: Final = (pa.float32(), pa.float64())
_MICROS: Final = (pa.timestamp("us"), pa.timestamp("us", "UTC"))
_DAY_US: Final = 86_400_000_000
_DAYS: Final = (-719_162, 2_932_897)
"""Days from 1970 to the first of year 1, and to the first of year 10000."""


def _delta_leaf(kind: pa.DataType) -> pa.DataType:
    # Delta has no time of day. Iceberg has it, but Spark reads no table with such a column, not even the others.
    return pa.string() if pa.types.is_time(kind) else _in_micros(kind)


def _iceberg_leaf(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if kind in _WHOLE[:2] else _delta_leaf(kind)


_MOST_PARTS: Final = 100
"""Parts of a key that are identifier fields: each is looked up in the schema with each commit."""


def _iceberg_identity(path: str, kind: pa.DataType) -> tuple[str, ...]:
    # By Iceberg's specification: no floats, nothing in a list or map; and a name with a dot would be another path.
    if pa.types.is_struct(kind):
        parts = [() if "." in part.name else _iceberg_identity(f"{path}.{part.name}", part.type) for part in kind]
        every = tuple(chain.from_iterable(parts))
        return every if all(parts) and len(every) <= _MOST_PARTS else ()
    return () if pa.types.is_nested(kind) or pa.types.is_floating(kind) else (path,)


# Spark refuses `SELECT *` from a table with a column of a name that Iceberg has for its own metadata.
_ICEBERG_RESERVED: Final = frozenset(
    ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number")
)
DELTA: Final = TableFormat(_delta_leaf)
ICEBERG: Final = TableFormat(_iceberg_leaf, _ICEBERG_RESERVED, _iceberg_identity)


def names_in(table: TableFormat, names: Sequence[str]) -> list[str]:
    """Returns the names that columns of a snapshot have in a table: `_partition` is `_source_partition` in Iceberg.

    A field that has that name gets another one: the column of a row's place must not depend on what records hold.
    """
    places: dict[str, str] = {name: f"_source{name}" for name in PLACE if name in table.reserved and name in names}
    taken = {name.lower() for name in names}.union(places.values())
    return [places.get(name) or _named(name, table, places.values(), taken) for name in names]


def _named(name: str, table: TableFormat, places: Collection[str], taken: Collection[str]) -> str:
    if name.lower() in table.reserved:
        return _free(f"_source{name}", taken)
    return _free(f"{name}_2", taken) if name.lower() in places else name


def _free(name: str, taken: Collection[str]) -> str:
    return name if name.lower() not in taken else _free(f"{name}_2", taken)


def fitting(schema: pa.Schema, table: TableFormat) -> pa.Schema:
    """Returns the columns that a table has for a snapshot of `schema`; all may be null."""
    kinds = [_fitting(kind, table.leaf) for kind in schema.types]
    return pa.schema(list(zip(names_in(table, schema.names), kinds, strict=True)))


def optional(schema: pa.Schema) -> pa.Schema:
    """Returns the columns of `schema`, with all their parts, as ones that may be null."""
    return pa.schema([(field.name, _fitting(field.type, lambda leaf: leaf)) for field in schema])


def united(old: pa.Schema, new: pa.Schema) -> tuple[pa.Schema, tuple[str, ...]]:
    """Unites the columns of a table with those of its next version, by name whatever the case.

    Returns them, and the names of those that get a type which the old one cannot become, or that go: one that the next
    version lacks has the path of a column of that version.
    """
    newer = {field.name.lower(): field for field in new}
    newer_paths = _dotted_paths(old, new)
    conflicts: list[str] = []
    fields: list[pa.Field] = []
    for field in old:
        if field.name.lower() not in newer and not newer_paths.isdisjoint(paths(field.type, field.name.lower())):
            conflicts.append(field.name)
            continue
        other = newer.pop(field.name.lower(), field)
        kind = _wider(field.type, other.type) if field.name == other.name else None
        if kind is None:
            conflicts.append(other.name)
        fields.append(pa.field(other.name, other.type if kind is None else kind))
    return pa.schema([*fields, *newer.values()]), tuple(conflicts)


def _dotted_paths(old: pa.Schema, new: pa.Schema) -> set[str]:
    """Returns the paths of `new` if they may be those of other columns of `old`, otherwise none."""
    both = pa.struct(list(old)), pa.struct(list(new))
    return set(paths(both[1])) if any(map(has_dot, both)) else set()


def is_promoted(old: pa.Schema, new: pa.Schema) -> bool:
    """Returns whether a column of `old` has another type in `new`."""
    types = {field.name: field.type for field in new}
    return any(types.get(field.name) != field.type for field in old)


def rows_of(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns the rows of `table` with the columns of `schema`: those that it lacks are null.

    What lies below a microsecond is cut.
    """
    columns = dict(zip(table.column_names, table.columns, strict=True))  # thousands: each look-up by name is linear
    arrays = [
        columns[field.name].cast(field.type, safe=False)
        if field.name in columns
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def far_times(table: pa.Table) -> Iterator[str]:
    """Yields the path of each date or timestamp, in structs too, that has values outside of years 1 to 9999.

    Python has none of these, PostgreSQL's `infinity` among them.
    """
    for name, column in zip(table.column_names, table.columns, strict=True):
        for chunk in column.chunks:
            yield from _far_times(name, chunk)


def _far_times(path: str, values: pa.Array) -> Iterator[str]:
    kind = values.type
    if pa.types.is_struct(kind):
        for field, part in zip(kind, values.flatten(), strict=True):
            yield from _far_times(f"{path}.{field.name}", part)
    elif pa.types.is_date32(kind) or kind in _MICROS:
        a_day = 1 if pa.types.is_date32(kind) else _DAY_US
        bounds = pc.min_max(values.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())).as_py()
        if bounds["min"] is not None and not _DAYS[0] * a_day <= bounds["min"] <= bounds["max"] < _DAYS[1] * a_day:
            yield path


def _in_micros(kind: pa.DataType) -> pa.DataType:
    if not pa.types.is_timestamp(kind):
        return kind
    return pa.timestamp("us", "UTC" if kind.tz is not None else None)


def _fitting(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, _fitting(part.type, leaf)) for part in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _fitting(kind.value_type, leaf)))
    if pa.types.is_map(kind):
        return pa.map_(_fitting(kind.key_type, leaf), _fitting(kind.item_type, leaf))
    return leaf(kind)


def _wider(old: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    """Returns the type that takes values of both; None if there is none, or a part of one is lost."""
    for ladder in (_WHOLE, _FLOATS):
        if old in ladder and new in ladder:
            return max(old, new, key=ladder.index)
    if pa.types.is_decimal(old) and pa.types.is_decimal(new) and old.scale == new.scale:
        return max(old, new, key=lambda kind: kind.precision)
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        parts, conflicts = united(pa.schema(list(old)), pa.schema(list(new)))
        return None if conflicts else pa.struct(list(parts))
    if pa.types.is_list(old) and pa.types.is_list(new):
        inner = _wider(old.value_type, new.value_type)
        return None if inner is None else pa.list_(pa.field("element", inner))
    if pa.types.is_map(old) and pa.types.is_map(new) and old.key_type == new.key_type:
        inner = _wider(old.item_type, new.item_type)
        return None if inner is None else pa.map_(old.key_type, inner)
    return old if old == new else None
