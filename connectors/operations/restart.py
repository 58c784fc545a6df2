"""Has the worker of a connector start it again: `keyfold restart`."""

from __future__ import annotations

from compactor.catalog import owner_lock
from connectors.clock import SYSTEM_CLOCK
from connectors.config.connector import ConnectorConfig
from connectors.config.stores import connector_storage
from connectors.config.worker import WorkerConfig
from connectors.errors import UsageError
from connectors.operations.request_timeout import RequestTimeout
from connectors.operations.worker_request import DEFAULT_TIMEOUT, ask, request
from connectors.runtime.request_handler import RESTART


def restart(worker: WorkerConfig, connector: ConnectorConfig, timeout: RequestTimeout = DEFAULT_TIMEOUT) -> None:
    """Asks the worker of `connector` to start it again with the settings that it has read; returns once it runs.

    Raises UsageError if no worker runs it, KeyfoldError if it FAILED again, UnreachableError.
    """
    storage = connector_storage(worker, connector.name)
    if not owner_lock.is_alive(storage):
        raise UsageError(
            f"No worker runs connector {connector.name}: there is nothing to restart.",
            "Start one: keyfold run CONNECTOR.json.",
        )
    ask(storage, connector.name, request(RESTART), timeout, SYSTEM_CLOCK)
