"""Taking a connector over: steps T1 to T3 of docs/protocol.md."""

from __future__ import annotations

from typing import Final, NamedTuple

import structlog

from compactor import owner
from compactor.actions import SetBuckets
from compactor.catalog import Catalog
from compactor.failpoints import hit
from compactor.storage import Storage
from connectors.config.connector import ConnectorConfig
from connectors.gateway import KafkaGateway
from connectors.kafka.admin import Admin
from connectors.kafka.reach import reach_all
from connectors.kafka.settings import ClientSettings
from connectors.sinks.changelog import fence_all

_log = structlog.get_logger()

REACH_S: Final = 10.0
"""How long the brokers are looked for before a connector is taken over."""


class Owned(NamedTuple):
    """A connector that this process owns, as long as nobody else takes it over."""

    catalog: Catalog
    gateway: KafkaGateway


def take_over(
    storage: Storage, connector: ConnectorConfig, clients: ClientSettings, tasks_max: int, now_ms: int
) -> Owned:
    """Owns `connector`, whose folder is `storage`, and adds its topics as they are now.

    Raises FencedError where another took over at the same time, OutputError and SourceChangedError where topics are
    not what the catalog knows, SourceMissingError, UnreachableError, StorageError.
    """
    reach_all(connector.name, clients, REACH_S)  # nobody is fenced for a broker that is away
    catalog = Catalog.open(storage, connector.name)
    catalog.require("offset", "key", "partition")
    catalog.take_over(str(owner.here()), now_ms)
    hit("takeover.epoch")
    _fence(catalog, connector, clients, tasks_max, now_ms)
    gateway = KafkaGateway(connector, clients, Admin(clients.admin()), storage)
    found = gateway.discover(catalog.state)
    hit("takeover.topics")
    catalog.commit(lambda _: found, now_ms)
    _log.info("taken over", epoch=catalog.epoch, topics=sorted(catalog.state.topics))
    return Owned(catalog, gateway)


def _fence(catalog: Catalog, connector: ConnectorConfig, clients: ClientSettings, tasks_max: int, now_ms: int) -> None:
    """Step T2: nobody else can finish a transaction of ours; only then may partitions change buckets."""
    stored = catalog.state.buckets
    fence_all(clients, [connector.transactional_id(bucket) for bucket in range(max(tasks_max, stored))])
    hit("takeover.fence")
    if tasks_max != stored:
        catalog.commit(lambda _: [SetBuckets(count=tasks_max)], now_ms)
