"""Decodes the keys or values of one task's records to columns (`compactor.ports.Decoder`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from compactor.errors import PortionTooLargeError
from compactor.ports import Decoded
from connectors.data.column_reader import ColumnReader
from connectors.data.kept import OfSchema
from connectors.data.schema import Schema
from connectors.errors import DataError, RegistryError
from connectors.machine_errors import refuse_machine
from connectors.rejection import reason_of
from connectors.typed.arrow_types import leaf_count
from connectors.typed.encoder import MOST_CELLS, Encode, StructEncode, encoder, struct_encoder
from connectors.typed.record_reader import (
    CHUNK_BYTES,
    CHUNK_ROWS,
    LONGEST_REASON,
    HeadersOf,
    RecordReader,
    chunks,
    waiting,
)

MOST_BYTES: Final = 256 << 20
"""Bytes that the columns of records which are decoded together may have: they are held twice while they are put in
order, and Arrow's texts end at 2 GiB. A batch has 16 MiB as records."""
_MOST_HEADS: Final = 16
_FEWEST: Final = 32
"""Schemas of a batch of which records are read at once, and how many records each has at least: that costs 0.5 ms."""
_TOO_LARGE: Final = f"Its columns have more than {MOST_BYTES >> 20} MiB."


class _Group(Struct):
    """The records of a chunk with one schema: what encodes them, None and why if nothing can; rows and values."""

    schema: Schema | None
    encode: Encode | None
    reason: str
    rows: list[int]
    values: list[Any]


class TypeDecoder:
    """See `Decoder`. `most_bytes`: bytes that the columns of a batch may have."""

    def __init__(self, reader: RecordReader, columns: pa.StructType, most_bytes: int) -> None:
        self._reader = reader
        self._columns = columns
        self._most_bytes = most_bytes
        # Bytes of the columns that are made of the batch so far.
        self._held = 0
        self._encoders = OfSchema(self._encoder_of)
        self._struct_encoders = OfSchema(lambda schema: struct_encoder(schema, columns))
        self._plain = encoder(None, columns)
        self._most_rows = max(1, min(CHUNK_ROWS, MOST_CELLS // max(1, leaf_count(columns))))

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """See `Decoder`."""
        self._held = 0
        try:
            parts = list(self._by_columns(batch, batch[self._reader.side]))
            places = np.full(batch.num_rows, -1)
            for rows, part in parts:
                places[rows] = np.count_nonzero(places >= 0) + np.arange(len(part))
            rest = self._by_schema(batch, np.flatnonzero(places < 0))
            is_moved = bool(np.any(rest != np.arange(batch.num_rows))) if len(rest) == batch.num_rows else True
            others = batch.take(pa.array(rest)) if is_moved else batch
            unplaced = dict[int, str]()
            own = list(self._parts(others, others[self._reader.side], unplaced))
        except RegistryError as error:
            raise waiting(error) from error
        if self._held > self._most_bytes:  # of the only record
            return Decoded(pa.nulls(1, self._columns), {0: _TOO_LARGE})
        places[rest] = batch.num_rows - len(rest) + np.arange(len(rest))
        columns = pa.concat_arrays([pa.nulls(0, self._columns), *(part for _, part in parts), *own])
        if is_moved:
            columns = columns.take(pa.array(places))
        return Decoded(columns, {int(rest[row]): reason for row, reason in unplaced.items()})

    def _by_schema(self, batch: pa.RecordBatch, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Returns `rows` with those of each schema side by side.

        A converter remembers some schemas only: in turns, records of more of them would have theirs parsed each.
        """
        size = self._reader.converter.schema_bytes
        if not size or self._reader.names_schemas(batch):
            return rows
        heads = pc.binary_slice(batch[self._reader.side].take(pa.array(rows)), 0, size)
        codes = pc.dictionary_encode(heads).indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return rows[np.argsort(codes, kind="stable")]

    def _by_columns(self, batch: pa.RecordBatch, data: pa.Array) -> Iterator[tuple[NDArray[np.intp], pa.StructArray]]:
        """Yields the rows of records that can be read at once, if many have one schema, and their columns.

        Those of which anything is unusual are left.
        """
        size = self._reader.converter.schema_bytes
        if not size or self._reader.names_schemas(batch):
            return
        heads = pc.dictionary_encode(pc.binary_slice(data, 0, size))
        codes = heads.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        lengths = pc.fill_null(pc.binary_length(data), 0).to_numpy(zero_copy_only=False)
        for code, head in enumerate(heads.dictionary.to_pylist()[:_MOST_HEADS]):
            rows = np.flatnonzero((codes == code) & (lengths <= self._reader.most))
            known = self._known_columns(head) if len(rows) >= _FEWEST else None
            if known is None:
                continue
            for some in _split(rows, lengths[rows], self._most_rows):
                for made in _at_once(known[0], known[1], data, some):
                    self._hold(batch, made[1])
                    yield made

    def _known_columns(self, head: bytes) -> tuple[ColumnReader, StructEncode] | None:
        """Returns what reads records that begin with `head` at once, and what encodes them; None if nothing does."""
        try:
            reader = self._reader.converter.column_reader(head)
            if reader is None or self._encoders(reader.schema)[0] is None:
                return None
            return reader, self._struct_encoders(reader.schema)
        except RegistryError:
            raise
        except Exception as error:  # noqa: BLE001  # to read each by itself says what is wrong
            refuse_machine(error)
            return None

    def _parts(self, batch: pa.RecordBatch, data: pa.Array, unplaced: dict[int, str]) -> Iterator[pa.StructArray]:
        """Yields the columns of one chunk of records after the other."""
        for rows in chunks(data, self._most_rows):
            part = self._chunk(batch, data, rows, unplaced)
            self._hold(batch, part)
            yield part

    def _hold(self, batch: pa.RecordBatch, part: pa.StructArray) -> None:
        """Counts columns that are made of `batch`. Raises PortionTooLargeError if fewer records would have fewer."""
        self._held += part.nbytes
        if self._held > self._most_bytes and batch.num_rows > 1:
            raise PortionTooLargeError(
                f"The columns of {batch.num_rows} records have more than {self._most_bytes} bytes."
            )

    def close(self) -> None:
        """See `Decoder`."""
        self._reader.converter.close()

    def _encoder_of(self, schema: Schema) -> tuple[Encode | None, str]:
        try:
            return encoder(schema, self._columns), ""
        except DataError as error:
            return None, error.message[:LONGEST_REASON]

    def _chunk(self, batch: pa.RecordBatch, data: pa.Array, rows: slice, unplaced: dict[int, str]) -> pa.StructArray:
        """Decodes some rows of a batch."""
        groups: dict[int, _Group] = {}
        headers_of = self._reader.headers_of(batch)
        for row, value in enumerate(data[rows].to_pylist(), start=rows.start):
            if value is not None:
                self._read(headers_of, row, value, groups, unplaced)
        arrays, places, count = list[pa.Array](), np.full(rows.stop - rows.start, -1), 0
        for group in groups.values():
            if group.encode is None:
                unplaced.update(dict.fromkeys(group.rows, group.reason))
                continue
            for made, placed in _encoded(group.encode, group.rows, group.values, unplaced):
                places[np.array(placed) - rows.start] = count + np.arange(len(made))
                count += len(made)
                arrays.append(made)
        return pa.concat_arrays([pa.nulls(0, self._columns), *arrays]).take(pa.array(places, mask=places < 0))

    def _read(
        self, headers_of: HeadersOf, row: int, data: bytes, groups: dict[int, _Group], unplaced: dict[int, str]
    ) -> None:
        """Adds a record to the group of its schema, or to those that cannot be read."""
        try:
            schema, value = self._reader.read(headers_of(row), data)
            group = groups.get(id(schema))
            if group is None:
                encode, reason = (self._plain, "") if schema is None else self._encoders(schema)
                group = groups[id(schema)] = _Group(schema, encode, reason, [], [])
        except RegistryError:
            raise
        except Exception as error:  # noqa: BLE001  # a schema may hold anything
            unplaced[row] = self._reader.reason(error)
            return
        if value is not None:
            group.rows.append(row)
            group.values.append(value)


def _encoded(
    encode: Encode, rows: list[int], values: list[Any], unplaced: dict[int, str]
) -> Iterator[tuple[pa.Array, list[int]]]:
    """Yields arrays of `values` with their rows; those that do not fit are found by halves."""
    if not rows:
        return
    try:
        yield encode(values), rows
    except Exception as error:  # noqa: BLE001  # Arrow raises what it stumbles over
        refuse_machine(error)
        if len(rows) == 1:
            said = error.message if isinstance(error, DataError) else reason_of(error)
            unplaced[rows[0]] = said[:LONGEST_REASON]
            return
        half = len(rows) // 2
        yield from _encoded(encode, rows[:half], values[:half], unplaced)
        yield from _encoded(encode, rows[half:], values[half:], unplaced)


def _at_once(
    reader: ColumnReader, encode: StructEncode, data: pa.Array, rows: NDArray[np.intp]
) -> Iterator[tuple[NDArray[np.intp], pa.StructArray]]:
    """Yields rows that were read at once, with their columns; a few around one that fits none are left."""
    try:
        read = reader.read(data, rows)
        yield read.rows, encode(read.columns)
    except Exception as error:  # noqa: BLE001  # Arrow raises what it stumbles over
        refuse_machine(error)
        if len(rows) >= _FEWEST:
            half = len(rows) // 2
            yield from _at_once(reader, encode, data, rows[:half])
            yield from _at_once(reader, encode, data, rows[half:])


def _split(rows: NDArray[np.intp], lengths: NDArray[np.int32], most_rows: int) -> Iterator[NDArray[np.intp]]:
    """Splits `rows` into such of CHUNK_BYTES and `most_rows` at most, unless one alone has more bytes."""
    numbers = np.cumsum(lengths, dtype=np.int64) // CHUNK_BYTES + np.arange(len(rows)) // most_rows
    yield from np.split(rows, np.flatnonzero(np.diff(numbers)) + 1)
