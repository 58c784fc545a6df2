"""Compares keys of Avro by columns: those of one schema, of plain fields, are read and written at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from connectors.chain.compared_keys import LONGEST_AT_ONCE, ComparedParts, Places
from connectors.converters.avro.column_values import AvroColumnReader
from connectors.converters.avro.reader import AvroReader
from connectors.converters.avro.unwrapper import KnownSchemas
from connectors.converters.registered import MOST_IDS
from connectors.data.growth import Room
from connectors.data.schema import BITS, DECIMAL, UNION, Schema, Type
from connectors.errors import DataError
from connectors.kept_values import Kept
from connectors.registry.answers import SchemaId

_MOST_SCHEMAS: Final = 16
"""Schemas of a batch of which the keys are compared at once, as many as those of values."""


class _Columns(Struct, frozen=True):
    """What reads keys, what writes their identities, and how the keys are encoded."""

    reader: AvroColumnReader
    write: Write
    encoding: str


class AvroKeyColumns:
    """Compares keys with schemas that `known` has read before, of which each identity is in `room`."""

    def __init__(self, known: KnownSchemas, room: Room) -> None:
        self._known = known
        self._room = room
        # By the id of a schema: what read it when the columns were made, and these, None if there can be none.
        self._columns: Kept[SchemaId, tuple[AvroReader, _Columns | None]] = Kept(MOST_IDS)

    def add_to(self, compared: ComparedParts, keys: pa.BinaryArray) -> None:
        """Adds those of `keys` that are whole, and written as keyfold would write them, to `compared`."""
        size = self._known.wire.size
        sizes = pc.binary_length(keys)
        may_be = pc.and_(pc.greater_equal(sizes, size), pc.less_equal(sizes, LONGEST_AT_ONCE))
        left = np.flatnonzero(may_be.fill_null(fill_value=False).to_numpy(zero_copy_only=False))
        for _ in range(_MOST_SCHEMAS):
            if not len(left):
                break
            head = keys[int(left[0])].as_py()[:size]
            others = keys if len(left) == len(keys) else keys.take(pa.array(left))
            is_own = pc.starts_with(others, pattern=head).to_numpy(zero_copy_only=False)
            self._add(compared, keys, head, left[is_own])
            left = left[~is_own]

    def _add(self, compared: ComparedParts, keys: pa.BinaryArray, head: bytes, rows: Places) -> None:
        try:
            named = self._known.wire.read((), head)
            columns = self._columns_of(named.schema_id) if named.start == len(head) else None
        except DataError:  # which reading a key by itself says
            return
        if columns is not None:
            read = columns.reader.read(keys, rows, to_end=True)
            compared.add_column(read.rows, columns.write(read.columns).cast(pa.binary()), columns.encoding)

    def _columns_of(self, schema_id: SchemaId) -> _Columns | None:
        reader = self._known.known_reader(schema_id)
        if reader is None:
            return None
        kept = self._columns.get(schema_id)
        if kept is None or kept[0] is not reader:
            kept = self._columns.put(schema_id, (reader, self._made(reader, schema_id)), reader.weight)
        return kept[1]

    def _made(self, reader: AvroReader, schema_id: SchemaId) -> _Columns | None:
        columns = reader.columns()
        if columns is None or not self._room.holds(columns.schema, LONGEST_AT_ONCE):
            return None
        write = writer_of_texts(columns.schema)
        return None if write is None else _Columns(columns, write, schema_id.encoding)


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
