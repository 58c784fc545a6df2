"""What a connector is to be, what it is now, and what runs it: values that the herder, REST and metrics share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from connectors.config.connector import ConnectorConfig
from connectors.runtime.connector_store import TargetState
from connectors.runtime.shared_query import SharedQuery
from connectors.runtime.status import ConnectorState, Status
from connectors.runtime.supervisor import Supervisor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from compactor.model.state import CatalogState


class ConnectorSpec(Struct, frozen=True):
    """What a connector is to be; `file` is the connector file that it comes from, None where it was made over REST."""

    config: ConnectorConfig
    target: TargetState = TargetState.RUNNING
    file: Path | None = None


class Connector(Struct, frozen=True):
    """A connector as it is now; `supervisor` is what runs it, None where nothing does."""

    spec: ConnectorSpec
    status: Status
    supervisor: Supervisor | None

    @property
    def name(self) -> str:
        """The connector's name."""
        return self.spec.config.name

    @property
    def catalog_state(self) -> CatalogState | None:
        """The catalog as this process knows it; None where it has not opened it."""
        return None if self.supervisor is None else self.supervisor.catalog_state

    @property
    def tasks(self) -> int:
        """How many tasks publish for it, one for each transactional id: none while it is stopped."""
        if self.status.state is ConnectorState.STOPPED:
            return 0
        state = self.catalog_state
        return (state.buckets if state is not None else 0) or self.spec.config.tasks_max or 1


class SupervisedConnector(Struct):
    """A supervisor, the config that it was made with, and what it was told: to start, to pause, to end."""

    supervisor: Supervisor
    config: ConnectorConfig
    started: bool = False
    paused: bool = False
    ending: bool = False

    def pause(self, *, paused: bool) -> None:
        """Has the connector pause, or go on."""
        if paused and not self.paused:
            self.supervisor.pause()
        elif self.paused and not paused:
            self.supervisor.resume()
        self.paused = paused


class RunContext(Struct, frozen=True):
    """What supervisors run on; `over` is called when one has ended."""

    spark: SparkSession
    query: SharedQuery
    once: bool
    over: Callable[[], object]
