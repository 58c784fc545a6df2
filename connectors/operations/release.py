"""Ends the quarantine of a partition: `keyfold release`."""

from __future__ import annotations

from connectors.config.connector import ConnectorConfig
from connectors.config.worker import WorkerConfig
from connectors.operations.request_timeout import RequestTimeout
from connectors.operations.worker_request import DEFAULT_TIMEOUT, perform, request
from connectors.runtime.request_handler import RELEASE


def release(
    worker: WorkerConfig,
    connector: ConnectorConfig,
    topic: str,
    partition: int,
    timeout: RequestTimeout = DEFAULT_TIMEOUT,
) -> bool:
    """Ends the quarantine of a partition that has its files back; returns False if it was in none.

    Raises StorageError if a file is still missing or damaged, UsageError if there is no such log, UnreachableError.
    """
    return bool(perform(worker, connector, request(RELEASE, topic, partition), timeout).get("released"))
