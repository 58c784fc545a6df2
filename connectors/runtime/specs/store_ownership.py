"""Lets a worker change what is stored of connectors: while it has the store, one change of a connector at a time.

Nothing here is done under the herder's lock: all of it waits for the store. What a change waits with in hand is the
turn of its connector alone, so it holds up only other changes of that connector, and a claim of the whole store. To
wait for a turn has an end (`StorePatience`).

    change and change           of one connector they take turns; of two they run at the same time
    change and claim            the claim has the turns of all connectors: what is read then is in no change's way
    lost before a change        the store is asked before each change; it is claimed again if it is free
    lost during a change        the change finds a newer version, and replaces nothing (`versioned_files`); of what the
                                new owner has not changed it is stored, and refused as the store is asked again: the new
                                owner reads it with its next start
    end and change              the end waits for its turn; if that does not come the lock ends with the process
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import structlog

from compactor.errors import StorageError
from connectors.clock import Clock
from connectors.errors import BusyError, ConflictError, SupersededError
from connectors.runtime.specs.connector_store import ConnectorStore, StoredConnector
from connectors.threads import CallQueue

_log = structlog.get_logger()

_ASK_THAT_ONE: Final = "Ask that one for connectors made over REST."


class ChangeTurns:
    """The turns of one worker's connectors; each waits at most `turn_s` seconds for its own."""

    def __init__(self, turn_s: float) -> None:
        self._turn_s = turn_s
        self._names: set[str] = set()
        """The connectors that are being changed."""
        self._all = False
        """Whether somebody has the turns of all of them."""
        self._changed = threading.Condition()
        """Guards both, and tells that they have changed."""

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Holds the turn of one connector. Raises BusyError if it does not come in time."""
        with self._changed:
            self._wait(lambda: not self._all and name not in self._names, f"Connector {name} is being changed.")
            self._names.add(name)
        try:
            yield
        finally:
            with self._changed:
                self._names.discard(name)
                self._changed.notify_all()

    @contextmanager
    def of_all(self) -> Iterator[None]:
        """Holds the turns of all connectors. Raises BusyError if they do not come in time."""
        with self._changed:
            self._wait(lambda: not self._all and not self._names, "Connectors of this worker are being changed.")
            self._all = True
        try:
            yield
        finally:
            with self._changed:
                self._all = False
                self._changed.notify_all()

    def _wait(self, is_free: Callable[[], bool], message: str) -> None:
        if not self._changed.wait_for(is_free, self._turn_s):
            raise BusyError(
                message, f"It has waited for storage.location for {self._turn_s:g} s or more; ask again later."
            )


class StoreOwnership:
    """The store of a worker, and whether this process has it; `take_up` gets what is stored each time that it takes it.

    All methods may be called from any thread, and wait for the store.
    """

    def __init__(
        self, store: ConnectorStore, clock: Clock, take_up: Callable[[Sequence[StoredConnector]], object]
    ) -> None:
        self._store = store
        self._clock = clock
        self._take_up = take_up
        self._turns = ChangeTurns(store.patience.turn_s)
        self._has_it = False
        """Whether this process had the store when it last asked; set with the turns of all, unset at any time."""
        self._again = CallQueue("connector-store")
        """Takes the store up again after it has left open whether a change is stored."""
        self._ended = threading.Event()
        """Whether the worker ends: what is asked then is not stored, as another process may have the store."""

    def begin(self) -> None:
        """Takes the store, unless another process on this storage has it: then that is logged. Raises StorageError."""
        if not self._claim():
            _log.warning(
                "connectors made over REST belong to another worker on this storage.location",
                folder=self._store.location,
                owner=str(self._store.owner()),
            )

    def ensure(self) -> None:
        """Makes sure that this process has the store, and takes it up if it is free.

        Raises ConflictError if another process has it, or the worker ends; BusyError, StorageError.
        """
        self._refuse_ended()
        if self._has_it and self._store.is_held():
            return
        with self._turns.of_all():
            self._refuse_ended()
            if self._has_it and not self._store.is_held():
                self._lose()
            if not self._has_it and not self._claim():
                raise self._another()

    @contextmanager
    def changing(self, name: str) -> Iterator[None]:
        """Holds the turn of the connector `name` during the block. Raises BusyError, ConflictError."""
        with self._turns.of(name):
            self._refuse_ended()
            yield

    def write(self, change: Callable[[ConnectorStore], object]) -> None:
        """Stores a change, with the turn of its connector; when this returns it is stored, and counts.

        Raises StorageError if it is not stored, or nothing tells whether it is: then the store is read again as soon
        as it answers. Raises ConflictError if another process has taken the store meanwhile.
        """
        try:
            change(self._store)
        except SupersededError:
            self._refuse_lost()
            self._has_it = False  # another has changed what is this one's: all is taken up before the next change
            raise
        except StorageError:
            if self._store.is_open:  # it may be stored: what is known here must become what the next start would read
                self._has_it = False
                if self._again.wait(0):
                    self._again.ask(self._take_again)
            raise
        self._refuse_lost()

    def write_beside(self, change: Callable[[ConnectorStore], object]) -> None:
        """Stores what is this worker's own while another has the store: the target of a connector of its files.

        Files of targets have names and versions of their own, so that neither worker replaces what the other stores.
        Raises StorageError; SupersededError if another process has changed this very target.
        """
        change(self._store)

    def _refuse_lost(self) -> None:
        """Raises ConflictError if another process has the store; if it does not answer the next change asks it."""
        with suppress(StorageError):
            if not self._store.is_held():
                self._lose()
                raise self._another()

    def _take_again(self) -> None:
        """Takes the store up again once it answers; a change that comes before does so as well."""
        while not self._ended.wait(self._store.patience.again_s):
            try:
                self.ensure()
            except (StorageError, BusyError):
                continue
            except ConflictError:  # another process has it: that one's word counts
                return
            return

    def end(self) -> None:
        """Begins the end: from here on nothing is stored any more. Waits for nothing."""
        self._ended.set()

    def release(self) -> None:
        """Gives the store back once no change is under way; if one does not end, the lock ends with the process."""
        self.end()
        with suppress(BusyError), self._turns.of_all():
            self._has_it = False
            self._store.release()

    def _claim(self) -> bool:
        if not self._store.claim():
            return False
        self._store.settle()
        self._take_up(tuple(self._store.connectors()))
        self._store.forget_removed(self._clock.now_ms())
        self._has_it = True
        return True

    def _lose(self) -> None:
        """Notes that another process has the store, and says so, once for each time that it was lost."""
        if not self._has_it:
            return
        self._has_it = False
        _log.warning(
            "connectors made over REST are another worker's, or storage.location is away: changes are refused here",
            folder=self._store.location,
            owner=self._owner(),
        )

    def _refuse_ended(self) -> None:
        if self._ended.is_set():
            raise ConflictError("The worker ends.", "Ask one that runs, and has listeners.")

    def _another(self) -> ConflictError:
        said = f"Another worker on this storage.location keeps what connectors are to be: {self._owner()}."
        return ConflictError(said, _ASK_THAT_ONE)

    def _owner(self) -> str:
        with suppress(StorageError):
            return str(self._store.owner() or "unknown")
        return "unknown"
