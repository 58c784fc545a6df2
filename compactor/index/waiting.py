"""Keeps entries of an index on disk that do not fit into memory, in parts that rise by hash."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from compactor.index.blocks import NARROW, Entries
from compactor.storage.spill_file import unnamed_file

_BITS: Final = 6
"""Upper bits of a hash that say its part: 64 parts, of less than a million entries for 50 million keys."""

_PIECE: Final = 1 << 17
"""Entries that are put into parts together: a column of them stays in the processor's cache. A million at once take
twice the time; a quarter of it is read in as many more pieces."""


class _Column(Struct, frozen=True):
    """A column of entries that were written together: numbers of `type` from `position` on, part by part.

    `bounds` are the first row of each part, and the number of rows.
    """

    position: int
    type: np.dtype[Any]
    bounds: list[int]


class WaitingEntries:
    """Entries in a file without a name: added first, then read by part. Raises OSError if the disk refuses."""

    def __init__(self) -> None:
        self._file = unnamed_file()
        # For each column of entries what was written of it, in the order in which it came.
        self._columns: dict[str, list[_Column]] = {name: [] for name in Entries._fields}

    def close(self) -> None:
        """Closes the file, which frees its space on disk."""
        self._file.close()

    def add(self, entries: Entries) -> None:
        """Writes `entries`, in any order; either all that are added have spellings or none."""
        for at in range(0, len(entries.hashes), _PIECE):
            parts = (entries.hashes[at : at + _PIECE] >> np.uint64(64 - _BITS)).astype(np.uint8)
            rows = at + np.argsort(parts, kind="stable")
            bounds = [0, *np.cumsum(np.bincount(parts, minlength=1 << _BITS)).tolist()]
            for name, column in entries.take(rows)._asdict().items():
                if column is not None:
                    self._write(name, column, bounds)

    def parts(self) -> Iterator[Entries]:
        """Yields all entries in parts that rise by hash; the entries of a part are in the order in which they came."""
        self._file.flush()
        for part in range(1 << _BITS):
            columns = {name: self._read(written, part) for name, written in self._columns.items() if written}
            yield Entries(columns["hashes"], columns["deltas"].astype(np.int64), columns.get("spellings"))

    def _write(self, name: str, column: NDArray[Any], bounds: list[int]) -> None:
        if column.dtype == np.int64 and column.max() < NARROW:  # half of the disk
            column = column.astype(np.uint32)
        self._columns[name].append(_Column(self._file.tell(), column.dtype, bounds))
        self._file.write(column.data)

    def _read(self, written: list[_Column], part: int) -> NDArray[Any]:
        """Reads a column of a part."""
        pieces = []
        for column in written:
            (begin, end), size = column.bounds[part : part + 2], column.type.itemsize
            data = os.pread(self._file.fileno(), size * (end - begin), column.position + size * begin)
            pieces.append(np.frombuffer(data, column.type))
        return np.concatenate(pieces)
