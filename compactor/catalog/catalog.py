"""Commits to a catalog, and owns it.

A commit of version N is one file that is created if it is absent, then the folder is listed again:

    C1  create catalog/N.json         N = the newest version that this owner knows, + 1
    C2  list the folder               a version above N is there → FencedError

**A commit counts from the moment at which it extends the newest version**, whatever becomes of its owner. So:

1. *The number was never used.* Then all instances that decided on version N - 1 compete for one file, and exactly one
   gets it. The others read the commit and decide again, or find a higher epoch and stop.
2. *The number is free again.* Old files are removed. An owner that slept at version 40 while others went on to 900 and
   removed what lies below the checkpoint of 850 creates 41 successfully. But the newest version is never
   removed, so the list in C2 shows 900, and the sleeper is fenced before it believes anything. Readers start from
   the newest checkpoint (850) and never open 41 (`compactor.catalog.history`); it is removed like any old version.
3. *Another instance came between C1 and C2.* A higher version that is not ours is there although our commit counted:
   its maker has read our commit and followed it. Only a take-over follows, as no other instance has our epoch. We are
   fenced all the same, and the new owner has our commit. So FencedError does not say whether the commit counts, which
   makes no difference: the instance that gets it stops, and the newest version is the truth.

*Lost answers.* Each commit has a random id. If create fails, it is tried again with the same bytes. A file that is
there already is read, and is ours exactly if it has our id. If it cannot be read, OutcomeUnknownError is raised: this
instance still stands at N - 1, and its next commit loses to N, reads it, and decides again.

*Deleted and lost catalogs.* `keyfold delete` removes the files, or a disk is lost, and a connector of the same name
begins with version 1. An owner of the old catalog that slept at version 12 all the while creates 13, and then reads 12:
it is gone, or not the commit that it was, and the owner ends. The same is read before a reader goes on, and before any
file is removed. Each file names its catalog and its predecessor, so 13 is no part of the new catalog: readers pass over
it, and the owner that comes to 13 replaces it, in one step, by its own. So it does with a checkpoint. No process
removes 13 by its number, as the new owner may have used that by then.

*Epochs.* TakeOver(newest + 1) is a commit as well, so an epoch belongs to one instance. One that finds a higher epoch
stops. Two workers that take over again and again would fence each other in turns: no supervisor restarts on exit
code 5.

*What it needs.* `create` is exclusive, and a list shows what was created before it began (`compactor.storage.base`).
If a list is out of date, a sleeper may believe in a commit that counts for nothing. It still cannot hurt the catalog,
as no reader with a true list ever opens its files.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import structlog
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from compactor.catalog.commits import (
    CHECKPOINT_EVERY,
    FOLDER,
    RESTORE,
    STOP,
    Commit,
    Head,
    Listing,
    after,
    checkpoint_of,
    checkpoint_path,
    commit_path,
    content,
    decoded,
    encode,
    format_of,
    is_of,
    is_of_another,
    list_versions,
    read,
    trimmable,
    unlisted,
)
from compactor.catalog.hidden import all_gone, refuse_hidden
from compactor.catalog.history import ATTEMPTS, History
from compactor.catalog.owner_lock import shown
from compactor.catalog.rules import Rules, refuse_others
from compactor.errors import (
    DEFECT,
    CatalogError,
    DamagedError,
    FencedError,
    HiddenCatalogError,
    MissingFileError,
    OutcomeUnknownError,
    ReplacedCatalogError,
    StorageError,
)
from compactor.failpoints import hit
from compactor.model.actions import AnyAction, Create, TakeOver
from compactor.model.state import CatalogState, apply
from compactor.storage.base import Storage

# A create is sent again so often after an error; then the file is read back to see whether it was made.
CREATE_ATTEMPTS: Final = 3

_log = structlog.get_logger()


class Catalog:
    """The catalog of one connector, as one process holds it. Threads may share it.

    `commits` counts those that this instance has made.
    """

    def __init__(self, storage: Storage, connector: str) -> None:
        self.epoch = 0  # until `take_over` succeeds; then the epoch that this instance owns; never set back
        self.commits = 0
        self._connector = connector
        self._storage = storage
        # What was read and committed so far; `_turn` is held while it changes.
        self._history = History(storage)
        # By `require`; None: the catalog is not checked, and created with the defaults.
        self._rules: Rules | None = None
        # Held by refresh, take_over and commit, which call each other in one thread: one reads or commits at a time.
        self._turn = threading.RLock()
        # The last commit that was created and is not confirmed (C2), None if there is none; changed by `_commit`.
        self._unsure: Commit | None = None

    @classmethod
    def open(cls, storage: Storage, connector: str) -> Catalog:
        """Opens the catalog in `storage`, the connector's own folder; an absent one is version 0. Never writes.

        Raises CatalogError if it is damaged or another connector's, StorageError.
        """
        catalog = cls(storage, connector)
        catalog.refresh()
        return catalog

    @property
    def storage(self) -> Storage:
        """The connector's own folder, to which every path that the catalog names is relative."""
        return self._storage

    @property
    def state(self) -> CatalogState:
        """The state of the connector as far as this instance has read."""
        return self._history.view.state

    @property
    def version(self) -> int:
        """The version that `state` is of."""
        return self._history.view.version

    def refresh(self) -> CatalogState:
        """Reads what was committed since. Raises FencedError if this instance was the owner and no longer is."""
        with self._turn:
            state = self._advance()
            if self.epoch and state.epoch != self.epoch:
                raise self._fenced()
            return state

    def require(self, order: str, identity: str, scope: str, fill: str | UnsetType = UNSET) -> None:
        """Checks that the catalog has these rules, or raises CatalogError; one that is yet to be created gets them."""
        self._rules = Rules(order, identity, scope, fill)
        self._refuse_other_rules()

    def take_over(
        self,
        owner: str,
        now_ms: int,
        pause: Callable[[], object] = lambda: None,
        is_later: Callable[[str], bool] = lambda _: False,
    ) -> CatalogState:
        """Takes the catalog over, and creates it if there is none; every older owner is fenced. Returns its state.

        `owner` names this process (`owner_lock.Owner.text`). `pause` waits before the store is listed
        again, if its list was out of date. `is_later` returns whether the owner that the catalog names started after
        this process.
        Raises FencedError if it did, and if others took over at the same time, again and again; StorageError if a
        version is there that the list does not show.
        """
        with self._turn:
            for _ in range(ATTEMPTS):
                state = self._advance()
                self._refuse_other_rules()
                if is_later(state.owner):
                    raise FencedError(
                        f"Connector {self._connector}: {shown(state.owner)}, which started after this process, has "
                        f"taken it over with epoch {state.epoch}.",
                        STOP,
                    )
                epoch = state.epoch + 1
                if self._commit((*self._creation(), TakeOver(epoch=epoch, owner=owner)), epoch, now_ms):
                    self.epoch = epoch
                    return self.state
                self._await(self.version + 1, pause)
            raise FencedError(f"Connector {self._connector}: others took over {ATTEMPTS} times before us.", STOP)

    def commit(self, decide: Callable[[CatalogState], Sequence[AnyAction]], now_ms: int) -> CatalogState:
        """Commits the actions that `decide` returns for the newest state, if there are any; returns the state after.

        `decide` may be called again, on a newer state. Raises FencedError; StorageError if nothing was committed;
        OutcomeUnknownError if it may have been: commit again, `decide` then gets the true state.
        """
        with self._turn:
            for _ in range(ATTEMPTS):
                self._refuse_stranger()
                actions = tuple(decide(self.state))
                if not actions or self._commit(actions, self.epoch, now_ms):
                    return self.state
                self._advance()
            raise unlisted(self._storage, self.version + 1)

    def trim(self, now_ms: int) -> int:
        """Removes commits and checkpoints that no reader needs any more; returns how many.

        Any instance of this catalog may do it, however late: what the newest checkpoints replace is never needed again.
        Raises StorageError, CatalogError; FencedError if the folder holds another catalog by now.
        """
        files = self._storage.walk(FOLDER)
        with self._turn:  # after the list: its files are this catalog's, or of owners of it that slept
            self._advance()
        gone = trimmable(files, now_ms, self.version)
        self._storage.delete_own(gone, partial(is_of, self.state.catalog_id))  # they may be another catalog's by now
        return len(gone)

    def unreferenced_since(self, path: str) -> int:
        """Returns when the run file `path` was dropped, in ms, or a later time; 0 if no commit has ever named it."""
        return self._history.unreferenced_since(path)

    def forget(self, path: str) -> None:
        """Forgets the run file `path`, which has been removed."""
        self._history.forget(path)

    def _await(self, version: int, pause: Callable[[], object]) -> None:
        """Waits until the list shows `version`; its file exists, but a network file system may list it late."""
        for attempt in range(ATTEMPTS):
            if attempt:
                pause()
            if list_versions(self._storage).newest >= version:
                return
        raise unlisted(self._storage, version)

    def _advance(self) -> CatalogState:
        try:
            view = self._history.advance()
        except CatalogError:
            self._give_up(list_versions(self._storage))  # the store may not have answered when it was created
            raise
        if view.version and view.state.connector != self._connector:
            raise CatalogError(
                f"Catalog {self._storage.location} is connector {view.state.connector}'s, not {self._connector}'s.",
                "Give each connector its own name and storage.location.",
            )
        return view.state

    def _commit(self, actions: tuple[AnyAction, ...], epoch: int, now_ms: int) -> bool:
        state = self._apply(actions, epoch)
        commit = self._next(actions, epoch, state.catalog_id, now_ms)
        hit("catalog.create")
        if not self._create(commit):
            return False
        hit("catalog.created")
        self._unsure = commit
        self._confirm(commit)
        self._unsure = None
        self._history.adopt(commit, after(commit, state))
        self.commits += 1
        if commit.version % CHECKPOINT_EVERY == 0:
            self._checkpoint(now_ms)
        return True

    def _apply(self, actions: tuple[AnyAction, ...], epoch: int) -> CatalogState:
        """Returns the state after `actions`, if they fit: nothing that a reader would refuse is ever written."""
        state = apply(self.state, actions)
        created = any(isinstance(action, Create) for action in actions)
        if state.epoch != epoch or created != (self.version == 0):
            raise CatalogError(
                f"{self._where(self.version + 1)}: a commit changes its own epoch, or creates the catalog again.",
                DEFECT,
            )
        return state

    def _next(self, actions: tuple[AnyAction, ...], epoch: int, catalog_id: str, now_ms: int) -> Commit:
        own, previous = secrets.token_hex(8), self._history.view.commit_id
        return Commit(
            version=self.version + 1, commit_id=own, previous=previous, catalog=catalog_id, epoch=epoch,
            format=format_of(actions), at_ms=now_ms, actions=actions,
        )  # fmt: skip

    def _create(self, commit: Commit) -> bool:
        """Returns whether version N is this commit, whatever answers were lost on the way."""
        path, data = commit_path(commit.version), encode(commit)
        for _ in range(CREATE_ATTEMPTS):
            try:
                return self._storage.create(path, data) or self._is_ours(commit) or self._replaces(commit, path, data)
            except StorageError as error:
                failure = error
        return self._read_back(commit, failure)

    def _read_back(self, commit: Commit, failure: StorageError) -> bool:
        try:
            if self._storage.exists(commit_path(commit.version)):
                return self._is_ours(commit)
        except StorageError:
            raise OutcomeUnknownError(
                f"{self._where(commit.version)}: whether it was committed is unknown. {failure.message}", failure.action
            ) from failure
        raise failure

    def _is_ours(self, commit: Commit) -> bool:
        try:
            return read(self._storage, commit_path(commit.version), Head).commit_id == commit.commit_id
        except MissingFileError:
            return False

    def _replaces(self, commit: Commit, path: str, data: bytes) -> bool:
        """Replaces the file of a deleted catalog that has the commit's number; returns whether there was one.

        What is to be replaced is read before this catalog is found to be there still: the file of a new catalog that
        has taken its place since is another one, and stays.
        """
        if commit.version == 1:  # who creates a catalog knows of none that was there before
            return False
        try:
            there = content(self._storage, path)
            if not is_of_another(decoded(self._storage, path, there, Head), commit.catalog or ""):
                return False
        except (MissingFileError, DamagedError):
            return False
        if not self._stands():
            return False
        hit("catalog.replace")
        if not self._storage.replace(path, there, data):
            return False
        _log.warning("replaced a commit of a deleted catalog", connector=self._connector, version=commit.version)
        return True

    def _stands(self) -> bool:
        """Returns whether the newest version that this instance knows is still there, as it was."""
        try:
            return self._history.stands(list_versions(self._storage))
        except (MissingFileError, ReplacedCatalogError):
            return False

    def _is_newest(self, listing: Listing, commit: Commit) -> bool:
        """Returns whether all versions above the commit are a deleted catalog's, and the commit follows its own.

        Its predecessor is read after it was created, and no file is the catalog's again once that is lost: so the
        commit was made in this catalog, not in one that has taken its place.
        """
        try:
            if commit.version == 1 and listing.newest <= 1:  # it follows none
                return listing.newest == 0 or self._is_ours(commit)
            if listing.holds(commit.version - 1) and self._history.stands(listing):
                refuse_hidden(self._storage, listing, commit)
            return (commit.version > 1 and listing.newest <= commit.version) or (
                self._history.ends_at(listing, commit.version, commit.catalog or "") and self._stands()
            )
        except CatalogError:  # a file above cannot be read: nothing says that it is a deleted catalog's
            return False
        except HiddenCatalogError:
            raise
        except StorageError as error:
            raise self._unconfirmed(commit.version, error) from error

    def _give_up(self, listing: Listing) -> None:
        """Removes what this instance has created, and not confirmed, in a folder from which its catalog is gone.

        If there is anything else, it stays: the owner of a new catalog may have replaced it by now. Raises
        HiddenCatalogError if there was nothing else, StorageError.
        """
        unsure = self._unsure
        if unsure and (listing.commits, listing.checkpoints) == ((unsure.version,), ()) and self._is_ours(unsure):
            self._storage.delete_own([commit_path(unsure.version)], encode(unsure).__eq__)
            raise all_gone(self._storage, unsure.version - 1)

    def _confirm(self, commit: Commit) -> None:
        """Checks C2: that nothing of the catalog is above the commit, and that its predecessor is still there."""
        version = commit.version
        listing = self._list(version)
        if not self._is_newest(listing, commit):
            raise self._fenced()
        if listing.newest < version:
            raise OutcomeUnknownError(
                f"{self._where(version)} was created, but is not listed.",
                "See whether storage.location is a file system, or a store, that shows every file at once.",
            )
        if not listing.holds(version - 1):
            if self._history.is_there():
                raise self._unconfirmed(version, unlisted(self._storage, version - 1))
            with suppress(StorageError):
                self._history.refuse_another(listing)
            self._give_up(listing)
            raise CatalogError(f"{self._where(version - 1)} was there and is gone: is it still mounted?", RESTORE)

    def _list(self, version: int) -> Listing:
        for _ in range(ATTEMPTS):
            try:
                return list_versions(self._storage)
            except StorageError as error:
                failure = error
        raise self._unconfirmed(version, failure) from failure

    def _unconfirmed(self, version: int, error: StorageError) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"{self._where(version)} was created, but its folder cannot be listed, or read. {error.message}",
            error.action,
        )

    def _checkpoint(self, now_ms: int) -> None:
        """Writes a checkpoint, which only spares readers time: the commit counts without it."""
        view = self._history.view
        hit("catalog.checkpoint")
        path = checkpoint_path(view.version)
        try:
            data = encode(checkpoint_of(view))
            if not self._storage.create(path, data):  # an owner that slept may have made one, of a catalog that is gone
                there = content(self._storage, path)
                if there != data and self._stands():
                    self._storage.replace(path, there, data)
            self.trim(now_ms)
        except (StorageError, CatalogError) as error:
            _log.warning("checkpoint not written", connector=self._connector, version=view.version, error=str(error))

    def _creation(self) -> tuple[Create, ...]:
        if self.version:
            return ()
        created = Create(catalog_id=secrets.token_hex(16), connector=self._connector)
        return (created if self._rules is None else replace(created, **self._rules._asdict()),)

    def _refuse_other_rules(self) -> None:
        if self.version and self._rules is not None:
            refuse_others(self.state, self._connector, self._rules)

    def _refuse_stranger(self) -> None:
        if not self.epoch:
            raise CatalogError(f"Connector {self._connector}: only its owner commits.", "Call take_over first.")
        if self.state.epoch != self.epoch:
            raise self._fenced()

    def _fenced(self) -> FencedError:
        """Returns the error that ends this owner; it names the new one if that can be read."""
        try:
            self._history.advance()
        except (CatalogError, StorageError):
            return FencedError(f"Connector {self._connector}: a newer owner took it over; ours is {self.epoch}.", STOP)
        return FencedError(
            f"Connector {self._connector}: {shown(self.state.owner)} took it over with epoch {self.state.epoch}; "
            f"ours is {self.epoch or 'none'}.",
            STOP,
        )

    def _where(self, version: int) -> str:
        return f"{self._storage.location}/{commit_path(version)}"
