"""A connector as it is now, and the topics that it has read: what REST and metrics show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from connectors.errors import NoConnectorError
from connectors.runtime.specs.connectors import ConnectorSpec
from connectors.runtime.status import ConnectorState, Status
from connectors.runtime.supervisor import Supervisor
from connectors.runtime.takeover import ids_to_have

if TYPE_CHECKING:
    from compactor.model.state import CatalogState


class Connector(Struct, frozen=True):
    """A connector as it is now; `supervisor` is what runs it, None if nothing does."""

    spec: ConnectorSpec
    status: Status
    supervisor: Supervisor | None

    @property
    def name(self) -> str:
        """The connector's name."""
        return self.spec.config.name

    @property
    def catalog_state(self) -> CatalogState | None:
        """The catalog as this process knows it; None if it has not opened it."""
        return None if self.supervisor is None else self.supervisor.catalog_state

    @property
    def counters(self) -> Mapping[str, int]:
        """What its newest run has counted; nothing if nothing runs it."""
        return {} if self.supervisor is None else self.supervisor.counters

    @property
    def tasks(self) -> int:
        """How many tasks publish for it, one for each transactional id: none while it is stopped."""
        if self.status.state is ConnectorState.STOPPED:
            return 0
        return ids_to_have(self.catalog_state, self.spec.config)


class ActiveTopics:
    """The topics that connectors have read (KIP-558), as far as this process knows; `find` is `Herder.connector`."""

    def __init__(self, find: Callable[[str], Connector]) -> None:
        self._find = find
        # How many offsets of each topic a connector had taken in when its topics were last reset.
        self._reset: dict[str, dict[str, int]] = {}

    def of(self, name: str) -> list[str]:
        """Returns the topics that a connector has read since they were reset. Raises NoConnectorError."""
        before = self._reset.get(name, {})
        return sorted(topic for topic, count in self._counts(name).items() if count > before.get(topic, 0))

    def reset(self, name: str) -> None:
        """Forgets the topics that were read until now, if there is the connector; the next start shows all again."""
        with suppress(NoConnectorError):
            self._reset[name] = self._counts(name)

    def forget(self, name: str) -> None:
        """Forgets a connector that was deleted."""
        self._reset.pop(name, None)

    def _counts(self, name: str) -> dict[str, int]:
        """Returns how many offsets of each topic were taken in."""
        state = self._find(name).catalog_state
        counts: dict[str, int] = {}
        for log in state.logs if state is not None else ():
            counts[log.topic] = counts.get(log.topic, 0) + log.end - max(0, log.start)
        return counts
