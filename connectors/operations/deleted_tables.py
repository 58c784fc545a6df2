"""Finds and removes the tables of Delta and Iceberg of a connector that is deleted."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import product

from compactor.ports import TableVersion
from compactor.storage.base import Storage
from connectors.config.connector import ConnectorConfig
from connectors.config.table_rules import CATALOG
from connectors.runtime.open_tables import tables_of


def table_name(connector: ConnectorConfig, topic: str) -> str:
    """Returns what people call the table of a topic, and find it by."""
    if connector.snapshot_table == "delta":
        return f"table of Delta {connector.snapshot_location}/{connector.name}/{topic}/delta"
    return f"table of Iceberg {'.'.join(connector.iceberg_table(topic))}"


class DeletedTables:
    """The tables that the file of a connector names, as it is now: one a topic.

    `place` has its snapshots, None if it takes none; `kept` is the URL of its folder in storage.location.
    """

    def __init__(self, connector: ConnectorConfig, place: Storage | None, kept: str) -> None:
        self._connector = connector
        self._place = place
        self._tables = tables_of(connector, place, lambda: False, kept)

    def owned(self, topics: Iterable[str], catalogs: Collection[str]) -> tuple[str, ...]:
        """Returns the topics with a table that one of `catalogs` (ids) has committed to. Raises SnapshotError."""
        if self._tables is None or not self._may_be():
            return ()
        each = product(sorted(topics), sorted(catalogs))
        return tuple(dict.fromkeys(topic for topic, catalog in each if self._tables.owned(self._of(topic, catalog))))

    def drop(self, topics: Iterable[str], catalogs: Collection[str]) -> None:
        """Removes these tables, of one of `catalogs`; one of another stays. Raises SnapshotError, StorageError."""
        if self._tables is None or self._place is None:
            return
        for topic in topics:
            if self._may_be():
                for catalog in sorted(catalogs):
                    self._tables.drop(self._of(topic, catalog))
            self._remove_empty(f"{self._connector.name}/{topic}")

    def _remove_empty(self, folder: str) -> None:
        if self._place is not None and not self._place.list(folder):
            self._place.delete_folder(folder)

    def _of(self, topic: str, catalog: str) -> TableVersion:
        assert self._place is not None
        name = self._connector.name
        return TableVersion.of_no_snapshot(name, topic, catalog, 0, self._place.sub(name, topic))

    def _may_be(self) -> bool:
        """Returns whether a table may be there; to ask the catalog in the folder would make it."""
        connector, place = self._connector, self._place
        has_own = connector.snapshot_table == "iceberg" and not connector.iceberg_catalog
        return not has_own or (place is not None and place.exists(CATALOG))
