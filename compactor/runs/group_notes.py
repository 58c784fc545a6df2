"""What the footer of a file notes of its row groups, so that one can be read without the rest of the file.

A checksum of each: those of pages do not cover their headers, and to decode by a wrong header may end the process.
And its blank columns: a look-up that reads all columns of a row group reads half of them for nothing.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

KEY: Final = b"keyfold.row_group_notes"
"""Their name among the footer's key-value metadata; an older keyfold passes over it."""

_BEGIN: Final = 4
"""The first byte of the first row group: before it stands Parquet's magic."""

# End of a row group, its CRC-32, and a bit for each column of the file that is blank in it.
_GROUP: Final = struct.Struct("<QII")


class GroupNote(NamedTuple):
    """The bytes [first, end) of a file are a row group with this CRC-32; its columns `blanks` are `blank`."""

    first: int
    end: int
    crc: int
    blanks: frozenset[str]

    def fits(self, data: bytes) -> bool:
        """Returns whether `data` is what was written."""
        return zlib.crc32(data) == self.crc


class GroupNotes:
    """Notes what is written to a file, a row group after the other."""

    def __init__(self) -> None:
        # The CRC-32 of what was written since the last row group ended, and the notes of those before.
        self._crc = 0
        self._groups: list[bytes] = []

    def add(self, data: bytes) -> None:
        """Takes what is written of a row group."""
        self._crc = zlib.crc32(data, self._crc)

    def begin(self) -> None:
        """Begins a row group: what was written before is of none."""
        self._crc = 0

    def end(self, at: int, rows: pa.Table) -> None:
        """Ends the row group of `rows` at this byte of the file."""
        blanks = sum(_is_blank(column) << number for number, column in enumerate(rows.columns))
        self._groups.append(_GROUP.pack(at, self._crc, blanks))

    def metadata(self) -> dict[bytes, bytes]:
        """Returns what the footer has of them."""
        return {KEY: base64.b64encode(b"".join(self._groups))}


def _is_blank(column: pa.ChunkedArray) -> bool:
    if pa.types.is_list(column.type):
        return column.null_count == 0 and all(not len(chunk.flatten()) for chunk in column.chunks)
    return bool(column.null_count == len(column))


def blank(field: pa.Field, count: int) -> pa.Array:
    """Returns `count` values of a blank column: null, or of lists, as headers are, none that has anything."""
    if pa.types.is_list(field.type):
        ends = pa.array(np.zeros(count + 1, np.int32))
        return pa.ListArray.from_arrays(ends, pa.nulls(0, field.type.value_type), type=field.type)
    return pa.nulls(count, field.type)


def of_footer(footer: pq.FileMetaData) -> Sequence[GroupNote] | None:
    """Returns the note of each row group, None if a file has none. `footer` is verified."""
    text = (footer.metadata or {}).get(KEY)
    if text is None:
        return None
    groups = [(_BEGIN, 0, 0), *_GROUP.iter_unpack(base64.b64decode(text))]
    names = footer.schema.to_arrow_schema().names
    blanks = {bits: frozenset(name for at, name in enumerate(names) if bits >> at & 1) for *_, bits in groups}
    return [GroupNote(first, end, crc, blanks[bits]) for (first, *_), (end, crc, bits) in pairwise(groups)]
