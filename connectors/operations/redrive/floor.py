"""Keeps a redrive's positions in the connector's storage too: brokers forget those of a group without members.

After `offsets.retention.minutes` (7 days) they are gone, while letters may live longer. What the group holds is the
truth as long as it holds anything; what is kept here stands in only for what it has forgotten.

Each run writes a file of its own, by its number: one that was frozen before its write, and goes on while or after a
newer one has run, changes nothing that is read. The file with the highest number counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from compactor.decode_errors import UNDECODABLE, why
from compactor.errors import MissingFileError, StorageError
from compactor.json_types import decoded_as
from compactor.storage.base import Storage
from compactor.storage.limits import LARGE_BYTES
from compactor.storage.numbered_files import NumberedFiles
from connectors.errors import ConflictError
from connectors.kafka.groups import CommittedOffset

FOLDER: Final = "redrive"
_FILES: Final = NumberedFiles(FOLDER, digits=10, suffix=".json")
_ATTEMPTS: Final = 1_000
"""How many numbers are tried: more runs than are ever begun while a list does not show them."""
EARLIER: Final = "redrive.json"
"""The one file that earlier versions wrote: as good as that of run 0."""
Positions = dict[int, CommittedOffset]
"""What a group holds for partitions of letters, by number."""


class _Floor(Struct, frozen=True):
    """The content of a file: positions of a dead letter topic, told by its id from a later one of its name."""

    topic: str
    topic_id: str
    positions: Positions
    format: int = 1


def is_kept(storage: Storage) -> bool:
    """Returns whether a redrive has kept anything in a connector's `storage`. Raises StorageError."""
    return storage.exists(EARLIER) or bool(_FILES.numbers(storage))


class RedriveFloor:
    """The positions that were last known, of the dead letter topic `topic` with the id `topic_id`."""

    def __init__(self, storage: Storage, topic: str, topic_id: str) -> None:
        self._storage = storage
        self._topic = topic
        self._id = topic_id
        self._run: int | None = None
        """The number of this run; None if it only looks."""

    def begin(self) -> None:
        """Takes the next number, once older runs are shut out (D1). Raises StorageError.

        A number that a store's list does not show yet is passed over.
        """
        run = _FILES.create_next(self._storage, _FILES.newest(self._storage) + 1, self._before, _ATTEMPTS)
        if run is None:
            raise StorageError(
                f"{self._storage.location}/{FOLDER}: {_ATTEMPTS} numbers in a row were taken by other runs.",
                f"Start one redrive of {self._topic} at a time, and try again.",
            )
        self._run = run

    def _before(self, run: int) -> bytes:
        """Returns what run number `run` begins with: what the run before it has kept, or the newest that is listed."""
        try:
            return self._storage.read(_FILES.path(run - 1), LARGE_BYTES)
        except MissingFileError:  # there was none, or a newer run has just removed it
            return self._read() or self._encoded({})

    def filled(self, held: Mapping[int, CommittedOffset | None]) -> Positions:
        """Returns what the group holds, and for partitions of which it holds nothing what is kept here, if anything.

        Raises StorageError; ConflictError if it is needed and cannot be read.
        """
        known = {number: committed for number, committed in held.items() if committed is not None}
        return known if len(known) == len(held) else {**self._kept(), **known}

    def keep(self, positions: Positions) -> None:
        """Writes what is known now, in place of what older runs wrote.

        Raises StorageError; ConflictError if a newer run has begun: it knows better.
        """
        runs = _FILES.numbers(self._storage)
        if self._run is None or max(runs, default=0) > self._run:
            raise ConflictError(
                f"Another redrive of {self._topic} has taken over.", "Let it end, and look with --dry-run."
            )
        self._storage.write(_FILES.path(self._run), self._encoded(positions))
        older = [_FILES.path(run) for run in runs if run < self._run]
        self._storage.delete_all([*older, EARLIER] if older or self._storage.exists(EARLIER) else [])

    def _encoded(self, positions: Positions) -> bytes:
        return msgspec.json.encode(_Floor(self._topic, self._id, positions))

    def _read(self) -> bytes | None:
        """Reads the newest file, None if there is none; looks again if a newer run has just removed it."""
        while True:
            run = _FILES.newest(self._storage)
            try:
                return self._storage.read(_FILES.path(run) if run else EARLIER, LARGE_BYTES)
            except MissingFileError:
                if run == _FILES.newest(self._storage):
                    return None

    def _kept(self) -> Positions:
        data = self._read()
        if data is None:
            return {}
        try:
            floor = decoded_as(data, _Floor)
        except UNDECODABLE as error:
            raise ConflictError(
                f"{self._storage.location}/{FOLDER}, with the positions of {self._topic}, cannot be read: "
                f"{why(error)}.",
                "Restore it from a backup; without it, redrive begins with the first letter.",
            ) from None
        return floor.positions if (floor.topic, floor.topic_id) == (self._topic, self._id) else {}
