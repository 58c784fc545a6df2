"""Writes the values of a column as `canonical.text_of` writes each, if they are of plain types."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from connectors.data.schema import BITS, DECIMAL, UNION, Schema, Type

Write = Callable[[pa.Array], pa.Array]
"""Returns the texts of values: null for a null, and for a value that has to be written by itself."""
_SIMPLE: Final = r"^[ !#-\[\]-~]*$"
"""A text that JSON has one form of: ASCII without control characters, quotes and backslashes."""
_EMPTY: Final = pa.scalar("", pa.string())
_NULL: Final = pa.scalar(None, pa.string())
_HEX: Final = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint16)
"""The two digits of each byte."""


class _Leaf(Struct, frozen=True):
    """How values of a plain type are written: what stands before and after each, and its own text."""

    before: str
    write: Write
    after: str


def writer_of_texts(schema: Schema) -> Write | None:
    """Returns what writes structs of `schema` as `text_of(plain(schema, value))` does; None if nothing can.

    It can if the struct has at least one field, and all are whole numbers, truth values, texts and bytes, of which a
    null may be missing.
    """
    if schema.type is not Type.STRUCT or schema.name == UNION or schema.optional or not schema.fields:
        return None
    leaves: dict[str, _Leaf] = {}
    missing: set[str] = set()
    for field in schema.fields:
        leaf = None if field.schema.name == DECIMAL else _LEAVES.get(field.schema.type)
        if leaf is None or (field.schema.optional and field.schema.default is not None) or field.name in leaves:
            return None
        leaves[field.name] = leaf
        if field.schema.optional:
            missing.add(field.name)
    # Sorted as `text_of` sorts names.
    return _with_nulls(leaves, missing) if missing else _without_nulls(leaves)


def _without_nulls(leaves: dict[str, _Leaf]) -> Write:
    """Returns what writes structs of which no field may be null."""
    names = sorted(leaves)

    def write(structs: pa.Array) -> pa.Array:
        parts: list[Any] = []
        before = "{"
        for name in names:
            leaf = leaves[name]
            parts += [pa.scalar(f"{before}{json.dumps(name)}:{leaf.before}"), leaf.write(structs.field(name))]
            before = f"{leaf.after},"
        return _joined([*parts, pa.scalar(f"{leaves[names[-1]].after}}}")])

    return write


def _with_nulls(leaves: dict[str, _Leaf], missing: set[str]) -> Write:
    """Returns what writes structs, without the fields among `missing` that are null."""
    names = sorted(leaves)

    def write(structs: pa.Array) -> pa.Array:
        members = []
        for name in names:
            leaf, values = leaves[name], structs.field(name)
            before, after = pa.scalar(f",{json.dumps(name)}:{leaf.before}"), pa.scalar(leaf.after)
            member = _joined([before, leaf.write(values), after])
            members.append(pc.if_else(values.is_null(), _EMPTY, member) if name in missing else member)
        held = pc.binary_replace_slice(_joined(members), 0, 1, "{")  # in place of the first comma
        return _joined([held, pa.scalar("}")])

    return write


def _joined(parts: Sequence[Any]) -> pa.Array:
    return pc.binary_join_element_wise(*parts, _EMPTY)


def _cast(values: pa.Array) -> pa.Array:
    return values.cast(pa.string())


def _simple_text(values: pa.Array) -> pa.Array:
    is_simple = pc.match_substring_regex(values, _SIMPLE)
    return values if is_simple.true_count == len(values) else pc.if_else(is_simple, values, _NULL)


def _digits(values: pa.Array) -> pa.Array:
    """Returns the hexadecimal digits of bytes."""
    there = values.fill_null(b"")
    _, offsets, data = there.buffers()
    ends = np.frombuffer(offsets, np.int32)[there.offset : there.offset + len(there) + 1]
    own = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]
    buffers = [None, pa.py_buffer(2 * (ends - ends[0])), pa.py_buffer(_HEX[own])]
    texts = pa.Array.from_buffers(pa.string(), len(there), buffers)
    return pc.if_else(values.is_valid(), texts, _NULL) if values.null_count else texts


_LEAVES: Final[dict[Type, _Leaf]] = {
    **{kind: _Leaf("", _cast, "") for kind in (*BITS, Type.BOOLEAN)},
    Type.STRING: _Leaf('"', _simple_text, '"'),
    Type.BYTES: _Leaf('b"', _digits, '"'),
}
