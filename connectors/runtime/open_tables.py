"""Opens the tables of a connector's topics (`snapshot.table`). Their libraries are loaded with the first commit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from compactor.errors import SnapshotError
from compactor.ports import TableVersion
from compactor.snapshot.location import snapshot_storage
from compactor.storage.base import Storage
from compactor.storage.object_client import StoreBucket
from compactor.storage.object_store import ObjectStorage
from connectors.config.connector import ConnectorConfig
from connectors.config.secrets import is_secret
from connectors.config.table_rules import CATALOG
from connectors.data.collector import leave_out_library
from connectors.known_values import remember_setting
from connectors.placeholders import resolve
from connectors.tables.stores import delta_options, iceberg_properties, is_rest
from connectors.tables.topic_tables import TopicTables

if TYPE_CHECKING:
    from connectors.tables.table_files import TableFiles

_LOCKED_S: Final = 30
"""How long (s) a commit waits for those of other connectors to this catalog. With SQLite's own 5 s, 3 commits of 1,273
failed while 40 connectors committed each 15 s; the calls of a commit may take `time_limit.CALLS_S` in all."""

_Opener = Callable[[ConnectorConfig, Storage, StoreBucket | None], Callable[[TableVersion], "TableFiles"]]


def tables_of(
    connector: ConnectorConfig, place: Storage | None, stopped: Callable[[], bool], kept: str
) -> TopicTables | None:
    """Returns the tables of a connector's topics; None if it has none. `stopped` ends the wait for a commit.

    `kept` is the URL of the connector's folder in storage.location.
    """
    if connector.snapshot_table == "none" or place is None:
        return None
    openers: dict[str, _Opener] = {"delta": _delta, "iceberg": partial(_iceberg, kept)}
    bucket = place.bucket if isinstance(place, ObjectStorage) else None
    settings = f"{connector.snapshot_table}:{connector.snapshot_table_name}"
    return TopicTables(
        openers[connector.snapshot_table](connector, snapshot_storage(place), bucket),
        connector.snapshot_file_bytes,
        connector.snapshot_retention_count,
        settings,
        stopped,
    )


def _delta(
    connector: ConnectorConfig, place: Storage, bucket: StoreBucket | None
) -> Callable[[TableVersion], TableFiles]:
    def table(version: TableVersion) -> TableFiles:
        try:
            from connectors.tables.delta import DeltaFiles
        except ImportError as error:
            raise _not_installed(connector, error) from error
        leave_out_library("deltalake")
        where = place.sub(version.connector, version.topic, "delta")
        return DeltaFiles(where, version, delta_options(bucket), connector.snapshot_partition_by)

    return table


def _iceberg(
    kept: str, connector: ConnectorConfig, place: Storage, bucket: StoreBucket | None
) -> Callable[[TableVersion], TableFiles]:
    def table(version: TableVersion) -> TableFiles:
        try:
            from pyiceberg.catalog import AVAILABLE_CATALOGS, CatalogType, load_catalog

            from connectors.tables.catalog_files import KEPT, SNAPSHOTS
            from connectors.tables.iceberg import IcebergFiles
            from connectors.tables.rest_catalog import BoundedRestCatalog
        except ImportError as error:
            raise _not_installed(connector, error) from error
        properties, own = _properties(connector), None
        if not properties:
            properties = {"type": "sql", "uri": f"sqlite:///{place.location}/{CATALOG}?timeout={_LOCKED_S}"}
            own = place.sub(version.connector, version.topic, "iceberg")
        AVAILABLE_CATALOGS[CatalogType.REST] = partial(BoundedRestCatalog, is_secret)
        properties = iceberg_properties(bucket, place.url(""), properties)
        catalog = load_catalog("keyfold", **{**properties, KEPT: kept, SNAPSHOTS: place.url("")})
        leave_out_library(f"pyiceberg's {type(catalog).__name__}")
        files = None if bucket is None or is_rest(properties) else place
        partitions = connector.snapshot_partition_by
        return IcebergFiles(catalog, connector.iceberg_table(version.topic), own, version.connector, partitions, files)

    return table


def _properties(connector: ConnectorConfig) -> dict[str, str]:
    for name, text in connector.iceberg_catalog.items():
        remember_setting(text, is_secret=is_secret(f"iceberg.catalog.{name}"), over_rest=False)
    return {name: resolve(text, connector.limits) for name, text in connector.iceberg_catalog.items()}


def _not_installed(connector: ConnectorConfig, error: ImportError) -> SnapshotError:
    return SnapshotError(
        f"Connector {connector.name}: snapshot.table={connector.snapshot_table} needs a library that is not "
        f"installed: {error.name}.",
        "Install it with pip install 'keyfold[tables]'.",
    )
