"""Says whether the process at the other end of a connection of this machine belongs to this account.

TCP has no credentials of a peer as Unix sockets have (SO_PEERCRED). Linux lists the machine's connections with their
owners in /proc/net/tcp and tcp6: the other end is the line that has this one's addresses the other way round.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import structlog

from connectors.clock import SYSTEM_CLOCK, Clock
from connectors.progress.observer import Interval

_log = structlog.get_logger()

LISTS: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""The lists of connections; without IPv6 there is no second one. A JVM's are in the second, also those of IPv4."""
_MAPPED: Final = bytes(10) + b"\xff\xff"
"""What stands before an address of IPv4 in one of IPv6."""

Address = tuple[str, int]


def owner_of(lists: Iterable[str], own: Address, peer: Address) -> int | None:
    """Returns the user id of the process at `peer` that is connected to `own`, by the texts of LISTS.

    Returns None if no open socket is listed there: once its process has closed it, a line has no inode, and 0 in place
    of the owner, which would be root.
    """
    ends = {(_written(peer, wide), _written(own, wide)) for wide in (False, True)}
    for text in lists:
        for line in text.splitlines()[1:]:
            columns = line.split()
            if len(columns) > _INODE and (columns[1], columns[2]) in ends and columns[_INODE] != "0":
                return int(columns[_OWNER])
    return None


_OWNER: Final = 7
_INODE: Final = 9
"""Columns of a line; the addresses are 1, of the socket itself, and 2, of its other end."""


AGAIN_MS: Final = 60_000
"""How long refusals of one kind are only counted: another account may connect thousands of times a second."""


class RefusalLog:
    """Logs what was refused: the first of a kind, then once in AGAIN_MS how many there were. Threads share it."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._times = Interval(clock, AGAIN_MS)
        self._lock = threading.Lock()
        # How many of each kind were refused since it was logged last. Changed under `_lock`.
        self._since: Counter[str] = Counter()

    def add(self, event: str, **why: object) -> None:
        """Counts a refusal, of a kind that `event` says, and logs it if that is due."""
        with self._lock:
            self._since[event] += 1
            if not self._times.ready(event):
                return
            connections = self._since.pop(event)
        _log.warning(event, connections=connections, **why)


_refusals: Final = RefusalLog()


_MOST_LOOKS: Final = 5
"""Linux writes a list page by page: a line may be left out if other connections come and go at that time."""


def is_own(connection: socket.socket) -> bool:
    """Returns whether the process at the other end runs under this process's user id; logs or counts if it does not.

    No, if that cannot be read: another account could otherwise use up this process's file descriptors first.
    """
    try:
        own, peer = connection.getsockname()[:2], connection.getpeername()[:2]
        owners = (_owner_now(own, peer) for _ in range(_MOST_LOOKS))
        owner = next((uid for uid in owners if uid is not None), None)
    except OSError as error:
        _refusals.add("refused a connection to Spark's port for calls: its owner is not known", why=str(error))
        return False
    if owner != os.geteuid():
        _refusals.add("refused a connection of another account to Spark's port for calls", uid=owner)
        return False
    return True


def _owner_now(own: Address, peer: Address) -> int | None:
    return owner_of((path.read_text("ascii") for path in LISTS if path.is_file()), own, peer)


def _written(address: Address, wide: bool) -> str:  # noqa: FBT001  # the two forms of an address
    """Returns an address as Linux lists it, in words of four bytes in the machine's order.

    One of IPv4 is written as a socket of IPv6 has it if `wide`.
    """
    packed = ipaddress.ip_address(address[0]).packed
    data = _MAPPED + packed if wide and len(packed) == 4 else packed  # bytes of IPv4
    words = (int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, len(data), 4))
    return f"{''.join(f'{word:08X}' for word in words)}:{address[1]:04X}"
