"""Unites the types of many records to the columns of one snapshot. Pure.

Columns are united by name. A type is promoted as Iceberg allows it: whole numbers to wider ones, float to double, a
decimal to more digits of the same scale; every column may be null. What cannot be united loses to what came before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from compactor.ports import WHOLE
from connectors.data.column_paths import has_dot, paths
from connectors.data.schema import BITS
from connectors.errors import DataError
from connectors.typed.arrow_types import check_size, parts_of

SOURCE: Final = b"source"
"""The metadata of a renamed column that has the name of its field in the records."""
_WHOLE_NUMBERS: Final = tuple(getattr(pa, f"int{bits}")() for bits in sorted(BITS.values()))
_FLOATS: Final = (pa.float32(), pa.float64())


class MisfitError(DataError):
    """Two types that no column can hold both of; `path` are the names of the fields around them."""

    def __init__(self, path: Sequence[str], kept: pa.DataType, other: pa.DataType) -> None:
        where = ".".join(path)[:200] or WHOLE
        super().__init__(f"{where}: {_shown(other)} does not fit a column of {_shown(kept)}.")


def as_columns(made: pa.DataType) -> pa.StructType:
    """Returns the columns of values of a type: its fields, or one column for the whole."""
    return made if pa.types.is_struct(made) else pa.struct([pa.field(WHOLE, made)])


def united(kept: pa.DataType, other: pa.DataType, path: tuple[str, ...] = ()) -> pa.DataType:
    """Returns the type that holds values of both. Raises MisfitError."""
    if kept == other:
        return kept
    for kinds in (_WHOLE_NUMBERS, _FLOATS):
        if kept in kinds and other in kinds:
            return max(kept, other, key=kinds.index)
    is_decimal = pa.types.is_decimal128(kept) and pa.types.is_decimal128(other)
    if is_decimal and kept.scale == other.scale:
        return max(kept, other, key=lambda decimal: decimal.precision)
    if pa.types.is_struct(kept) and pa.types.is_struct(other):
        return _structs(kept, other, path)
    if pa.types.is_map(kept) and pa.types.is_map(other):
        return pa.map_(
            united(kept.key_type, other.key_type, (*path, "key")),
            united(kept.item_type, other.item_type, (*path, "value")),
        )
    if pa.types.is_list(kept) and pa.types.is_list(other):
        return pa.list_(united(kept.value_type, other.value_type, (*path, "element")))
    raise MisfitError(path, kept, other)


def _structs(kept: pa.StructType, other: pa.StructType, path: tuple[str, ...]) -> pa.DataType:
    others = {field.name: field.type for field in parts_of(other)}
    fields = [
        pa.field(field.name, united(field.type, others.pop(field.name), (*path, field.name)))
        if field.name in others
        else field
        for field in parts_of(kept)
    ]
    return pa.struct([*fields, *(pa.field(name, made) for name, made in others.items())])


def layout_of(types: Mapping[pa.DataType, int]) -> pa.StructType:
    """Returns the columns that hold the most records of `types`, each with the number of its records.

    It takes types by their number of records; one that does not fit those before adds nothing, nor one that would make
    it too large.
    """
    layout = pa.struct([])
    for made in sorted(types, key=lambda made: (-types[made], str(made))):
        try:
            wider = united(layout, as_columns(made))
            check_size(wider)
        except DataError:
            continue
        layout = wider
    return layout


def named(columns: pa.StructType, taken: Iterable[str] = ()) -> pa.StructType:
    """Gives each column a name that no other has, in whatever case; those of `taken` are another's.

    DuckDB and Spark do not tell `id` and `ID` apart, nor Iceberg `a.b` and the field `b` of `a`; Delta takes no NUL.
    The first keeps its name, the next becomes `ID_2`: SOURCE in its metadata has the name of the field.
    """
    plain = set(paths(columns, dotted=False)) if has_dot(columns) else set[str]()  # without a dot none can be equal
    return _named(columns, taken, "", plain)


def _named(columns: pa.StructType, taken: Iterable[str], path: str, known: set[str]) -> pa.StructType:
    """Names the columns below `path`. `known` has paths of columns without a dot, and gets those of others."""
    names, fields = {name.lower() for name in taken}, list[pa.Field]()
    own = {field.name.lower() for field in parts_of(columns)}
    # By name the number to go on with: thousands may differ in case alone.
    numbers: dict[str, int] = {}
    for field in parts_of(columns):
        stem = field.name.replace("\0", "_")
        if "." in stem and not known.isdisjoint(paths(field.type, f"{path}{stem.lower()}", dotted=False)):
            stem = stem.replace(".", "_")
        name, lower = stem or "_", stem.lower()
        while name.lower() in names or (name != field.name and name.lower() in own):
            number = numbers.get(lower, 2)
            name, numbers[lower] = f"{stem}_{number}", number + 1
        names.add(name.lower())
        inside = f"{path}{name.lower()}"
        if "." in name:
            known.update(paths(field.type, inside, dotted=False))
        metadata = None if name == field.name else {SOURCE: field.name.encode()}
        fields.append(pa.field(name, _named_inside(field.type, f"{inside}.", known), metadata=metadata))
    return pa.struct(fields)


def _named_inside(made: pa.DataType, path: str, known: set[str]) -> pa.DataType:
    if pa.types.is_struct(made):
        return _named(made, (), path, known)
    if pa.types.is_map(made):
        key = _named_inside(made.key_type, f"{path}key.", known)
        return pa.map_(key, _named_inside(made.item_type, f"{path}value.", known))
    return pa.list_(_named_inside(made.value_type, f"{path}element.", known)) if pa.types.is_list(made) else made


def source_of(field: pa.Field) -> str:
    """Returns the name that a column's field has in the records."""
    renamed = (field.metadata or {}).get(SOURCE)
    return str(field.name) if renamed is None else renamed.decode()


def renamed(made: pa.StructType, path: str = "") -> dict[str, str]:
    """Returns the field of each renamed column; both by their names from the outermost on, with points between."""
    names: dict[str, str] = {}
    for field in parts_of(made):
        own = f"{path}{field.name}"
        if source_of(field) != field.name:
            names[own] = source_of(field)
        inner = field.type
        while pa.types.is_list(inner) or pa.types.is_map(inner):
            inner = inner.value_type if pa.types.is_list(inner) else inner.item_type
        if pa.types.is_struct(inner):
            names |= renamed(inner, f"{own}.")
    return names


def _shown(made: pa.DataType) -> str:
    return str(made)[:100]
