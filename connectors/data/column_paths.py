"""The paths by which Iceberg knows columns: names from the outermost on, with dots between them. Pure.

A column `a.b` has the path of the field `b` in a column `a`, and Iceberg takes only one of both.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa


def has_dot(made: pa.DataType) -> bool:
    """Returns whether a part of a type has a dot in its name: without one no paths are equal."""
    return any("." in name or has_dot(inner) for name, inner in _parts(made))


def paths(made: pa.DataType, path: str = "", *, dotted: bool = True) -> Iterator[str]:
    """Yields `path` and those of all parts of its type, in lower case; of parts with a dot in the name if `dotted`."""
    yield path
    for name, inner in _parts(made):
        if dotted or "." not in name:
            yield from paths(inner, f"{path}.{name.lower()}" if path else name.lower(), dotted=dotted)


def _parts(made: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    if pa.types.is_struct(made):
        yield from ((field.name, field.type) for field in made.fields)
    elif pa.types.is_map(made):
        yield from (("key", made.key_type), ("value", made.item_type))
    elif pa.types.is_list(made):
        yield "element", made.value_type
