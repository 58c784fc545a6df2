"""Decides which files of a table are replaced, and which rows of a snapshot are written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from connectors.tables.columns import is_promoted
from connectors.tables.positions import RowPlaces, is_below
from connectors.tables.table_files import TableFile, TableHead

_SMALL_FILES: Final = 8
"""So many files below an eighth of the size of a file are left as they are; more are replaced by larger ones."""
_SAME: Final = ("keyfold.generations", "keyfold.settings", "keyfold.columns")
"""Properties without which a row of the same place may be another."""


class TablePlan(NamedTuple):
    """What changes: `wanted` says of rows, by their places, which are written; None: all of them.

    `whole`: no file of before stays.
    """

    wanted: Callable[[pa.Table], Any] | None = None
    removed: tuple[TableFile, ...] = ()
    whole: bool = True


def is_comparable(head: TableHead, properties: Mapping[str, str], schema: pa.Schema) -> bool:
    """Returns whether a row of the table is the row of a snapshot with `properties` if it has the same place."""
    same = all(head.noted.get(name) == properties[name] for name in _SAME)
    return same and not is_promoted(head.schema, schema) and len(schema) == len(head.schema)


def replace(head: TableHead, positions: RowPlaces, file_bytes: int) -> TablePlan:
    """Replaces each file with a row that is not at `positions`, or that another file has too.

    The rows of such a file that are still current are written again. If many files are small, they are replaced too.
    """
    taken = np.zeros(len(positions), bool)
    removed: list[TableFile] = []
    small: list[tuple[TableFile, Any]] = []
    for file in head.files:
        index = positions.index_of(file.places()) if file.is_whole else np.array([-1])
        is_current = bool((index >= 0).all()) and not taken[index].any() and len(np.unique(index)) == len(index)
        if not is_current:
            removed.append(file)
            continue
        taken[index] = True
        if file.bytes * 8 < file_bytes:
            small.append((file, index))
    if len(small) > _SMALL_FILES:
        for file, index in small:
            removed.append(file)
            taken[index] = False
    return TablePlan(lambda places: ~taken[positions.index_of(places)], tuple(removed), whole=False)


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
    return TablePlan(lambda places: ~is_below(places, ends), whole=False)


def append_by_places(head: TableHead, positions: RowPlaces) -> TablePlan:
    """Adds the rows that no file of the table has."""
    taken = np.zeros(len(positions), bool)
    for file in head.files:
        index = positions.index_of(file.places())
        taken[index[index >= 0]] = True
    return TablePlan(lambda places: ~taken[positions.index_of(places)], whole=False)
