"""Connectors as a herder shows them, made of a status, counts and a catalog's state; and what is scraped of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from unittest.mock import Mock

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from compactor.metrics import Freshness
from compactor.model.actions import AddSnapshot
from compactor.model.log import PartitionLog
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from connectors.config.connector import ConnectorConfig
from connectors.metrics.collector import WorkerCollector
from connectors.metrics.source_lag import SourceLag
from connectors.runtime.specs.connectors import ConnectorSpec
from connectors.runtime.status import ConnectorState, Status
from connectors.runtime.supervised_connector import Connector
from tests.support.clocks import ManualClock

NOW_MS = 1_000_000_000
RUNNING = Status(ConnectorState.RUNNING)
NOTHING_SENT = Freshness()


def connector(
    name: str,
    state: CatalogState | None = None,
    status: Status = RUNNING,
    counters: Mapping[str, int] | None = None,
    freshness: Freshness = NOTHING_SENT,
    /,
    **config: str,
) -> Connector:
    """A connector that a supervisor runs, whose catalog is in `state`; None: not opened yet."""
    supervisor = Mock(catalog_state=state, counters=counters or {}, status=status, freshness=freshness)
    return Connector(spec(name, **config), status, supervisor)


def stopped(name: str, **config: str) -> Connector:
    """A connector that nothing runs."""
    return Connector(spec(name, **config), Status(ConnectorState.STOPPED), None)


def spec(name: str, **config: str) -> ConnectorSpec:
    own = {"name": name, "connector.class": "keyfold.CompactedTopic", "topics": name}
    return ConnectorSpec(ConnectorConfig.model_validate({**own, **config}))


def state(*logs: PartitionLog, buckets: int = 1, snapshots: Sequence[AddSnapshot] = ()) -> CatalogState:
    return CatalogState(logs=logs, buckets=buckets, snapshots=tuple(snapshots))


def snapshot(created_ms: int, size: int, topic: str = "t") -> AddSnapshot:
    return AddSnapshot(
        topic=topic, id=str(created_ms), path="", created_ms=created_ms, source_offsets={}, records=1, bytes=size
    )


class Series(NamedTuple):
    """A series by its name and its labels' values, which are in the order of the labels' names."""

    name: str
    labels: tuple[str, ...] = ()


class Scrape:
    """What a scrape of a worker with `connectors` gives at `now_ms`."""

    def __init__(
        self,
        *connectors: Connector,
        names: str = "strimzi",
        partitions: bool = False,
        now_ms: int = NOW_MS,
        lag: Mapping[TopicPartition, SourceLag] | None = None,
    ) -> None:
        herder: Any = Mock(connectors=lambda: connectors)
        self._registry = CollectorRegistry()
        clock: Any = ManualClock(now_ms)
        collector = WorkerCollector(herder, clock, lambda *_: lag or {}, names=names, partitions=partitions)
        self._registry.register(collector)

    def text(self) -> str:
        return generate_latest(self._registry).decode()

    def values(self) -> dict[Series, float]:
        """The values of all series; two of one series fail the test."""
        found: dict[Series, float] = {}
        for family in text_string_to_metric_families(self.text()):
            for sample in family.samples:
                series = Series(sample.name, tuple(value for _, value in sorted(sample.labels.items())))
                assert series not in found
                found[series] = sample.value
        return found
