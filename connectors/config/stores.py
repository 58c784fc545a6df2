"""Opens the storages that a worker file and a connector file name."""

from __future__ import annotations

from typing import Final

from compactor.storage.base import Storage
from compactor.storage.locations import StoreOptions, open_storage
from connectors.config.connector import ConnectorConfig
from connectors.config.fields import store_location
from connectors.config.worker import WorkerConfig

_S3: Final = ("endpoint", "region", "access_key_id", "secret_access_key", "session_token", "role_arn")
_AZURE: Final = {
    "account_name": "account_name",
    "account_key": "account_key",
    "sas_token": "sas_key",
    "client_id": "client_id",
    "client_secret": "client_secret",
    "tenant_id": "tenant_id",
    "endpoint": "endpoint",
}
_GCS: Final = {
    "service_account_file": "service_account",
    "service_account_key": "service_account_key",
    "endpoint": "base_url",
}
"""The ends of fields of WorkerConfig, with obstore's names."""


def worker_storage(worker: WorkerConfig) -> Storage:
    """Opens storage.location."""
    return open_storage(store_location(worker.storage_location), store_options(worker))


def connector_storage(worker: WorkerConfig, connector: str) -> Storage:
    """Opens the connector's folder in storage.location: catalog/, runs/, requests/."""
    return worker_storage(worker).sub(connector)


def snapshot_storage(worker: WorkerConfig, connector: ConnectorConfig) -> Storage | None:
    """Opens snapshot.location; None if the connector takes no snapshots."""
    if connector.snapshot_location is None:
        return None
    return open_storage(store_location(connector.snapshot_location), store_options(worker), shared=True)


def store_options(worker: WorkerConfig) -> StoreOptions:
    """Returns how the worker file says that object stores are reached."""
    s3_http, azure_http, gcs_http = (getattr(worker, f"storage_{store}_allow_http") for store in ("s3", "azure", "gcs"))
    flags = {"s3": s3_http, "az": azure_http, "gs": gcs_http}
    s3 = _set(worker, "storage_s3_", dict(zip(_S3, _S3, strict=True)))
    return StoreOptions(
        s3={**s3, "virtual_hosted_style_request": "false" if worker.storage_s3_path_style else "true"},
        az=_set(worker, "storage_azure_", _AZURE),
        gs=_set(worker, "storage_gcs_", _GCS),
        allow_http=frozenset(scheme for scheme, allowed in flags.items() if allowed),
    )


def _set(worker: WorkerConfig, prefix: str, names: dict[str, str]) -> dict[str, str]:
    """Returns what is set of the fields `prefix` + name, under obstore's names."""
    values = {theirs: getattr(worker, prefix + ours) for ours, theirs in names.items()}
    return {name: str(value) for name, value in values.items() if value is not None}
