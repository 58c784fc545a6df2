"""Passes over many records of Avro at once, a field at a time: no value is made, and no Python runs for each record.

`skips.py` does the same record by record. Here a record that is in any way unusual is *lost*: its position becomes the
one after its end plus 1, and stays there. A caller reads lost records one by one, which also says what is wrong.
Unusual is all that would not be the same bytes again once it is read and written: a number with more bytes than it
needs, or one that its type does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from connectors.converters.avro.schemas import OfTypes

Kind = TypeVar("Kind", bound=np.generic)
Places = NDArray[np.int64]
"""A position in the bytes for each record."""
_MORE: Final = 0x80
"""The bit of a byte that says that another byte of the number follows."""
_LARGEST: Final = 0x7F
"""The last byte of a float that is not finite, without its sign."""
_LONGEST_SIZE: Final = 5
"""Bytes of a length, or of the number of a branch."""


def large_array(size: int, kind: type[Kind]) -> NDArray[Kind]:
    """Returns an array of anything, with memory that Arrow keeps between batches.

    NumPy gives large arrays back at once, and the system takes longer to find new pages than what is done with them.
    """
    return np.frombuffer(pa.allocate_buffer(size * np.dtype(kind).itemsize), kind)


class AvroBytes:
    """The bytes of many records, one after the other."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self.data = data

    @cached_property
    def beyond_ascii(self) -> NDArray[np.int32]:
        """How many bytes before each position, and before the end of all, are none of ASCII."""
        counts = large_array(len(self.data) + 1, np.int32)
        counts[0] = 0
        np.greater_equal(self.data, _MORE, out=counts[1:], casting="unsafe")
        np.cumsum(counts, out=counts)
        return counts

    def at(self, places: Places) -> NDArray[np.uint8]:
        """Returns the byte at each place; of a place beyond all bytes, the last byte."""
        return self.data.take(places, mode="clip")


Advance = Callable[[AvroBytes, Places, Places], Places]
"""Returns the end of the value that begins at each place; the third argument is the place of a record that is lost."""


def slices_of(data: NDArray[np.uint8], begin: Places, end: Places, is_there: NDArray[np.bool_]) -> pa.Array:
    """Returns the bytes from `begin` to `end` as an array, with null in place of those that are not there.

    Every second element of the array that Arrow takes them from is what lies between two of them.
    """
    count = len(begin)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2], offsets[1::2] = begin, end
    offsets[-1] = end[-1] if count else 0
    every = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return every.take(pa.array(np.arange(0, 2 * count, 2), mask=~is_there))


def columns_of_fields(avro: Any) -> Sequence[tuple[str, Advance]]:
    """Returns the names of the fields of a record, and what passes over each, as `columns_of` does with `is_read`."""
    columns = _Columns(is_read=True)
    return [(field["name"], columns.of(field["type"])) for field in avro["fields"]]


def columns_of(avro: Any, *, is_read: bool) -> Advance:
    """Returns what passes over values of `avro`, in which a named type is defined at its first use.

    With `is_read`, values that fastavro refuses to read are lost; otherwise those that `skip_of` refuses to pass over.
    So are those with a list or a map that is not empty. No type may hold itself (`FromAvro` refuses those).
    """
    return _Columns(is_read=is_read).of(avro)


class _Columns(OfTypes[Advance]):
    """Makes what passes over the values of one schema."""

    def __init__(self, *, is_read: bool) -> None:
        super().__init__()
        self._plain = {**_PLAIN, "string": _text if is_read else _sized}
        self._is_read = is_read

    def of_union(self, branches: list[Any]) -> Advance:
        """See OfTypes."""
        return _union([self.of(branch) for branch in branches])

    def of_kind(self, kind: str, avro: Any) -> Advance:
        """See OfTypes."""
        if kind in self._plain:
            return self._plain[kind]
        match kind:
            case "array" | "map":
                self.of(avro["items" if kind == "array" else "values"])  # which may define a type that is used later
                return _empty_blocks
            case "fixed":
                return _fixed(avro["size"])
            case "enum":
                return _symbol(len(avro["symbols"])) if self._is_read else _number(64)
            case _:
                return _record([self.of(field["type"]) for field in avro["fields"]])


def _fixed(size: int) -> Advance:
    return lambda _, at, lost: np.minimum(at + size, lost)


def _boolean(data: AvroBytes, at: Places, lost: Places) -> Places:
    return np.where(data.at(at) <= 1, np.minimum(at + 1, lost), lost)


def _float(data: AvroBytes, at: Places, lost: Places) -> Places:
    """Passes over floats, of which Python keeps all bits unless their exponent is the largest: as of NaN."""
    is_whole = (data.at(at + 3) & ~np.uint8(_MORE) != _LARGEST) | (data.at(at + 2) < _MORE)
    return np.where(is_whole, np.minimum(at + 4, lost), lost)


def _number(bits: int) -> Advance:
    longest = -(-bits // 7)
    most = (1 << (bits - 7 * (longest - 1))) - 1  # that the last byte of the longest number has

    def advance(data: AvroBytes, at: Places, lost: Places) -> Places:
        is_open = data.at(at) >= _MORE
        at = at + 1
        if is_open.any():
            rows = np.flatnonzero(is_open)
            at[rows] = _end_of_number(data, at[rows], lost[rows], longest, most)
        return np.minimum(at, lost, out=at)

    return advance


def _end_of_number(data: AvroBytes, at: Places, lost: Places, longest: int, most: int) -> Places:
    """Returns the end of numbers of which the first byte, before `at`, says that more follow."""
    is_open = np.ones(len(at), np.bool_)
    is_lost = np.zeros(len(at), np.bool_)
    for place in range(1, longest):
        byte = data.at(at)
        at = at + is_open
        is_lost |= is_open & ((byte == 0) if place < longest - 1 else (byte == 0) | (byte > most))
        is_open &= byte >= _MORE
        if not is_open.any():
            break
    return np.where(is_lost, lost, at)


def small_number(data: AvroBytes, at: Places) -> tuple[Places, Places]:
    """Returns numbers as they are encoded (zig-zag), -1 for one of more bytes than it needs; and the places after."""
    number = data.at(at).astype(np.int64)
    at = at + 1
    is_open = number >= _MORE
    if not is_open.any():
        return number, at
    rows = np.flatnonzero(is_open)
    some, places = number[rows] & ~_MORE, at[rows]
    still_open, is_longer = np.ones(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    for place in range(1, _LONGEST_SIZE):
        byte = data.at(places).astype(np.int64)
        some += np.where(still_open, (byte & ~_MORE) << (7 * place), 0)
        is_longer |= still_open & (byte == 0)
        places = places + still_open
        still_open &= byte >= _MORE
        if not still_open.any():
            break
    number[rows], at[rows] = np.where(still_open | is_longer, -1, some), places
    return number, at


def _begins_and_ends(data: AvroBytes, at: Places, lost: Places) -> tuple[Places, Places]:
    """Returns the begin and the end of bytes after their length, which is odd as it is encoded if it is below 0."""
    size, at = small_number(data, at)
    end = np.minimum(at + (size >> 1), lost)
    is_below = (size & 1).astype(np.bool_)
    return at, np.where(is_below, lost, end) if is_below.any() else end


def _sized(data: AvroBytes, at: Places, lost: Places) -> Places:
    return _begins_and_ends(data, at, lost)[1]


def _text(data: AvroBytes, at: Places, lost: Places) -> Places:
    begin, end = _begins_and_ends(data, at, lost)
    counts = data.beyond_ascii
    is_wide = counts.take(begin, mode="clip") != counts.take(end, mode="clip")
    for row in np.flatnonzero(is_wide & (end < lost)):
        try:
            data.data[begin[row] : end[row]].tobytes().decode()
        except UnicodeDecodeError:
            end[row] = lost[row]
    return end


def _symbol(count: int) -> Advance:
    def advance(data: AvroBytes, at: Places, lost: Places) -> Places:
        number, at = small_number(data, at)
        is_known = (number & 1 == 0) & (number >= 0) & (number < 2 * count)
        return np.where(is_known, np.minimum(at, lost), lost)

    return advance


def _empty_blocks(data: AvroBytes, at: Places, lost: Places) -> Places:
    return np.where(data.at(at) == 0, np.minimum(at + 1, lost), lost)


def _record(fields: Sequence[Advance]) -> Advance:
    def advance(data: AvroBytes, at: Places, lost: Places) -> Places:
        for field in fields:
            at = field(data, at, lost)
        return at

    return advance


def _union(branches: Sequence[Advance]) -> Advance:
    def advance(data: AvroBytes, at: Places, lost: Places) -> Places:
        number, at = small_number(data, at)
        end = lost.copy()
        for place, branch in enumerate(branches):
            rows = np.flatnonzero(number == 2 * place)
            if len(rows) == len(at):
                return branch(data, at, lost)
            if len(rows):
                end[rows] = branch(data, at[rows], lost[rows])
        return end

    return advance


_PLAIN: Final[dict[str, Advance]] = {
    "null": _fixed(0),
    "boolean": _boolean,
    "float": _float,
    "double": _fixed(8),
    "int": _number(32),
    "long": _number(64),
    "bytes": _sized,
}
