"""Puts the starts of the processes that own connectors of one storage location in an order.

A worker takes its connectors over one after another. If it is frozen meanwhile, a second worker may start and take all
of them over. When the first wakes up it must not take over the connectors that it had not come to: each worker would
then own a part of them, and neither would end. So each start draws a number above all that were drawn before, the
catalog names it with the owner, and no process takes a connector over from a process that started later.

No promise rests on this order: the epoch alone decides who may commit (`compactor.catalog.catalog`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from compactor.catalog.owner_lock import PROCESS, Owner
from compactor.errors import MissingFileError, StorageError
from compactor.storage.base import Storage
from compactor.storage.numbered_files import NumberedFiles

FOLDER: Final = "starts"
_FILES: Final = NumberedFiles(FOLDER, digits=12)
KEPT: Final = 100
"""Numbers that stay in the folder. By them a start here is told from one elsewhere, of a folder that was moved here: of
the lowest that is kept, and above, each is known; one that was removed is below all that are kept."""
_ATTEMPTS: Final = 100
"""How many numbers are tried: other processes may draw at the same moment, and a list may be out of date."""


class Start:
    """One start of a process that takes connectors over; `number` is its place in the order, 0 if it has none."""

    def __init__(self, storage: Storage, number: int) -> None:
        self.number = number
        self._storage = storage

    @property
    def is_ordered(self) -> bool:
        """Whether it has a place in the order."""
        return self.number > 0

    def is_before(self, owner: Owner) -> bool:
        """Returns whether `owner` is a process that drew a later number in this storage location. Raises StorageError.

        A number that was drawn elsewhere does not count: folders of connectors are moved between storage locations.
        """
        if not self.is_ordered or owner.start <= self.number or owner.process == PROCESS:
            return False
        try:
            return self._storage.read(_FILES.path(owner.start)) == owner.process.encode()
        except MissingFileError:
            return owner.start < min(_FILES.numbers(self._storage), default=0)


def draw(storage: Storage, process: str = PROCESS) -> Start:
    """Draws the next number for `process` in the worker's own folder `storage`. Raises StorageError."""
    drawn = _FILES.numbers(storage)
    number = _FILES.create_next(storage, max(drawn, default=0) + 1, lambda _: process.encode(), _ATTEMPTS)
    if number is None:
        raise StorageError(
            f"{storage.location}/{FOLDER}: {_ATTEMPTS} numbers in a row were drawn by other processes.",
            "Start fewer processes on this storage.location at the same moment.",
        )
    with suppress(StorageError):  # the next start removes them
        storage.delete_all(_FILES.path(old) for old in sorted(drawn)[: -KEPT + 1])
    return Start(storage, number)
