"""Says what the partitions of a table are (`snapshot.partition.by`), and which may take the place of others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from compactor.errors import SnapshotError
from compactor.snapshot.partitions import IDENTITY, PartitionField, parsed, text_of, values_of
from compactor.storage.base import Storage

_PARTITION_BY: Final = "keyfold.partition.by"
"""The property of a commit that says the partitions of its files."""


def noted_partitions(noted: Mapping[str, str]) -> tuple[PartitionField, ...]:
    """Returns the partitions of our last commit, of which `noted` are the properties."""
    text = noted.get(_PARTITION_BY)
    return parsed(text) if text else ()


def with_partitions(properties: Mapping[str, str], fields: Sequence[PartitionField]) -> dict[str, str]:
    """Returns the properties of a commit that gives a table the partitions `fields`."""
    return {**properties, _PARTITION_BY: ", ".join(map(str, fields))}


def foreign(where: str, said: str) -> SnapshotError:
    """Returns the error of a table with other partitions than our last commit has given it."""
    return SnapshotError(
        f"{where} is partitioned by {said or 'nothing'}, which keyfold has not done.",
        "Set another snapshot.table.name or snapshot.location, or move that table away.",
    )


def values_in(fields: Sequence[PartitionField], rows: pa.Table) -> list[Any]:
    """Returns the values of the partition that all `rows` are of; those of transforms are numbers."""
    (first,) = rows.slice(0, 1).combine_chunks().to_batches()
    return [values_of(field, first)[0].as_py() for field in fields]


def plain_text(field: PartitionField, value: Any) -> str | None:
    """Returns a value as Delta's log has it."""
    if value is None or field.transform != IDENTITY:
        return None if value is None else text_of(field, value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def remove_empty_folders(place: Storage) -> None:
    """Removes the folders of a table that have no file any more: their names have the values of partitions."""
    if place.is_folder:
        for folder, _, _ in os.walk(place.location, topdown=False):
            with suppress(OSError):  # it has files
                Path(folder).rmdir()
