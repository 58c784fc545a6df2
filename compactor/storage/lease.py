"""Locks on an object store: an object that its holder writes again every few seconds, while it lives.

An object store has no locks that end with their process. So a lock that was not written for `lease_ms` counts as free;
by the store's own clock, as the clocks of machines differ. A lock that is absent is taken by creating its object, one
that counts as free by replacing the object that was seen, and it is renewed in the same way: so of several that take it
at once one has it, and a holder that was frozen takes it back from no other. No promise rests on it (`Storage.lock`): a
store may not be able to compare, and a holder that has lost the lock notices it at the next renewal, or as it asks.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from typing import Final

import structlog

from compactor.errors import StorageError
from compactor.storage.base import TEMPORARY
from compactor.storage.object_client import ObjectClient, ObjectState

# Each renewal is a request that costs; at most a quarter of `StoreTimes.lease_ms`.
RENEW_S: Final = 10.0
PROBE: Final = f"{TEMPORARY}clock"
"""The object that is written to ask the store for the time."""

_HOLDER: Final = "keyfoldholder"
_HOLDER_CHARS: Final = 16
"""Characters of a holder's name, by which a lock's content is told from that of an older version, which has none."""

_HELD_BYTES: Final = 65_536
"""Bytes of a lock that are read: its holder writes a name and a few numbers."""

_NO_THREAD: Final = (
    "Raise the limit of processes and threads (ulimit -u, pids of the container), or have fewer connectors."
)

_log = structlog.get_logger()


class Lease:
    """The lock `key`, held by this process until `release`, and renewed by `renewals`."""

    def __init__(self, client: ObjectClient, key: str, renewals: LeaseRenewals) -> None:
        self._client = client
        self._key = key
        self._renewals = renewals
        self._holder = secrets.token_hex(_HOLDER_CHARS // 2)
        # What `write` wrote last; renewals write it again.
        self._data = b""
        # Set by `release`, for good: a renewal under way writes nothing any more. Changed and read under `_turn`.
        self._released = False
        self._turn = threading.Lock()

    @classmethod
    def take(cls, client: ObjectClient, key: str, renewals: LeaseRenewals | None = None) -> Lease | None:
        """Takes the lock; None if another process holds it, or takes it at the same moment."""
        lease, seen = cls(client, key, renewals or RENEWALS), client.state(key)
        if seen is None:
            taken = client.create(key, lease._content, lease._marks)
        else:
            taken = _is_over(client, key, seen) and client.replace(key, lease._content, lease._marks, seen)
        if not taken or not lease.is_current():  # a store that compares nothing lets a second one take it
            return None
        try:
            lease._renewals.add(lease)
        except RuntimeError as error:
            lease.release()
            raise StorageError(f"The lock {key} cannot be kept: {error}.", _NO_THREAD) from error
        return lease

    def write(self, data: bytes) -> None:
        """Writes what `held_by` returns from now on; nothing if that is what stands there, or the lock is lost."""
        if data != self._data:
            self._data = data
            self._write()

    def is_current(self) -> bool:
        """Returns whether the lock is still this holder's."""
        return not self._released and self._is_mine(self._client.state(self._key))

    def release(self) -> None:
        """Gives the lock back; a second call does nothing."""
        self._renewals.remove(self)
        with self._turn:
            try:
                if self.is_current():
                    self._client.delete([self._key])
            except StorageError as error:
                _log.debug("a lock was not given back; it ends by itself", lock=self._key, error=str(error))
            self._released = True

    def renew(self) -> None:
        """Writes the lock again, if it is still this holder's. By the time that fails it has been tried for long."""
        try:
            is_held = self._write()
        except StorageError as error:
            _log.warning("a lock was not renewed; it counts as free after a while", lock=self._key, error=str(error))
            return
        if not is_held:
            self._renewals.remove(self)
            if not self._released:
                _log.warning("a lock was lost: it was not renewed for long, and another has it", lock=self._key)

    def _write(self) -> bool:
        """Writes the lock if it is this holder's; returns whether it is. Never takes it from another."""
        with self._turn:
            seen = None if self._released else self._client.state(self._key)
            if seen is None or not self._is_mine(seen):
                return False
            return self._client.replace(self._key, self._content, self._marks, seen)

    @property
    def _content(self) -> bytes:
        """What is written: with the holder, so that a store that compares contents tells two holders apart."""
        return self._data + b"\n" + self._holder.encode()

    @property
    def _marks(self) -> Mapping[str, str]:
        return {_HOLDER: self._holder}

    def _is_mine(self, state: ObjectState | None) -> bool:
        return state is not None and state.attributes.get(_HOLDER) == self._holder


def held_by(client: ObjectClient, key: str) -> bytes | None:
    """Reads what the holder of the lock `key` wrote last; None if it is free."""
    state = client.state(key)
    if state is None or _is_over(client, key, state):
        return None
    try:
        content = client.get(key, _HELD_BYTES)
    except StorageError:
        if client.state(key) is None:  # it was given back meanwhile
            return None
        raise
    data, _, holder = content.rpartition(b"\n")
    return data if len(holder) == _HOLDER_CHARS else content  # without a holder: of an older version


def _is_over(client: ObjectClient, key: str, state: ObjectState) -> bool:
    """Returns whether the lock counts as free, as it was not renewed for long."""
    return _store_time_ms(client, key) - state.modified_ms > client.times.lease_ms


def _store_time_ms(client: ObjectClient, key: str) -> int:
    """Asks the store for the time in ms; 0 if it takes no object from us: then a lock counts as held."""
    probe = f"{key.rpartition('/')[0]}/{PROBE}".lstrip("/")
    try:
        client.put(probe, b"")
        info = client.head(probe)
    except StorageError:
        return 0
    return info.modified_ms if info else 0


class LeaseRenewals:
    """The thread that has leases renewed every `renew_s`, while there are any.

    Each is renewed on a thread of its own: one that the store does not answer for must not let the others end.
    """

    def __init__(self, renew_s: float = RENEW_S) -> None:
        self._renew_s = renew_s
        # Held leases, changed under `_changed`; the thread ends once there is none.
        self._leases: set[Lease] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def __contains__(self, lease: Lease) -> bool:
        return lease in self._leases

    def add(self, lease: Lease) -> None:
        """Has a lease renewed from now on. Raises RuntimeError, and does not, if no thread can be started."""
        with self._changed:
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._run, name="storage-leases", daemon=True)
                thread.start()  # it sees the lease once this block has let go
                self._thread = thread
            self._leases.add(lease)

    def remove(self, lease: Lease) -> None:
        """Has a lease renewed no more."""
        with self._changed:
            self._leases.discard(lease)
            self._changed.notify_all()

    def _run(self) -> None:
        under_way: dict[Lease, threading.Thread] = {}
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._leases, timeout=self._renew_s)
                leases = tuple(self._leases)
                if not leases:
                    self._thread = None
                    return
            under_way = {lease: thread for lease, thread in under_way.items() if thread.is_alive()}
            for lease in leases:
                if lease not in under_way:
                    thread = threading.Thread(target=lease.renew, name="storage-lease", daemon=True)
                    try:
                        thread.start()
                    except RuntimeError as error:  # it is tried again in the next round
                        _log.warning("a lock was not renewed", error=str(error))
                    else:
                        under_way[lease] = thread


RENEWALS: Final = LeaseRenewals()
"""Of this process."""
