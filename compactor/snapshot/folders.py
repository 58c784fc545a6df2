"""Lets readers find a new snapshot, and removes those that may go: what follows a commit in step 17."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

import structlog

from compactor.catalog.catalog import Catalog
from compactor.errors import KeyfoldError, SnapshotStorageError
from compactor.model.actions import AddSnapshot
from compactor.model.state import CatalogState
from compactor.snapshot import listing, location
from compactor.storage.base import Storage

_log = structlog.get_logger()


class SnapshotFolders:
    """Changes what is in the snapshot location `place` besides a new snapshot: LATEST, `current`, old folders.

    `storage` is the connector's, which has the catalog.
    """

    def __init__(self, place: Storage, storage: Storage, keep: int) -> None:
        self.place = place
        self._storage = storage
        # How many snapshots of a topic are kept.
        self._keep = keep
        # (topic, id) of snapshots of other catalogs that were logged in this run.
        self._warned: set[tuple[str, str]] = set()

    def lead(self, state: CatalogState, taken: AddSnapshot, before: Collection[str], named: Collection[str]) -> None:
        """Lets LATEST and `current` lead to `taken`, then removes the snapshots that may go.

        `before` are the ids that were in the location before `taken` was committed, `named` those that the catalog
        named then. What the location refuses is logged: the next snapshot makes up for it.
        """
        topic = taken.topic
        with _later("LATEST may name an older snapshot, and old snapshots may still be there", taken):
            if location.owns(self.place, state):  # an operator may have given the folder away meanwhile
                listing.set_latest(self.place, taken)
                with _later("current may lead to an older snapshot", taken):
                    listing.set_current(self.place, taken)
            self._delete_unreferenced(state, topic, before, set(named) - listing.ids(state, topic))

    def withdraw(self, state: CatalogState, taken: AddSnapshot) -> None:
        """Removes a snapshot that a newer owner has kept out of the catalog.

        That owner may have removed data of it while this one was frozen before the manifest. Whether the catalog names
        it is read again: FencedError does not say whether the commit counts.
        """
        with suppress(KeyfoldError):  # the next snapshot of the newer owner removes it as well
            if taken.id not in listing.ids(Catalog.open(self._storage, state.connector).state, taken.topic):
                self.delete(state, taken.topic, taken.id, "a newer owner has taken over")

    def _delete_unreferenced(
        self, state: CatalogState, topic: str, before: Collection[str], dropped: Collection[str]
    ) -> None:
        """Deletes what may go; logs of each snapshot of another catalog, once in a worker's run, that it stays."""
        unreferenced = listing.unreferenced(self.place, state, topic, before, dropped, self._keep)
        for name, why in unreferenced.removable.items():
            self.delete(state, topic, name, why)
        for name in unreferenced.others:
            if (topic, name) not in self._warned:
                self._warned.add((topic, name))
                _log.warning("snapshot of another catalog is left as it is", topic=topic, id=name)

    def delete(self, state: CatalogState, topic: str, name: str, why: str, *, but_mark: bool = False) -> None:
        """Deletes the folder of a snapshot, all of it or `but_mark`, and logs why; one that is pinned stays."""
        path = f"{state.connector}/{topic}/{name}"
        if but_mark:
            listing.clear(self.place, path)
        elif not listing.delete(self.place, path):
            return
        _log.info("snapshot removed", topic=topic, id=name, why=why)


@contextmanager
def _later(what: str, taken: AddSnapshot) -> Iterator[None]:
    """Logs what the location refuses once a snapshot is there: the next vacuum and the next snapshot make up for it."""
    try:
        yield
    except SnapshotStorageError as error:
        _log.warning(what, topic=taken.topic, id=taken.id, error=str(error))
