"""Knows what the keys or values of a connector hold, by its converter (`compactor.ports.ColumnTypes`).

A record is read as it is kept: in the output's form. What cannot be read, or fits no column, is told with the reason,
and makes no snapshot fail. A registry that does not answer says nothing of a record: no snapshot is taken then.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from msgspec import Struct
from numpy.typing import NDArray

from compactor.errors import PortionTooLargeError, SnapshotError
from compactor.ports import ColumnLayout, Decoded
from connectors.chain.quoted_settings import of_reading, of_writing
from connectors.chain.spec import ChainSpec, ClassSpec, Resolve, made_converter
from connectors.converters.names import CONVERTERS
from connectors.data.column_reader import ColumnReader
from connectors.data.kept import OfSchema
from connectors.data.record import Header
from connectors.data.schema import Schema
from connectors.errors import DataError, RegistryError
from connectors.machine_errors import refuse_machine
from connectors.rejection import reason_of
from connectors.transforms.transform import Side
from connectors.typed import shape
from connectors.typed.arrow_types import check_size, leaf_count, type_of
from connectors.typed.encoder import MOST_CELLS, Encode, encoder, struct_encoder
from connectors.typed.record_reader import LONGEST_REASON, HeadersOf, RecordReader
from connectors.typed.shape import Shapes, ValueShape
from connectors.typed.unite import layout_of, named, renamed

_CHUNK_BYTES: Final = 256 << 10
"""Bytes of keys or values that are objects of Python at once: they take some 50 times as much, and the columns of
records that are all symbols of enums (`arrow_types.LONGEST_TEXT`) 1,000 times."""
MOST_BYTES: Final = 256 << 20
"""Bytes that the columns of records which are decoded together may have: they are held twice while they are put in
order, and Arrow's texts end at 2 GiB. A batch has 16 MiB as records."""
_CHUNK_ROWS: Final = 8_192
_MOST_KINDS: Final = 1_000
"""Types that one task collects: each record may bring one of its own. Of a further one the records are in `_rest`,
unless they fit by chance."""
_MOST_HEADS: Final = 16
_FEWEST: Final = 32
"""Schemas of a batch of which records are read at once, and how many records each has at least: that costs 0.5 ms."""
_KINDS_BYTES: Final = 4 << 20
"""Bytes of those types, as they are sent to the worker by each task: some hundred types of a hundred columns."""
_TOO_LARGE: Final = f"Its columns have more than {MOST_BYTES >> 20} MiB."
StructEncode = Callable[[pa.StructArray], pa.StructArray]
_SIDES: Final = {"key": Side.KEY, "value": Side.VALUE}

_log = structlog.get_logger()


class _Kind(Struct, frozen=True):
    """A type (Arrow's IPC in Base64), or the shape of values without a schema."""

    type: str | None = None
    shape: ValueShape | None = None


class ValueTypes(Struct, frozen=True, kw_only=True):
    """The types of the keys, or the values (`side`), of a connector with `chain`."""

    side: str
    chain: ChainSpec
    resolve: Resolve

    @property
    def settings(self) -> str:
        """See `ColumnTypes`: a digest of the converter's class, and of its settings that no server is asked by."""
        kind = CONVERTERS.find(self._class.name).of.load()
        deciding = {option.name for option in kind.OPTIONS if not option.of_server and option.kind != "PASSWORD"}
        texts = sorted((name, text) for name, text in self._class.texts.items() if name in deciding)
        told = msgspec.json.encode([kind.__name__, texts])
        return hashlib.sha256(told).hexdigest()[:16]

    def survey(self) -> TypeSurvey:
        """See `ColumnTypes`."""
        return TypeSurvey(self.reader())

    def layout(self, kinds: Mapping[bytes, int], kept: str | None, taken: Collection[str]) -> ColumnLayout:
        """See `ColumnTypes`: what is kept are the columns of values without a schema."""
        types, shapes, count = Counter[pa.DataType](), Shapes(), 0
        for data, records in kinds.items():
            kind = msgspec.json.decode(data, type=_Kind)
            if kind.type is not None:
                types[_type_from(kind.type)] += records
            if kind.shape is not None:
                shapes.merge(kind.shape)
                count += records
        plain, before = None, None if kept is None else _kept_from(kept)
        if count or before is not None:
            plain = shape.columns_of(shapes.whole, before)
            types[plain] += count
        columns = layout_of(types)
        unique = named(columns, taken)
        return ColumnLayout(unique, renamed(unique), None if plain is None else _text_of(plain))

    def decoder(self, layout: ColumnLayout) -> TypeDecoder:
        """See `ColumnTypes`."""
        return TypeDecoder(self.reader(), layout.type)

    def reader(self) -> RecordReader:
        """Returns what reads records, with a converter of its own."""
        side = _SIDES[self.side]
        converter = made_converter(self._class, self.resolve, is_key=side is Side.KEY)
        converter.name_logical_types()
        unseen = tuple(dict.fromkeys([*of_reading(self.chain, side), *of_writing(self.chain, side)]))
        return RecordReader(self.side, self._class.name, converter, self.chain.most_read, unseen)

    @property
    def _class(self) -> ClassSpec:
        return self.chain.written_key if self.side == "key" else self.chain.written_value


def _waiting(error: RegistryError) -> SnapshotError:
    return SnapshotError(f"A typed snapshot cannot be taken for now: {error.message}", error.action)


class _Count(Struct):
    """How many records of one type there are so far."""

    records: int = 0


class TypeSurvey:
    """See `Survey`."""

    def __init__(self, reader: RecordReader) -> None:
        self._reader = reader
        # What counts the records of a schema: the same for all schemas of one type, which is slow to be looked up.
        self._count_of = OfSchema(self._new_count)
        self._counts: dict[pa.DataType, _Count] = {}
        # How many more bytes of types may be sent.
        self._left = _KINDS_BYTES
        self._shapes = Shapes()
        # Records without a schema so far.
        self._plain = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """See `Survey`."""
        data, size = batch[self._reader.side], self._reader.converter.schema_bytes
        try:
            if not size:
                self._add_read(batch, data)
            elif self._reader.names_schemas(batch):
                headers_of = self._reader.headers_of(batch)
                for row, value in enumerate(data.to_pylist()):
                    self._add_schema(partial(headers_of, row), value, 1)
            else:
                heads = pc.value_counts(pc.binary_slice(data, 0, size))
                for head, count in zip(heads.field(0).to_pylist(), heads.field(1).to_pylist(), strict=True):
                    self._add_schema(tuple, head, count)
        except RegistryError as error:
            raise _waiting(error) from error

    def _add_schema(self, headers: Callable[[], Sequence[Header]], data: bytes | None, count: int) -> None:
        """Adds `count` records that say their schema as `data` does; what cannot be read has no type."""
        if data is None:
            return
        try:
            self._count(self._reader.converter.schema_of(list(headers()), data), count)
        except RegistryError:
            raise
        except Exception as error:  # noqa: BLE001  # a schema may hold anything
            refuse_machine(error)

    def _count(self, schema: Schema | None, count: int) -> None:
        if schema is not None:
            self._count_of(schema).records += count

    def _new_count(self, schema: Schema) -> _Count:
        kind = type_of(schema)
        if kind not in self._counts and not self._has_room(kind):
            return _Count()
        return self._counts.setdefault(kind, _Count())

    def _has_room(self, kind: pa.DataType) -> bool:
        """Returns whether a new type may be sent to the worker, and takes its room."""
        size = len(_text_of(kind))
        if len(self._counts) >= _MOST_KINDS or size > self._left:
            return False
        self._left -= size
        return True

    def _add_read(self, batch: pa.RecordBatch, data: pa.Array) -> None:
        """Adds records of which each has to be read: it says its schema itself, or has none."""
        headers_of = self._reader.headers_of(batch)
        for rows in _chunks(data, _CHUNK_ROWS):
            values: list[Any] = []
            for row, value in enumerate(data[rows].to_pylist(), start=rows.start):
                if value is not None:
                    self._read(headers_of, row, value, values)
            self._plain += len(values)
            self._shapes.add(values)

    def _read(self, headers_of: HeadersOf, row: int, data: bytes, values: list[Any]) -> None:
        """Counts the type of a record, or adds it to `values` if it has no schema; what cannot be read has no type."""
        try:
            schema, value = self._reader.read(headers_of(row), data)
            if schema is None and value is not None:
                values.append(value)
            self._count(schema, 1)
        except RegistryError:
            raise
        except Exception as error:  # noqa: BLE001  # a schema may hold anything
            refuse_machine(error)

    def kinds(self) -> Mapping[bytes, int]:
        """See `Survey`."""
        kinds = {msgspec.json.encode(_Kind(type=_text_of(kind))): each.records for kind, each in self._counts.items()}
        if self._plain:
            kinds[msgspec.json.encode(_Kind(shape=self._shapes.whole))] = self._plain
        return kinds

    def close(self) -> None:
        """See `Survey`."""
        self._reader.converter.close()


class _Group(Struct):
    """The records of a chunk with one schema: what encodes them, None and why if nothing can; rows and values."""

    schema: Schema | None
    encode: Encode | None
    reason: str
    rows: list[int]
    values: list[Any]


class TypeDecoder:
    """See `Decoder`. `most_bytes`: bytes that the columns of a batch may have."""

    def __init__(self, reader: RecordReader, columns: pa.StructType, most_bytes: int = MOST_BYTES) -> None:
        self._reader = reader
        self._columns = columns
        self._most_bytes = most_bytes
        # Bytes of the columns that are made of the batch so far.
        self._held = 0
        self._encoders = OfSchema(self._encoder_of)
        self._struct_encoders = OfSchema(lambda schema: struct_encoder(schema, columns))
        self._plain = encoder(None, columns)
        self._most_rows = max(1, min(_CHUNK_ROWS, MOST_CELLS // max(1, leaf_count(columns))))

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """See `Decoder`."""
        self._held = 0
        try:
            parts = list(self._by_columns(batch, batch[self._reader.side]))
            places = np.full(batch.num_rows, -1)
            for rows, part in parts:
                places[rows] = np.count_nonzero(places >= 0) + np.arange(len(part))
            rest = np.flatnonzero(places < 0)
            others = batch.take(pa.array(rest)) if parts else batch
            unplaced = dict[int, str]()
            own = list(self._parts(others, others[self._reader.side], unplaced))
        except RegistryError as error:
            raise _waiting(error) from error
        if self._held > self._most_bytes:  # of the only record
            return Decoded(pa.nulls(1, self._columns), {0: _TOO_LARGE})
        places[rest] = batch.num_rows - len(rest) + np.arange(len(rest))
        columns = pa.concat_arrays([pa.nulls(0, self._columns), *(part for _, part in parts), *own])
        if parts:
            columns = columns.take(pa.array(places))
        return Decoded(columns, {int(rest[row]): reason for row, reason in unplaced.items()})

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
        for rows in _chunks(data, self._most_rows):
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
    """Splits `rows` into such of _CHUNK_BYTES and `most_rows` at most, unless one alone has more bytes."""
    numbers = np.cumsum(lengths, dtype=np.int64) // _CHUNK_BYTES + np.arange(len(rows)) // most_rows
    yield from np.split(rows, np.flatnonzero(np.diff(numbers)) + 1)


def _chunks(data: pa.Array, most_rows: int) -> Iterator[slice]:
    """Yields slices of at most `most_rows`, and of _CHUNK_BYTES unless one row alone has more."""
    sizes = pc.fill_null(pc.binary_length(data), 0).to_numpy(zero_copy_only=False)
    ends, start = np.cumsum(sizes, dtype=np.int64), 0
    while start < len(data):
        before = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, before + _CHUNK_BYTES, side="right"))
        end = min(max(start + 1, end), start + most_rows, len(data))
        yield slice(start, end)
        start = end


def _text_of(kind: pa.DataType) -> str:
    return base64.b64encode(pa.schema([pa.field("type", kind)]).serialize().to_pybytes()).decode()


def _kept_from(text: str) -> pa.StructType | None:
    """Returns the columns that a snapshot hands on; None for what `_text_of` has not written: the file was damaged."""
    try:
        kept = _type_from(text)
        check_size(kept)
        return kept if pa.types.is_struct(kept) else None
    except Exception as error:  # noqa: BLE001  # Arrow raises what it stumbles over
        refuse_machine(error)
        _log.warning("the columns of the newest snapshot cannot be read, others are made", error=reason_of(error))
        return None


def _type_from(text: str) -> pa.DataType:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))).field(0).type
