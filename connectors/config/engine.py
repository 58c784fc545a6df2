"""What a connector's configuration means to the engine."""

from __future__ import annotations

from compactor.settings import EngineSettings
from connectors.config.connector import ConnectorConfig


def engine_settings(connector: ConnectorConfig) -> EngineSettings:
    """The engine's part of `connector`."""
    return EngineSettings(
        connector=connector.name,
        policy=connector.policy,
        fold=connector.fold,
        fold_bytes_per_second=connector.fold_io_max_bytes_per_second,
        publish_local_records=connector.publish_local_max_records,
        bootstrap_fold=connector.bootstrap_fold_enable,
        tolerate_rejected=connector.errors_tolerance == "all",
        snapshot_interval_ms=connector.snapshot_interval_ms,
        snapshot_retention_count=connector.snapshot_retention_count,
        snapshot_strings=connector.snapshot_string_columns,
    )
