"""Lists the files that an Iceberg table names."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot


def metadata_of(table: Table) -> set[str]:
    """Returns the files of metadata: the newest, and those before it that are still named."""
    return {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}


def paths_of(table: Table) -> set[str]:
    """Returns the data files, manifests and lists of manifests that the snapshots of `table` need."""
    return {path for snapshot in table.snapshots() for path in _of_snapshot(table, snapshot)}


def _of_snapshot(table: Table, snapshot: Snapshot) -> Iterator[str]:
    yield snapshot.manifest_list
    for manifest in snapshot.manifests(table.io):
        yield manifest.manifest_path
        for entry in manifest.fetch_manifest_entry(table.io):
            yield entry.data_file.file_path
