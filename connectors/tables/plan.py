"""Decides which files of a table are replaced, and which rows of a snapshot are written."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from connectors.tables.columns import is_promoted
from connectors.tables.positions import RowPlaces, is_below
from connectors.tables.table_files import TableFile, TableHead

_SMALL_FILES: Final = 8
"""So many small files of a partition are left as they are; more are replaced."""
_SMALL: Final = 8
"""A file is small below this part of the rows that a file takes."""
_SAMPLE: Final = 10_000
_SAME: Final = ("keyfold.generations", "keyfold.settings", "keyfold.columns")
"""Properties without which a row of the same place may be another."""


class TablePlan(NamedTuple):
    """What changes: `wanted` says which of some rows are written; None: all of them.

    It is given the slice that they are of all rows, and what reads their places.

    `whole`: no file of before stays.
    """

    wanted: Callable[[slice, Callable[[], pa.Table]], NDArray[np.bool_]] | None = None
    removed: tuple[TableFile, ...] = ()
    whole: bool = True


def is_comparable(head: TableHead, properties: Mapping[str, str], schema: pa.Schema) -> bool:
    """Returns whether a row of the table is the row of a snapshot with `properties` if it has the same place."""
    same = all(head.noted.get(name) == properties[name] for name in _SAME)
    return same and not is_promoted(head.schema, schema) and len(schema) == len(head.schema)


def replace(head: TableHead, positions: RowPlaces, file_bytes: int, row_bytes: Callable[[], float]) -> TablePlan:
    """Replaces each file with a row that is not at `positions`, or that another file has too.

    The rows of such a file that are still current are written again. If many files of a partition are small, they are
    replaced too. A file ends at `file_bytes` of Arrow, of which a row has `row_bytes`: its own bytes do not tell, as
    Parquet may make a tenth of them.
    """
    taken = np.zeros(positions.size, bool)
    removed: list[TableFile] = []
    small: dict[str, list[tuple[TableFile, Any]]] = defaultdict(list)
    for file in head.files:
        places = file.places() if file.is_whole else None
        if places is None or _is_outdated(places, positions):
            removed.append(file)
            continue
        index = positions.index_of(places)
        is_current = bool((index >= 0).all()) and not taken[index].any() and not _has_repeats(index)
        if not is_current:
            removed.append(file)
            continue
        taken[index] = True
        if file.bytes * _SMALL < file_bytes:
            small[file.partition].append((file, index))
    if any(len(files) > _SMALL_FILES for files in small.values()):
        most = file_bytes / (_SMALL * row_bytes())
        few = {name: [each for each in files if len(each[1]) < most] for name, files in small.items()}
        small = {name: files for name, files in few.items() if len(files) > _SMALL_FILES}
    else:
        small = {}
    for file, index in chain.from_iterable(small.values()):
        removed.append(file)
        taken[index] = False
    return TablePlan(lambda rows, _: ~taken[positions.indices[rows]], tuple(removed), whole=False)


def _is_outdated(places: pa.Table, positions: RowPlaces) -> bool:
    """Returns whether some of _SAMPLE rows are not at `positions`: then the others need not be looked up."""
    rows = np.arange(0, places.num_rows, max(1, places.num_rows // _SAMPLE))
    return bool((positions.index_of(places.take(pa.array(rows))) < 0).any())


def _has_repeats(index: NDArray[np.int64]) -> bool:
    """Returns whether a number is there twice: `np.unique` would take 6.4 s of 5 million, sorting 0.1 s."""
    return bool((np.diff(np.sort(index)) == 0).any())


def append_by_offsets(head: TableHead, properties: Mapping[str, str]) -> TablePlan | None:
    """Adds the rows from the offsets of our last commit on; None if these are not known any more.

    If offsets have begun again since then, all rows are added.
    """
    noted = head.noted.get("keyfold.source.offsets")
    if noted is None:
        return None if head.files else TablePlan(whole=False)
    if head.noted.get("keyfold.generations") != properties["keyfold.generations"]:
        return TablePlan(whole=False)
    ends = {int(partition): end for partition, end in json.loads(noted).items()}
    return TablePlan(lambda _, places: ~is_below(places(), ends), whole=False)


def append_by_places(head: TableHead, positions: RowPlaces) -> TablePlan:
    """Adds the rows that no file of the table has."""
    taken = np.zeros(positions.size, bool)
    for file in head.files:
        index = positions.index_of(file.places())
        taken[index[index >= 0]] = True
    return TablePlan(lambda rows, _: ~taken[positions.indices[rows]], whole=False)
