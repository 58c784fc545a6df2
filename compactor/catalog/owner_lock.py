"""Shows commands, by `owner.lock`, whether a worker owns the connector now, and which.

It promises nothing: which instance may commit is decided by the epoch alone (`compactor.catalog.catalog`). A worker
that was frozen still holds the lock, and one that takes over from it does not get it until the frozen one has ended;
`claim` may be called again and again. The lock ends with the process, whatever ends that.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from typing import Final

import msgspec
from msgspec import Struct

from compactor.decode_errors import UNDECODABLE
from compactor.digits import whole
from compactor.json_types import decoded_as
from compactor.storage.base import Lock, Storage

NAME: Final = "owner.lock"
PROCESS: Final = secrets.token_hex(8)
"""Tells this process from every other one: containers often share host names, and their first process has the pid 1."""


class Owner(Struct, frozen=True, kw_only=True):
    """The process that owns a connector.

    `process` is its own mark, and `start` its place among the starts on its storage location
    (`compactor.catalog.owner_starts`); both are empty if a version of keyfold wrote it that knew neither.
    """

    host: str
    pid: int
    epoch: int = 0
    process: str = ""
    start: int = 0

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"

    @property
    def text(self) -> str:
        """The owner as a catalog names it: `host:pid#start.process`."""
        return f"{self}#{self.start}.{self.process}"


def this_process(epoch: int = 0, start: int = 0) -> Owner:
    """Returns this process as an owner; its `text` is the `owner` of `Catalog.take_over`."""
    return Owner(host=socket.gethostname(), pid=os.getpid(), epoch=epoch, process=PROCESS, start=start)


def parse(text: str) -> Owner:
    """Returns the owner that a catalog names as `text`, without its epoch; host and process id alone are old text."""
    name, _, mark = text.partition("#")
    start, _, process = mark.partition(".")
    host, _, pid = name.rpartition(":")
    return Owner(
        host=host or name,
        pid=(whole(pid) or 0) if host else 0,
        process=process,
        start=whole(start) or 0,
    )


def shown(text: str) -> str:
    """Returns the part of an owner's text that people read: host and process id."""
    return text.partition("#")[0]


class OwnerLock:
    """Holds the lock of one connector's folder for one worker; threads may share it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        # None while another process holds it, before the first `claim` and after `release`.
        self._lock: Lock | None = None
        self._turn = threading.Lock()
        """Held while the store is asked: two claims at once would take the lock from each other."""

    def claim(self, owner: Owner) -> bool:
        """Takes the lock if it is free and writes `owner` into it; False while another has it. Raises StorageError."""
        with self._turn:
            if self._lock is not None and not self._lock.is_current():
                self._release()
            self._lock = self._lock or self._storage.lock(NAME)
            if self._lock is None:
                return False
            self._lock.write(msgspec.json.encode(owner))
            return True

    def is_held(self) -> bool:
        """Asks the store whether the lock is still this one's. Raises StorageError."""
        lock = self._lock
        return lock is not None and lock.is_current()

    def release(self) -> None:
        """Gives the lock back, if it is held."""
        with self._turn:
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
        self._lock = None


def live_owner(storage: Storage) -> Owner | None:
    """Reads the owner that holds the lock now, or None. One not written yet has the host `?`. Raises StorageError."""
    written = storage.locked_by(NAME)
    if written is None:
        return None
    try:
        return decoded_as(written, Owner)
    except UNDECODABLE:
        return Owner(host="?", pid=0)


def is_alive(storage: Storage) -> bool:
    """Returns whether a worker holds the lock. Raises StorageError."""
    return live_owner(storage) is not None
