"""Makes the engine's settings from a connector's configuration, and opens what a connector keeps."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from msgspec import Struct

from compactor.errors import StorageError
from compactor.model.state import CatalogState
from compactor.settings import CompactionPolicy, EngineSettings, FoldPolicy
from compactor.storage.base import Storage
from connectors.config.connector import ConnectorConfig
from connectors.config.fields import is_folder
from connectors.config.stores import snapshot_storage
from connectors.config.worker import WorkerConfig
from connectors.errors import UsageError

if TYPE_CHECKING:
    from compactor.catalog.catalog import Catalog

_log = structlog.get_logger()


def engine_settings(connector: ConnectorConfig) -> EngineSettings:
    """Returns what `connector` sets of the engine: the fields of EngineSettings and its policies that settings name.

    A further setting for the engine needs no line here, only a field there.
    """
    cleanup_policy = tuple(sorted(connector.cleanup_policy))
    return EngineSettings(
        connector=connector.name,
        policy=CompactionPolicy(**{**_named(CompactionPolicy, connector), "cleanup_policy": cleanup_policy}),
        fold=FoldPolicy(**_named(FoldPolicy, connector, "fold_"), has_index=needs_index(connector)),
        tolerate_rejected=connector.errors_tolerance == "all",
        sets_topics_aside=connector.errors_tolerance == "none" and connector.errors_scope == "topic",
        applies_truncates=connector.debezium_truncate == "apply",
        **_named(EngineSettings, connector),
    )


def needs_index(connector: ConnectorConfig) -> bool:
    """Returns whether runs get an index of their keys: `auto` is yes if another setting needs one."""
    compares = connector.key_identity != "bytes" or connector.order != "offset" or connector.fill != "none"
    needed = connector.publish_unchanged == "skip" or compares or connector.scope == "topic"
    return connector.state_index == "always" or (connector.state_index == "auto" and needed)


def _named(kind: type[Struct], connector: ConnectorConfig, prefix: str = "") -> dict[str, Any]:
    """Returns, for each field of `kind`, the setting of `connector` with that name after `prefix`, if there is one."""
    names = (name for name in kind.__struct_fields__ if prefix + name in ConnectorConfig.model_fields)
    return {name: getattr(connector, prefix + name) for name in names}


def warn_of_readers(worker: WorkerConfig, connector: str) -> None:
    """Logs that other accounts may read the connector's records; the rights of an existing folder are never changed."""
    if not is_folder(worker.storage_location):
        return
    folder = worker.storage_path / connector
    if all(_is_open(place) for place in (folder, worker.storage_path)):
        _log.warning(
            "others may read what is kept", connector=connector, folder=str(folder), close=f"chmod 700 {folder}"
        )


def _is_open(folder: Path) -> bool:
    """Returns whether accounts other than the owner's may go into it."""
    try:
        return folder.stat().st_mode & 0o011 != 0
    except OSError:
        return False


def other_snapshots(
    worker: WorkerConfig, connector: ConnectorConfig, state: CatalogState
) -> dict[str, tuple[str, ...]]:
    """Lists snapshots in the connector's folder that are not of its catalog, by topic, as far as it can be read."""
    storage, others = snapshot_storage(worker, connector), dict[str, tuple[str, ...]]()
    if storage is None:
        return {}
    from compactor.snapshot import listing

    with suppress(StorageError):
        for topic in sorted(state.topics):
            others[topic] = listing.list_others(storage, state, topic)
    return others


def kept_catalog(storage: Storage, connector: str) -> Catalog:
    """Opens the catalog in `storage` for a command about what it keeps. Raises UsageError if that is nothing."""
    from compactor.catalog.catalog import Catalog

    catalog = Catalog.open(storage, connector)
    if not catalog.state.logs:
        raise UsageError(
            f"Connector {connector} keeps nothing yet: there is no partition of it in {storage.location}.",
            "Run it first: keyfold run CONNECTOR.json --once reads what is there now. If it has run before, its "
            "storage is not here: mount or restore it; docs/operating.md says what to do where it is lost.",
        )
    return catalog
