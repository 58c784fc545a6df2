"""Lists the files that an Iceberg table names."""

from __future__ import annotations

from pyiceberg.table import Table


def metadata_of(table: Table) -> set[str]:
    """Returns the files of metadata: the newest, and those before it that are still named."""
    return {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}


def paths_of(table: Table) -> set[str]:
    """Returns the data files, manifests and lists of manifests that the snapshots of `table` need.

    A manifest that several of them share is read once.
    """
    paths: set[str] = set()
    for snapshot in table.snapshots():
        paths.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in paths:
                paths.add(manifest.manifest_path)
                paths.update(entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io))
    return paths
