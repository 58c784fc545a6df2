"""Makes Python's values of typed columns, and what two of them are compared by if their columns may differ."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from compactor.ports import WHOLE


def listed(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Returns `values` as Python has them; a date or time outside of years 1 to 9999 is the column's whole number.

    PostgreSQL's `infinity` is such a date.
    """
    try:
        return values.to_pylist()
    except (OverflowError, ValueError):
        return list(map(value_of, values))


def value_of(value: pa.Scalar) -> Any:
    """Returns a value of a column, see `listed`."""
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        if isinstance(value, pa.StructScalar):
            return {field.name: value_of(value[place]) for place, field in enumerate(value.type)}
        if isinstance(value, pa.MapScalar):
            return [(value_of(entry[0]), value_of(entry[1])) for entry in value.values]
        return list(map(value_of, value.values)) if isinstance(value, pa.ListScalar) else value.value


def comparable(value: Any) -> Any:
    """Returns a key without what its columns do not tell: fields that are null, and an object around `value` alone.

    Columns have a null for a field that a key lacks, and a key that is no object as its field `value`.
    """
    told = told_of(value)
    return told[WHOLE] if isinstance(told, dict) and told.keys() == {WHOLE} else told


def told_of(value: Any) -> Any:
    """Returns `value` without fields that are null; what has nothing in it becomes text, as it may be in a column."""
    if isinstance(value, dict):
        return {name: told_of(part) for name, part in value.items() if part is not None} or "{}"
    return ([told_of(part) for part in value] or "[]") if isinstance(value, list) else value
