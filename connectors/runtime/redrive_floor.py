"""Keeps a redrive's positions in the connector's storage too: brokers forget those of a group without members.

After `offsets.retention.minutes` (7 days) they are gone, while letters may live longer. What the group holds is the
truth wherever it holds anything; this file stands in only for what it has forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from compactor.errors import MissingFileError
from compactor.storage.base import Storage
from connectors.errors import ConflictError
from connectors.kafka.groups import CommittedOffset

NAME: Final = "redrive.json"
Positions = dict[int, CommittedOffset]
"""What a group holds for partitions of letters, by number."""


class _Floor(Struct, frozen=True):
    """The content of redrive.json: positions of a dead letter topic, told by its id from a later one of its name."""

    topic: str
    topic_id: str
    positions: Positions
    format: int = 1


class RedriveFloor:
    """The positions that were last known, of the dead letter topic `topic` whose id is `topic_id`."""

    def __init__(self, storage: Storage, topic: str, topic_id: str) -> None:
        self._storage = storage
        self._topic = topic
        self._id = topic_id

    def filled(self, held: Mapping[int, CommittedOffset | None]) -> Positions:
        """Returns what the group holds, and for partitions of which it holds nothing what is kept here, if anything.

        Raises StorageError; ConflictError where it is needed and cannot be read.
        """
        known = {number: one for number, one in held.items() if one is not None}
        return known if len(known) == len(held) else {**self._kept(), **known}

    def keep(self, positions: Positions) -> None:
        """Writes what is known now. Raises StorageError."""
        self._storage.write(NAME, msgspec.json.encode(_Floor(self._topic, self._id, positions)))

    def _kept(self) -> Positions:
        try:
            found = msgspec.json.decode(self._storage.read(NAME), type=_Floor)
        except MissingFileError:
            return {}
        except msgspec.DecodeError as error:
            raise ConflictError(
                f"{self._storage.location}/{NAME}, with the positions of {self._topic}, cannot be read: {error}.",
                "Restore it from a backup; without it, redrive begins with the first letter.",
            ) from error
        return found.positions if (found.topic, found.topic_id) == (self._topic, self._id) else {}
