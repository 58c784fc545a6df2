"""Reads the values of many records of Avro at once, a field at a time, to Arrow's arrays.

`columns.py` says at which byte each value ends, and which records are lost: those are read one by one. Values are in
their encoded form, as `AvroConverter` gives them: of a logical type that which encodes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from connectors.converters.avro.columns import Advance, AvroBytes, Places, columns_of, slices_of, small_number
from connectors.converters.avro.schemas import OfTypes
from connectors.data.column_reader import ReadColumns
from connectors.data.schema import Schema

Build = Callable[[], pa.Array]
Scan = Callable[[AvroBytes, Places, Places], tuple[Build, Places]]
"""Passes over the values that begin at each place, as `Advance` does; returns what builds them, and their ends."""
_MORE: Final = 0x80
_BITS: Final = 7
_NULL_FIRST: Final = (0, 2)
"""The bytes of a union's branches: that of null, and that of the other, if null is the first; else swapped."""


class AvroColumnReader(Struct, frozen=True):
    """Reads records of `schema`, which begin after `start` bytes of a value; see `ColumnReader`.

    `most`: bytes up to which a record takes no more memory than it may.
    """

    schema: Schema
    scan: Scan
    start: int
    most: float

    def read(self, values: pa.Array, rows: NDArray[np.intp], *, to_end: bool = False) -> ReadColumns:
        """See `ColumnReader.read`. `to_end`: a value with bytes after its record is left out, too."""
        values = values.take(pa.array(rows))  # no work for what lies between them, nor for the rest of a batch
        _, offsets, data = values.buffers()
        ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
        own = AvroBytes(np.frombuffer(data, np.uint8))
        is_small = np.diff(ends) <= self.most
        rows, at, lost = rows[is_small], ends[:-1][is_small] + self.start, ends[1:][is_small] + 1
        build, end = self.scan(own, at, lost)
        is_whole = end == lost - 1 if to_end else end < lost
        if not is_whole.all():
            rows = rows[is_whole]
            build, _ = self.scan(own, at[is_whole], lost[is_whole])
        return ReadColumns(rows, build())


def column_reader(avro: Any, schema: Schema, start: int, most: float) -> AvroColumnReader | None:
    """Returns what reads values of `avro`, in which a named type is defined at its first use.

    None if it is no record, or has a list, a map or a union of several types: these are read one by one.
    """
    scan = _Scans().of(avro)
    is_record = isinstance(avro, dict) and avro.get("type") == "record"
    return AvroColumnReader(schema, scan, start, most) if is_record and scan is not None else None


class _Scans(OfTypes["Scan | None"]):
    """Makes what reads the values of one schema; None if nothing can."""

    def of_union(self, branches: list[Any]) -> Scan | None:
        """See OfTypes."""
        if len(branches) != 2 or "null" not in branches or branches[0] == branches[1]:
            return None
        inner = self.of(next(branch for branch in branches if branch != "null"))
        null, other = _NULL_FIRST if branches[0] == "null" else _NULL_FIRST[::-1]
        return None if inner is None else _nullable(inner, null, other)

    def of_kind(self, kind: str, avro: Any) -> Scan | None:
        """See OfTypes."""
        if kind not in {"record", "enum", "fixed"}:
            return _leaf(kind)
        if kind == "record":
            fields = {field["name"]: self.of(field["type"]) for field in avro["fields"]}
            known = {name: scan for name, scan in fields.items() if scan is not None}
            return _record(known) if known and len(known) == len(fields) else None
        advance = columns_of(avro, is_read=True)
        return _scan(advance, _symbols(avro["symbols"]) if kind == "enum" else _slices)


def _leaf(kind: str) -> Scan | None:
    decode = _LEAVES.get(kind)
    return None if decode is None else _scan(columns_of(kind, is_read=True), decode)


Decode = Callable[[AvroBytes, Places, Places], pa.Array]


def _scan(advance: Advance, decode: Decode) -> Scan:
    def scan(data: AvroBytes, at: Places, lost: Places) -> tuple[Build, Places]:
        end = advance(data, at, lost)
        return (lambda: decode(data, at, end)), end

    return scan


def _nullable(inner: Scan, null: int, other: int) -> Scan:
    def scan(data: AvroBytes, at: Places, lost: Places) -> tuple[Build, Places]:
        branch = data.at(at)
        end = np.where(branch == null, np.minimum(at + 1, lost), lost)
        rows = np.flatnonzero(branch == other)
        build, inner_end = inner(data, at[rows] + 1, lost[rows])
        end[rows] = inner_end
        if len(rows) == len(at):
            return build, end
        places = np.full(len(at), -1)
        places[rows] = np.arange(len(rows))
        return (lambda: build().take(pa.array(places, mask=places < 0))), end

    return scan


def _record(fields: Mapping[str, Scan]) -> Scan:
    def scan(data: AvroBytes, at: Places, lost: Places) -> tuple[Build, Places]:
        builds: list[Build] = []
        for field in fields.values():
            build, at = field(data, at, lost)
            builds.append(build)
        return (lambda: pa.StructArray.from_arrays([build() for build in builds], names=list(fields))), at

    return scan


def _numbers(kind: pa.DataType) -> Decode:
    def decode(data: AvroBytes, at: Places, end: Places) -> pa.Array:
        sizes = end - at
        encoded = np.zeros(len(at), np.uint64)
        for place in range(int(sizes.max(initial=0))):
            byte = (data.at(at + place) & ~np.uint8(_MORE)).astype(np.uint64) << np.uint64(_BITS * place)
            encoded |= np.where(place < sizes, byte, np.uint64(0))
        numbers = (encoded >> np.uint64(1)).astype(np.int64) ^ -(encoded & np.uint64(1)).astype(np.int64)
        return pa.array(numbers).cast(kind)

    return decode


def _floats(kind: str) -> Decode:
    size = np.dtype(kind).itemsize

    def decode(data: AvroBytes, at: Places, _: Places) -> pa.Array:
        own = data.data[at[:, None] + np.arange(size)] if len(at) else np.zeros((0, size), np.uint8)
        return pa.array(np.ascontiguousarray(own).view(kind).ravel())

    return decode


def _booleans(data: AvroBytes, at: Places, _: Places) -> pa.Array:
    return pa.array(data.at(at).astype(np.bool_))


def _slices(data: AvroBytes, at: Places, end: Places) -> pa.Array:
    return slices_of(data.data, at, end, np.ones(len(at), np.bool_))


def _sized(data: AvroBytes, at: Places, end: Places) -> pa.Array:
    return _slices(data, small_number(data, at)[1], end)


def _texts(data: AvroBytes, at: Places, end: Places) -> pa.Array:
    return _sized(data, at, end).cast(pa.string())


def _symbols(symbols: Sequence[str]) -> Decode:
    texts = pa.array(symbols, pa.string())
    return lambda data, at, _: texts.take(pa.array(small_number(data, at)[0] >> 1))


_LEAVES: Final[dict[str, Decode]] = {
    "boolean": _booleans,
    "int": _numbers(pa.int32()),
    "long": _numbers(pa.int64()),
    "float": _floats("<f4"),
    "double": _floats("<f8"),
    "bytes": _sized,
    "string": _texts,
}
