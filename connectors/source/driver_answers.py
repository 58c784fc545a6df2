"""Asks the driver for micro-batches, in Spark's planner processes (`driver_link.py` answers).

A worker's start waits for three such processes, one after the other: what they import is kept small.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from multiprocessing.connection import Client, Connection
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from connectors.source.assignment import ReadTask


class MicroBatchPlanner(Protocol):
    """What the planner process may ask for: `MicroBatches`."""

    def begin(self) -> int:
        """Begins a run of the query; returns the number of the last micro-batch that was planned."""

    def latest(self, start: int) -> int:
        """Returns the number of the micro-batch behind `start`, or `start`."""

    def tasks(self, start: int, end: int) -> Sequence[ReadTask]:
        """Returns the reading tasks behind `start` up to `end`."""


class Address(Struct, frozen=True):
    """Where the driver listens, and what proves that a process may ask. Its repr does not show that."""

    path: str
    key: str

    def __repr__(self) -> str:
        return f"Address({self.path!r})"


class DriverAnswers:
    """Asks the driver's `MicroBatchPlanner` in the planner process, at `address`, with one connection."""

    def __init__(self, address: Address) -> None:
        self._connection = _connect(address)

    def begin(self) -> int:
        """See MicroBatchPlanner."""
        return int(self._ask("begin"))

    def latest(self, start: int) -> int:
        """See MicroBatchPlanner."""
        return int(self._ask("latest", start))

    def tasks(self, start: int, end: int) -> list[bytes]:
        """See MicroBatchPlanner; each is pickled, as this process has no use for what it needs to read one."""
        found: list[bytes] = self._ask("tasks", start, end)
        return found

    def _ask(self, name: str, *arguments: int) -> Any:
        self._connection.send((name, arguments))
        answered, found = self._connection.recv()
        if not answered:
            raise RuntimeError(f"the driver could not plan: {found}")
        return found


def _connect(address: Address) -> Connection:
    return Client(os.fspath(address.path), "AF_UNIX", authkey=address.key.encode())
