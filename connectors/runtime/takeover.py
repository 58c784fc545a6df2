"""Taking a connector over: steps T1 to T3 of docs/protocol.md."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from compactor.catalog import owner
from compactor.catalog.catalog import Catalog
from compactor.errors import CatalogError, KeyfoldError, StorageError
from compactor.failpoints import hit
from compactor.model.actions import SetBuckets
from compactor.model.state import State
from compactor.storage.base import Storage
from connectors.clock import SystemClock
from connectors.config.connector import ConnectorConfig
from connectors.kafka.admin import Admin
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.probe import probe_all
from connectors.kafka.producers import fence_all
from connectors.runtime import deletion as removal
from connectors.runtime.broker import KafkaBroker

_log = structlog.get_logger()

REACH_S: Final = 10.0
"""How long the brokers are looked for before a connector is taken over."""

LIST_PAUSE_S: Final = 4.0
"""Between two lists of a folder whose newest file is not shown: network file systems keep a list for half a minute."""


class Owned(NamedTuple):
    """A connector that this process owns, as long as nobody else takes it over."""

    catalog: Catalog
    gateway: KafkaBroker

    def close_topics(self, now_ms: Callable[[], int]) -> State:
        """Looks at all source topics and closes those that cannot be read on; returns the catalog's state.

        A look or a commit that fails changes nothing here: the error that asked for it counts.
        """
        with suppress(KeyfoldError):
            found = self.gateway.look_into(self.catalog.refresh())
            self.catalog.commit(lambda _: found, now_ms())
        return self.catalog.state


def take_over(
    storage: Storage,
    connector: ConnectorConfig,
    clients: ClientSettings,
    tasks_max: int,
    now_ms: int,
    known: str | None = None,
) -> Owned:
    """Owns `connector`, whose folder is `storage`, and adds its topics as they are now.

    Where a catalog `known` was there before, no other one is taken, nor made: its disk may be away. Raises
    FencedError where another took over at the same time, OutputError, SourceChangedError and DataLossError where
    topics are not what the catalog knows, SourceMissingError, UnreachableError, StorageError, CatalogError.
    """
    probe_all(connector.name, clients, REACH_S)  # nobody is fenced for a broker that is away
    removal.refuse_begun(storage, connector.name)
    catalog = Catalog.open(storage, connector.name)
    _refuse_other(catalog, storage, known)
    catalog.require("offset", "key", "partition")
    catalog.take_over(str(owner.here()), now_ms, _pause)
    hit("takeover.epoch")
    removal.refuse_begun(storage, connector.name)  # who deletes looks for our epoch after that file is written
    _fence(catalog, connector, clients, tasks_max, now_ms)
    gateway = KafkaBroker(connector, clients, Admin(clients.admin()), storage)
    found = gateway.discover(catalog.state)
    hit("takeover.topics")
    catalog.commit(lambda _: found, now_ms)
    closed = gateway.look_into(catalog.state)
    catalog.commit(lambda _: closed, now_ms)
    _log.info("taken over", epoch=catalog.epoch, topics=sorted(catalog.state.topics))
    return Owned(catalog, gateway)


def _pause() -> None:
    SystemClock().wait(LIST_PAUSE_S, threading.Event())


def _refuse_other(catalog: Catalog, storage: Storage, known: str | None) -> None:
    connector = catalog.state.connector
    if known is None or (catalog.version and catalog.state.catalog_id == known):
        return
    if not catalog.version:
        raise StorageError(
            f"{storage.location} has no catalog, though this worker has worked on catalog {known} there.",
            "See whether the disk of storage.location is mounted, or restore the folder; nothing was written there. "
            "Where it is lost, stop the worker, remove what is left with keyfold delete CONNECTOR.json --outputs, and "
            "start it again.",
        )
    raise CatalogError(
        f"{storage.location} holds catalog {catalog.state.catalog_id} of connector {connector}; this worker has "
        f"worked on catalog {known} there.",
        "See whether the right disk is mounted at storage.location; to go on with this one, start the worker again.",
    )


def _fence(catalog: Catalog, connector: ConnectorConfig, clients: ClientSettings, tasks_max: int, now_ms: int) -> None:
    """Step T2: nobody else can finish a transaction of ours; only then may partitions change buckets."""
    stored = catalog.state.buckets
    fence_all(clients.producer(), [connector.transactional_id(bucket) for bucket in range(max(tasks_max, stored))])
    hit("takeover.fence")
    if tasks_max != stored:
        catalog.commit(lambda _: [SetBuckets(count=tasks_max)], now_ms)
