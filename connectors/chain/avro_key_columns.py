"""Compares keys of Avro by columns: those of one schema, of plain fields, are read and written at once."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from connectors.chain.compared_keys import LONGEST_AT_ONCE, ComparedParts, Places
from connectors.converters.avro.column_values import AvroColumnReader
from connectors.converters.avro.reader import AvroReader
from connectors.converters.avro.unwrapper import KnownSchemas
from connectors.converters.registered import MOST_IDS
from connectors.data.canonical_columns import Write, writer_of_texts
from connectors.data.growth import Room
from connectors.data.kept import Kept
from connectors.errors import DataError
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
