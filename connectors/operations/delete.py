"""Deletes a connector, in an order that survives a crash: `keyfold delete`, steps X1 to X5 of docs/protocol.md.

If a deletion breaks off, the next `keyfold delete` goes on with what deleting.json says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from compactor.catalog import owner_lock
from compactor.catalog.catalog import Catalog
from compactor.catalog.owner_lock import Owner, OwnerLock
from compactor.errors import CatalogError, FencedError
from compactor.failpoints import hit
from compactor.snapshot import listing
from compactor.snapshot import location as snapshot_location
from compactor.storage.base import Storage
from connectors.clock import SYSTEM_CLOCK
from connectors.config.connector import ConnectorConfig
from connectors.config.stores import connector_storage, snapshot_storage
from connectors.config.worker import WorkerConfig
from connectors.errors import ConnectorError, UsageError
from connectors.kafka.access import KafkaAccess
from connectors.kafka.admin import Admin
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.retry import poll_until
from connectors.operations.deleted_tables import DeletedTables
from connectors.operations.deletion_preview import (
    FILES,
    FOLDERS,
    DeletionPlan,
    DeletionPreview,
    held_positions,
    is_there,
    kept_or_empty,
    preview_of,
    was_redriven,
)
from connectors.runtime.specs.connector_store import ConnectorStore
from connectors.runtime.takeover import DELETING, LOCK_POLL_S, abandoned_s


class ConnectorDeletion:
    """The deletion of one connector: `find` looks what there is, `remove` removes it."""

    def __init__(self, worker: WorkerConfig, connector: ConnectorConfig, kafka: KafkaAccess | None = None) -> None:
        self._kafka = kafka or KafkaAccess()
        self._connector = connector
        self._storage = connector_storage(worker, connector.name)
        self._store = ConnectorStore.of(worker)
        self._clients = ClientSettings.of(worker, connector)
        self._snapshots = snapshot_storage(worker, connector)

    def find(self, *, with_outputs: bool) -> DeletionPreview:
        """Finds what there is of the connector; changes nothing.

        Raises UsageError if a worker runs it, or keeps its config, in whatever state; UnreachableError,
        NotAllowedError, StorageError; CatalogError if the folder is another connector's.
        """
        if owner := self._waited_for(lambda: owner_lock.live_owner(self._storage)):
            raise self._run_error(str(owner))
        stored = self._store.files_of(self._connector.name)
        # A live worker has the config in memory, and would run the connector again.
        if stored and (owner := self._waited_for(self._store.owner)):
            raise self._kept_error(str(owner), stored)
        self._kafka.probe(self._connector.name, self._clients)
        admin = self._kafka.admin(self._clients.admin())
        preview = preview_of(self._storage, self._connector, admin, self._snapshots, with_outputs=with_outputs)
        return preview._replace(folder=self._storage.location, stored=tuple(stored))

    def remove(self, preview: DeletionPreview) -> None:
        """Takes steps X1 to X5 for what `find` has found, and removes what a worker has stored of the connector.

        Raises UsageError, with nothing removed, if a worker has begun to run it or to keep its config; FencedError,
        ConnectorError, UnreachableError, NotAllowedError, StorageError: the next deletion goes on then.
        """
        lock = OwnerLock(self._storage)
        with self._stored_kept(preview.stored):
            if not lock.claim(owner_lock.this_process()):
                raise self._run_error(str(owner_lock.live_owner(self._storage) or "another process"))
            try:
                self._remove(preview)
            finally:
                lock.release()

    def _remove(self, preview: DeletionPreview) -> None:
        connector, admin = self._connector, self._kafka.admin(self._clients.admin())
        owner = owner_lock.this_process().text
        catalog = fence(self._storage, connector.name, owner, SYSTEM_CLOCK.now_ms())
        ids = [connector.transactional_id(bucket) for bucket in range(preview.plan.buckets)]
        if was_redriven(self._storage, connector, admin):
            ids.append(connector.redrive_transactional_id)  # one that sleeps would make its group again
        self._kafka.fence(self._clients.producer(), ids)
        hit("delete.fenced")
        refuse_elsewhere(preview, connector, admin)
        begin(self._storage, preview.plan, catalog)
        hit("delete.begun")
        self._store.delete(connector.name)  # while deleting.json keeps workers out
        carry_out(self._storage, preview.plan, connector, admin, self._snapshots)
        refuse_begun_anew(preview, connector, admin)

    @contextmanager
    def _stored_kept(self, stored: Collection[str]) -> Iterator[None]:
        """Keeps workers from reading what is `stored` while it is removed. Raises UsageError if one has begun."""
        if not stored:
            yield
            return
        if not self._store.claim():
            raise self._kept_error(str(self._store.owner() or "that has just begun"), stored)
        try:
            yield
        finally:
            self._store.release()

    def _waited_for(self, owner: Callable[[], Owner | None]) -> Owner | None:
        """Returns who holds a lock, None if it is free, once the lock of a worker that was killed can have ended."""
        return poll_until(lambda held: held is None, owner, abandoned_s(self._storage), LOCK_POLL_S)

    def _run_error(self, owner: str) -> UsageError:
        return UsageError(
            f"Connector {self._connector.name} is run by {owner} now; nothing was removed.",
            "Stop that worker, or take the connector's file off it, then try again.",
        )

    def _kept_error(self, owner: str, stored: Collection[str]) -> UsageError:
        name = self._connector.name
        return UsageError(
            f"Connector {name} is one of the worker {owner}, which keeps {', '.join(stored)}; nothing was removed.",
            f"Take it off that worker with keyfold connectors delete {name} (or, if it comes from a file, by moving "
            "the file away and SIGHUP), or stop the worker; then try again.",
        )


def fence(storage: Storage, connector: str, by: str, now_ms: int) -> Catalog | None:
    """Takes the catalog over (T1 of step X1) for `by`, so that its earlier owner commits nothing more.

    Returns None if there is no catalog, or it cannot be read. Raises FencedError, StorageError.
    """
    try:
        catalog = Catalog.open(storage, connector)
        if not catalog.version:
            return None
        catalog.take_over(by, now_ms)
    except FencedError:
        raise
    except CatalogError:
        return None
    return catalog


def begin(storage: Storage, plan: DeletionPlan, catalog: Catalog | None) -> None:
    """Writes deleting.json (X2). Raises FencedError, without it, if a worker has taken over meanwhile.

    A worker that takes over looks for deleting.json after its T1: either it finds the file, or we find its epoch.
    """
    written = storage.exists(DELETING)
    storage.write(DELETING, msgspec.json.format(msgspec.json.encode(plan), indent=2))
    try:
        if catalog is not None:
            catalog.refresh()
        elif kept_or_empty(storage, plan.connector)[0].epoch:
            raise FencedError(f"Connector {plan.connector}: a worker has begun it anew.", "Stop that worker first.")
    except FencedError:
        if not written:
            storage.delete(DELETING)
        raise


def refuse_elsewhere(preview: DeletionPreview, connector: ConnectorConfig, admin: Admin) -> None:
    """Raises ConnectorError if a worker with another storage has committed a position since `preview` was made.

    Its catalog is not here, so that nothing fences it for good: it would go on, and commit positions again. This is
    called once its transactional ids were initialised, which ends what it has under way. A worker that has nothing to
    publish at that time is not noticed.
    """
    if not preview.strangers:
        return
    now = held_positions(admin, connector, sorted({tp.topic for tp in preview.held}))
    moved = [tp for tp, position in now.items() if position != preview.held.get(tp)]
    if moved:
        raise ConnectorError(
            f"Connector {connector.name} runs elsewhere: the position of {moved[0]} has just moved to "
            f"{now[moved[0]].offset}, and no catalog in this storage.location did that. Nothing was removed.",
            "Stop the worker that runs it, then delete the connector again.",
        )


def refuse_begun_anew(preview: DeletionPreview, connector: ConnectorConfig, admin: Admin) -> None:
    """Raises ConnectorError if a worker with another storage has made the consumer group again after it was removed."""
    if preview.strangers and admin.has_group(connector.group_id):
        raise ConnectorError(
            f"Connector {connector.name} runs elsewhere: consumer group {connector.group_id} was removed, and is there "
            "again. All else is removed.",
            "Stop the worker that runs it, then delete the connector again.",
        )


def carry_out(
    storage: Storage, plan: DeletionPlan, connector: ConnectorConfig, admin: Admin, location: Storage | None
) -> None:
    """Takes steps X3 to X5; what is gone already is skipped. `location` has the snapshots.

    Raises UnreachableError, NotAllowedError, ConnectorError, StorageError, SnapshotError: then the next delete goes on.
    """
    admin.delete_group(connector.group_id)
    if was_redriven(storage, connector, admin):
        admin.delete_group(connector.redrive_group_id)
    hit("delete.groups")
    if plan.with_outputs:
        there = admin.describe([output.topic for output in plan.outputs])
        admin.delete_topics([output.topic for output in plan.outputs if is_there(output, there)])
        if location is not None:
            DeletedTables(connector, location, storage.url("")).drop(plan.tables, plan.catalogs)
            remove_snapshots(location, plan.connector, plan.snapshots, plan.catalogs)
    hit("delete.outputs")
    for folder in FOLDERS:
        storage.delete_folder(folder)
    for name in FILES:
        if name != owner_lock.NAME:  # it is held
            storage.delete(name)
    hit("delete.folder")
    storage.delete(DELETING)
    if {info.path for info in storage.walk("")} <= {owner_lock.NAME}:  # what keyfold did not make stays
        storage.delete_folder("")


def remove_snapshots(location: Storage, connector: str, paths: Iterable[str], catalogs: Collection[str]) -> None:
    """Removes the snapshots at `paths`, LATEST and `current` if they lead there, and the mark of one of `catalogs`.

    Without that mark the next catalog may take snapshots in the folder of `connector`. Snapshots of other catalogs
    stay, and those that are pinned. Raises StorageError.
    """
    for path in paths:
        folder, _, name = path.rpartition("/")
        latest = f"{folder}/{listing.LATEST}"
        if not listing.delete(location, path):
            continue
        if location.exists(latest) and location.read(latest).strip() == name.encode():
            location.delete(f"{folder}/{listing.CURRENT}")
            location.delete(latest)
        if not location.list(folder):
            location.delete_folder(folder)
    if snapshot_location.catalog_of(location, connector) in catalogs:
        location.delete(f"{connector}/{snapshot_location.MARK}")
    if not location.list(connector):
        location.delete_folder(connector)
