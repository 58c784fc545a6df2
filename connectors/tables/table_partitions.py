"""Says what the partitions of a table are (`snapshot.partition.by`), and which may take the place of others."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from compactor.errors import SnapshotError
from compactor.snapshot.partitions import IDENTITY, PartitionField, parsed, text_of, values_of
from compactor.storage.base import Storage
from connectors.clock import SYSTEM_CLOCK

_PARTITION_BY: Final = "keyfold.partition.by"
"""The property of a commit that says the partitions of its files."""


_SETTLED_MS: Final = 1_000
"""How long (ms) a folder is without files before it is removed: a writer makes a file in it some milliseconds after the
folder. Longer: an erasure takes so much longer. Shorter: a writer on a busy machine finds its folder gone."""
_USED: Final = (errno.EEXIST, errno.ENOENT, errno.ENOTEMPTY)


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


def remove_empty_folders(
    place: Storage,
    wait_ms: Callable[[int], None] = SYSTEM_CLOCK.sleep_ms,
    remove: Callable[[str], None] = os.rmdir,
) -> str | None:
    """Removes the folders of a table that have no file any more: their names have the values of partitions.

    One that changes within _SETTLED_MS is of a writer at work, and stays. Returns why folders stay, None if none does.
    """
    before = _without_files(place.location) if place.is_folder else {}
    if not before:
        return None
    wait_ms(_SETTLED_MS)
    now = _without_files(place.location)
    for folder, changed_ns in now.items():
        if before.get(folder) == changed_ns and (why := _refusal(remove, folder)) is not None:
            return f"a folder without files cannot be removed: {why}"
    left = len(_without_files(place.location))
    return f"{left} folders without files have changed within {_SETTLED_MS} ms: others write there" if left else None


def _without_files(root: str) -> dict[str, int]:
    """Returns the folders below `root` without a file at any depth, the deepest first, and when (ns) each changed."""
    folders: dict[str, int] = {}
    for folder, below, files in os.walk(root, topdown=False):
        if folder != root and not files and all(f"{folder}/{name}" in folders for name in below):
            with suppress(FileNotFoundError):
                folders[folder] = Path(folder).stat().st_mtime_ns
    return folders


def _refusal(remove: Callable[[str], None], folder: str) -> str | None:
    """Removes a folder, unless it has a file since, or is gone. Returns why it cannot be removed."""
    try:
        remove(folder)
    except OSError as error:
        if error.errno not in _USED:
            return error.strerror or type(error).__name__
    return None
