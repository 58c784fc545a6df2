"""Whether what a connector lost is there again, asked while it waits for its restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from connectors.config.connector import ConnectorConfig
from connectors.config.worker import WorkerConfig
from connectors.errors import NoConnectionError
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.probe import probe_all

ASK_S: Final = 2.0
"""How long one question to the brokers waits; those that need longer count as silent."""

_log = structlog.get_logger()


class Outage:
    """The silence of brokers or store: `ask` asks once whether they answer, `silent` says that they did not before.

    They are asked until they have answered. Those that answer the first question were never silent: the connector
    failed for something else.
    """

    def __init__(self, ask: Callable[[], bool], *, silent: bool) -> None:
        self._ask = ask
        self._silent = silent
        self._answered = False

    def is_over(self) -> bool:
        """True once: when they were silent, and answer now."""
        if self._answered:
            return False
        self._answered = self._ask()
        self._silent |= not self._answered
        return self._answered and self._silent


def brokers_answer(worker: WorkerConfig, connector: ConnectorConfig) -> bool:
    """Whether the brokers let every client of `connector` in: what its next life would ask first."""
    try:
        probe_all(connector.name, ClientSettings.of(worker, connector), ASK_S)
    except NoConnectionError:
        return False
    except Exception as error:  # noqa: BLE001  # the next life fails with it, and says so
        _log.debug("brokers could not be asked", exc_info=error)
        return False
    return True
