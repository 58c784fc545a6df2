"""Finds which file of a table has each row of a snapshot, and which files have others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from connectors.tables.positions import PlacePart, RowPlaces, SnapshotPlaces
from connectors.tables.table_files import TableFile

_SAMPLE: Final = 10_000


class RowFiles:
    """Compares the rows of `files` with those of a snapshot by their places, a part of these after the other.

    It holds a number for each row of the snapshot: a byte, or two if there are more than 255 files.
    """

    def __init__(self, files: Sequence[TableFile], places: SnapshotPlaces) -> None:
        self.files = files
        self.of_rows = np.zeros(places.count, np.min_scalar_type(len(files)))
        """The number of the file that has each row of the snapshot, from 1 on; 0: none, or one that is outdated."""
        self.outdated = {number for number, file in enumerate(files) if not file.is_whole}
        """The files, by their numbers from 0 on, with a row that the snapshot has not, or that is there twice."""
        self.counts = [0] * len(files)
        """How many rows each file has, if it is not outdated."""
        for number in range(places.parts):
            self._compare(places.part(number))

    def _compare(self, part: PlacePart) -> None:
        positions = part.positions
        taken = np.zeros(positions.size, self.of_rows.dtype)
        for number, file in enumerate(self.files):
            if number in self.outdated:
                continue
            index = _current(part.own(file.places()), positions)
            if index is None or taken[index].any() or _has_repeats(index):
                self.outdated.add(number)
                continue
            taken[index] = number + 1
            self.counts[number] += len(index)
        self.of_rows[part.rows] = taken[positions.indices]


def _current(places: pa.Table, positions: RowPlaces) -> NDArray[np.int64] | None:
    """Returns the index of each of `places`; None if some of them are not at `positions`.

    If some of _SAMPLE rows are not, the others need not be looked up.
    """
    some = np.arange(0, places.num_rows, max(1, places.num_rows // _SAMPLE))
    if (positions.index_of(places.take(pa.array(some))) < 0).any():
        return None
    index: NDArray[np.int64] = positions.index_of(places)
    return None if (index < 0).any() else index


def _has_repeats(index: NDArray[np.int64]) -> bool:
    """Returns whether a number is there twice: `np.unique` would take 6.4 s of 5 million, sorting 0.1 s."""
    return bool((np.diff(np.sort(index)) == 0).any())
