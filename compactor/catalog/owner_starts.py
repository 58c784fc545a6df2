"""Puts the starts of the processes that own connectors of one storage location in an order.

A worker takes its connectors over one after another. If it is frozen meanwhile, a second worker may start and take all
of them over. When the first wakes up it must not take over the connectors that it had not come to: each worker would
then own a part of them, and neither would end. So each start draws a number above all that were drawn before, the
catalog names it with the owner, and no process takes a connector over from a process that started later.

No promise rests on this order: the epoch alone decides who may commit (`compactor.catalog.catalog`).
"""

from __future__ import annotations

from typing import Final

from compactor.catalog.owner_lock import PROCESS, Owner
from compactor.errors import StorageError
from compactor.storage.base import Storage

FOLDER: Final = "starts"
KEPT: Final = 100
"""Numbers that stay in the folder. A frozen process finds the start of its successor as long as fewer than so many
processes have started since; after more it would take over as it did before there was an order."""
_ATTEMPTS: Final = 20
"""How often the next number is tried while other processes draw theirs."""


class Start:
    """One start of a process that takes connectors over; `number` is its place in the order."""

    def __init__(self, storage: Storage, number: int) -> None:
        self.number = number
        self._storage = storage

    def is_before(self, owner: Owner) -> bool:
        """Returns whether `owner` is a process that drew a later number in this storage location. Raises StorageError.

        A number that was drawn elsewhere does not count: folders of connectors are moved between storage locations.
        """
        if owner.start <= self.number or owner.process == PROCESS:
            return False
        path = _path(owner.start)
        return self._storage.exists(path) and self._storage.read(path) == owner.process.encode()


def draw(storage: Storage) -> Start:
    """Draws the next number in the worker's own folder `storage`. Raises StorageError."""
    for _ in range(_ATTEMPTS):
        drawn = [int(name) for name in storage.list(FOLDER) if name.isdecimal()]
        number = max(drawn, default=0) + 1
        if storage.create(_path(number), PROCESS.encode()):
            storage.delete_all(_path(old) for old in sorted(drawn)[: -KEPT + 1])
            return Start(storage, number)
    raise StorageError(
        f"{storage.location}/{FOLDER}: {_ATTEMPTS} numbers in a row were drawn by other processes.",
        "Start fewer processes on this storage.location at the same moment.",
    )


def _path(number: int) -> str:
    return f"{FOLDER}/{number:012}"
