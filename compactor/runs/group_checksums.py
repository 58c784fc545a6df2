"""Checksums of the row groups of a file, which its footer has: a reader of one need not read the rest of the file.

Checksums of pages do not cover their headers, and to decode by a wrong header may end the process.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import pyarrow.parquet as pq

KEY: Final = b"keyfold.row_groups"
"""Their name among the footer's key-value metadata; an older keyfold passes over it."""

_BEGIN: Final = 4
"""Where the first row group begins: before it stands Parquet's magic."""

# End and CRC-32 of a row group.
_GROUP: Final = struct.Struct("<QI")


class GroupChecksum(NamedTuple):
    """The bytes [first, end) of a file are a row group with this CRC-32."""

    first: int
    end: int
    crc: int

    def fits(self, data: bytes) -> bool:
        """Returns whether `data` is what was written."""
        return zlib.crc32(data) == self.crc


class GroupSums:
    """Sums what is written to a file, a row group after the other."""

    def __init__(self) -> None:
        # The CRC-32 of what was written since the last row group ended, and the ends and CRC-32s of those before.
        self._crc = 0
        self._groups: list[bytes] = []

    def add(self, data: bytes) -> None:
        """Takes what is written of a row group."""
        self._crc = zlib.crc32(data, self._crc)

    def end(self, at: int) -> None:
        """Ends a row group at this byte of the file; the first call is for the magic before all of them."""
        if at > _BEGIN:
            self._groups.append(_GROUP.pack(at, self._crc))
        self._crc = 0

    def metadata(self) -> dict[bytes, bytes]:
        """Returns what the footer has of them."""
        return {KEY: base64.b64encode(b"".join(self._groups))}


def of_footer(footer: pq.FileMetaData) -> Sequence[GroupChecksum] | None:
    """Returns the checksum of each row group, None if a file has none. `footer` is verified."""
    text = (footer.metadata or {}).get(KEY)
    if text is None:
        return None
    groups = [(_BEGIN, 0), *_GROUP.iter_unpack(base64.b64decode(text))]
    return [GroupChecksum(first, end, crc) for (first, _), (end, crc) in pairwise(groups)]
