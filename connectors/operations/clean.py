"""Cleans the logs of a connector now, whatever their dirty ratio: `keyfold clean`."""

from __future__ import annotations

from compactor.clean.cleaner import CleanedLog
from compactor.json_types import converted_as
from connectors.config.connector import ConnectorConfig
from connectors.config.worker import WorkerConfig
from connectors.errors import ConfigError
from connectors.operations.request_timeout import RequestTimeout
from connectors.operations.worker_request import DEFAULT_TIMEOUT, perform, request
from connectors.runtime.request_handler import CLEAN


def clean(
    worker: WorkerConfig,
    connector: ConnectorConfig,
    topic: str | None = None,
    partition: int | None = None,
    timeout: RequestTimeout = DEFAULT_TIMEOUT,
) -> tuple[CleanedLog, ...]:
    """Cleans every log (or those of `topic`, or its `partition`) in which that changes anything; returns these.

    Raises ConfigError if the connector's cleanup.policy has no compact, UsageError if it has no such log,
    UnreachableError.
    """
    if "compact" not in connector.cleanup_policy:
        raise ConfigError(
            f"Connector {connector.name} has cleanup.policy=delete: its logs are not folded by key.",
            "Add compact to cleanup.policy if they are to be.",
        )
    result = perform(worker, connector, request(CLEAN, topic, partition), timeout)
    return converted_as(result.get("logs", ()), tuple[CleanedLog, ...])
