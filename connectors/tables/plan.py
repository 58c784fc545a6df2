"""Decides which files of a table are replaced, and which rows of a snapshot are written."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from connectors.tables.columns import is_promoted
from connectors.tables.positions import SnapshotPlaces, is_below
from connectors.tables.row_files import RowFiles
from connectors.tables.table_files import TableFile, TableHead

_SMALL_FILES: Final = 8
"""So many small files of a partition are left as they are; more are replaced."""
_SMALL: Final = 8
"""A file is small below this part of the rows that a file takes."""
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


def replace(head: TableHead, places: SnapshotPlaces, file_bytes: int, row_bytes: Callable[[], float]) -> TablePlan:
    """Replaces each file with a row that is not at `places`, or that another file has too.

    The rows of such a file that are still current are written again. If many files of a partition are small, they are
    replaced too. A file ends at `file_bytes` of Arrow, of which a row has `row_bytes`: its own bytes do not tell, as
    Parquet may make a tenth of them.
    """
    files = RowFiles(head.files, places)
    removed = files.outdated | _small(files, file_bytes, row_bytes)
    stays = np.ones(len(head.files) + 1, bool)
    stays[[0, *(number + 1 for number in removed)]] = False
    gone = tuple(head.files[number] for number in sorted(removed))
    return TablePlan(lambda rows, _: ~stays[files.of_rows[rows]], gone, whole=False)


def _small(files: RowFiles, file_bytes: int, row_bytes: Callable[[], float]) -> set[int]:
    """Returns the numbers of current files that are small, if their partition has many of them."""
    by_partition: dict[str, list[int]] = defaultdict(list)
    for number, file in enumerate(files.files):
        if number not in files.outdated and file.bytes * _SMALL < file_bytes:
            by_partition[file.partition].append(number)
    if all(len(numbers) <= _SMALL_FILES for numbers in by_partition.values()):
        return set()
    most = file_bytes / (_SMALL * row_bytes())
    few = ([each for each in numbers if files.counts[each] < most] for numbers in by_partition.values())
    return {each for numbers in few if len(numbers) > _SMALL_FILES for each in numbers}


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


def append_by_places(head: TableHead, places: SnapshotPlaces) -> TablePlan:
    """Adds the rows that no file of the table has."""
    is_there = np.zeros(places.count, bool)
    for number in range(places.parts):
        part = places.part(number)
        taken = np.zeros(part.positions.size, bool)
        for file in head.files:
            index = part.positions.index_of(part.own(file.places()))
            taken[index[index >= 0]] = True
        is_there[part.rows] = taken[part.positions.indices]
    return TablePlan(lambda rows, _: ~is_there[rows], whole=False)
