"""Reads a catalog: from its newest checkpoint on, or from the version that is held already; or its epoch alone.

A reader relies on three things.

- A commit's file is never changed, and only those below the second newest checkpoint are ever removed. So a reader
  that finds a file gone was overtaken by a checkpoint, and starts over from a new listing.
- Below the newest checkpoint a file may be a sleeper's (see `compactor.catalog.catalog`). A reader that holds a version
  below the newest checkpoint therefore reads that checkpoint and none of the commits below it.
- Above it every file is of the one history, because its number was never free twice. `previous` proves it each time.
  If the connector was deleted and made again, its numbers began again: an owner of the deleted catalog that slept may
  have left a file above the newest version. Such a file names that catalog, and is passed over (`ends_at`). If a
  file is missing below one that names no other catalog, the catalog has a hole.

Instead of a damaged checkpoint the one before it is read, and the commits since: they say the same, and are kept
(`commits.trimmable`). A damaged commit has nothing in its place.
"""

from __future__ import annotations

from typing import Final

import structlog

from compactor.catalog.commits import (
    FOLDER,
    RESTORE,
    STOP,
    Checkpoint,
    Commit,
    Head,
    Listing,
    View,
    checkpoint_path,
    commit_path,
    follow,
    head_of,
    is_of_another,
    list_versions,
    lost_below,
    newest_damaged,
    newest_head,
    read,
    unlisted,
    view_of,
)
from compactor.catalog.hidden import all_gone
from compactor.errors import BrokenChainError, CatalogError, DamagedError, MissingFileError, ReplacedCatalogError
from compactor.model.actions import Append, PlanFold, Publish
from compactor.model.state import CatalogState
from compactor.storage.base import Storage

# How often what another instance has overtaken, or a store did not answer, is begun again before it is an error.
ATTEMPTS: Final = 10

_log = structlog.get_logger()


class History:
    """What one process has read of a catalog, and which files it saw dropped."""

    def __init__(self, storage: Storage) -> None:
        # The newest version that was read or committed; moves forward only.
        self.view = View()
        self._storage = storage
        # By path: when a commit dropped the file, in ms of the committer's clock; until `forget`, or a new start.
        self._dropped: dict[str, int] = {}
        # The time in ms of the checkpoint that reading began with: a file that was dropped before it counts from then.
        self._since_ms = 0
        # Versions of other catalogs that were found above the newest, each of which is logged once.
        self._told: set[int] = set()

    def advance(self) -> View:
        """Reads on to the newest version. If nothing is new, this is one listing.

        Raises StorageError; CatalogError if a file is missing, damaged or does not fit.
        """
        for _ in range(ATTEMPTS):
            listing = list_versions(self._storage)
            try:
                return self._replay(listing)
            except (MissingFileError, BrokenChainError) as error:
                failure = error
        if not self.view.version and listing.is_lost:
            raise lost_below(self._storage, listing.commits[0]) from failure
        raise CatalogError(f"Catalog {self._storage.location} has a hole: {failure.message}", RESTORE) from failure

    def take(self, commit: Commit) -> None:
        """Applies the next commit. Raises CatalogError if it does not fit."""
        self.adopt(commit, follow(self.view, commit))

    def adopt(self, commit: Commit, after: View) -> None:
        """Sets the view to `after`, which is what the next commit makes of it: its committer has applied it already."""
        self._note_dropped(commit, self.view.state, after.state)
        self.view = after

    def unreferenced_since(self, path: str) -> int:
        """Returns when `path` was dropped, in ms of the committer's clock, or a later time, never an earlier one.

        It is 0 for a file that no commit has named since the catalog was made.
        """
        return self._dropped.get(path, self._since_ms)

    def stands(self, listing: Listing) -> bool:
        """Checks that the newest version read so far is in `listing` as it was; returns False if its file is damaged.

        Raises ReplacedCatalogError if it is another commit now, MissingFileError if it is gone, StorageError.
        """
        view = self.view
        if not view.version:
            return True
        if view.version not in listing.commits:  # its checkpoint may be one that this owner has made too late
            self.refuse_another(listing)
        try:
            head = head_of(self._storage, listing, view.version)
        except DamagedError:
            return False
        if head.commit_id != view.commit_id:
            raise self._replaced(head)
        return True

    def is_there(self) -> bool:
        """Returns whether the newest version read so far is there as it was, by its name. Raises StorageError.

        A list that lacks it is late then. What was created is never taken for lost because of such a list.
        """
        try:
            return read(self._storage, commit_path(self.view.version), Head).commit_id == self.view.commit_id
        except (MissingFileError, DamagedError):
            return False

    def refuse_another(self, listing: Listing) -> None:
        """Raises ReplacedCatalogError if the newest version in `listing` is of another catalog than the view."""
        newest = newest_head(self._storage, listing)
        if newest is not None and is_of_another(newest, self.view.state.catalog_id):
            raise self._replaced(newest)

    def ends_at(self, listing: Listing, version: int, catalog_id: str) -> bool:
        """Returns whether `version` is the newest in `listing` of the catalog `catalog_id`: all above name another one.

        Raises StorageError, CatalogError if a file above cannot be read.
        """
        above = listing.above(version)
        if not listing.holds(version) or not all(self._names_another(listing, number, catalog_id) for number in above):
            return False
        if version and self._names_another(listing, version, catalog_id):
            return False  # then the other catalog has taken the place of this one
        if new := set(above) - self._told:
            self._told |= new
            _log.warning(
                "commits of a deleted catalog are passed over: an owner that slept has made them",
                location=self._storage.location,
                versions=sorted(new),
                newest=version,
            )
        return True

    def forget(self, path: str) -> None:
        """Forgets `path`, which has been removed and is not asked for again."""
        self._dropped.pop(path, None)

    def _replay(self, listing: Listing) -> View:
        self._refuse_older(listing)
        if listing.holds(self.view.version):
            self.stands(listing)
        damaged = self._start(listing)
        if not listing.holds(self.view.version):  # it follows nothing any more, though an own commit may follow it
            self._refuse_unlisted()
            self.refuse_another(listing)
            path = f"{self._storage.location}/{commit_path(self.view.version)}"
            raise MissingFileError(f"{path} was there and is gone.", RESTORE)
        for version in range(self.view.version + 1, listing.newest + 1):
            try:
                self.take(read(self._storage, commit_path(version), Commit))
            except (MissingFileError, BrokenChainError) as error:
                if self._ends_before(listing, version):
                    break
                raise (damaged or error if isinstance(error, MissingFileError) else error) from error
            except DamagedError as error:
                raise newest_damaged(error, version) if version == listing.newest else error from error
        return self.view

    def _ends_before(self, listing: Listing, version: int) -> bool:
        """Returns whether nothing from `version` on, which does not follow the view, is of this catalog."""
        try:
            return bool(self.view.version) and self.ends_at(listing, version - 1, self.view.state.catalog_id)
        except DamagedError:  # it tells nothing
            return False

    def _names_another(self, listing: Listing, version: int, catalog_id: str) -> bool:
        return is_of_another(head_of(self._storage, listing, version), catalog_id)

    def _start(self, listing: Listing) -> DamagedError | None:
        """Goes on from the newest sound checkpoint above the view; returns the error of the newest if that is damaged.

        If none is sound, the view stays, and the commits above it are read.
        """
        damaged: DamagedError | None = None
        for version in reversed(listing.checkpoints):
            if version <= self.view.version:
                break
            try:
                checkpoint = read(self._storage, checkpoint_path(version), Checkpoint)
            except DamagedError as error:
                _log.warning("checkpoint damaged, reading around it", error=error.message)
                damaged = damaged or error
            else:
                if self._is_strange(listing, checkpoint):
                    continue
                self.view = view_of(checkpoint)
                # A file that was dropped before this checkpoint was dropped no later than the checkpoint's time.
                self._dropped, self._since_ms = {}, self.view.at_ms
                break
        return damaged

    def _is_strange(self, listing: Listing, checkpoint: Checkpoint) -> bool:
        """Returns whether an owner that slept has made the checkpoint, of a catalog that is not in the folder."""
        if self.view.version and checkpoint.state.catalog_id != self.view.state.catalog_id:
            return True
        if checkpoint.version not in listing.commits:
            newest = newest_head(self._storage, listing)
            return newest is not None and is_of_another(checkpoint, newest.catalog)
        try:
            return read(self._storage, commit_path(checkpoint.version), Head).commit_id != checkpoint.commit_id
        except DamagedError:  # the checkpoint stands in for it
            return False

    def _replaced(self, by: Head) -> ReplacedCatalogError:
        state, other = self.view.state, "another one" if by.catalog is None else f"catalog {by.catalog}"
        if by.catalog == state.catalog_id:
            return ReplacedCatalogError(
                f"Connector {state.connector}: {self._storage.location} was restored from a backup, and its catalog "
                f"went on from there: version {by.version} is another commit than it was.",
                STOP,
            )
        return ReplacedCatalogError(
            f"Connector {state.connector}: its catalog {state.catalog_id} is gone; version {by.version} in "
            f"{self._storage.location}/{FOLDER} is of {other}.",
            STOP,
        )

    def _refuse_older(self, listing: Listing) -> None:
        if listing.newest < self.view.version:
            self._refuse_unlisted()
            self.refuse_another(listing)
            if not listing.newest:
                raise all_gone(self._storage, self.view.version)
            raise CatalogError(
                f"Catalog {self._storage.location} was at version {self.view.version} and is now at {listing.newest}.",
                "See whether storage.location is still mounted; if its folder was restored, restart the worker.",
            )

    def _refuse_unlisted(self) -> None:
        if self.is_there():
            raise unlisted(self._storage, self.view.version)

    def _note_dropped(self, commit: Commit, before: CatalogState, after: CatalogState) -> None:
        if all(isinstance(action, (Append, PlanFold, Publish)) for action in commit.actions):
            return  # the frequent ones drop nothing, and comparing costs as much as there are runs
        gone = _changed_paths(before, after) - after.paths
        self._dropped.update(dict.fromkeys(gone, commit.at_ms))


def _changed_paths(before: CatalogState, after: CatalogState) -> frozenset[str]:
    """Returns the files of the logs that a commit has changed, as they were before it."""
    now = {id(log) for log in after.logs}
    return frozenset().union(*(log.paths for log in before.logs if id(log) not in now))


def newest_epoch(storage: Storage, catalog_id: str | None = None) -> int:
    """Reads the epoch of the newest commit in a connector's folder, 0 if there is none: one listing, two small files.

    Every publish does so (step 6 of docs/protocol.md); it needs no state.

    Raises ReplacedCatalogError if the folder holds another catalog than `catalog_id`, if that is given; StorageError;
    CatalogError if the file is damaged.
    """
    for _ in range(ATTEMPTS):
        listing = list_versions(storage)
        try:
            newest = newest_head(storage, listing)
        except MissingFileError as error:
            failure = error  # overtaken by many commits between the two calls
            continue
        if newest is not None and is_of_another(newest, catalog_id):
            raise ReplacedCatalogError(
                f"{storage.location}/{FOLDER} holds catalog {newest.catalog} now; catalog {catalog_id} is gone.", STOP
            )
        return 0 if newest is None else newest.epoch
    raise failure
