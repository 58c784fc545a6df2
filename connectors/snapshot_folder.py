"""Names a snapshot by its topic's folder and its id, and finds a topic's newest one."""

from __future__ import annotations

from msgspec import Struct

from compactor.errors import MissingFileError
from compactor.snapshot import manifest
from compactor.snapshot.listing import LATEST, latest_of
from compactor.snapshot.manifest import Manifest
from compactor.storage.base import Storage
from connectors.errors import UsageError


class SnapshotFolder(Struct, frozen=True):
    """A snapshot that may be incomplete: `topic` is the folder of its topic, which has it under its `id`.

    `is_named`: its id was named, not the folder of its topic, the newest of which is another one later.
    """

    topic: Storage
    id: str
    is_named: bool = True

    @property
    def location(self) -> str:
        """The folder as people name it."""
        return f"{self.topic.location}/{self.id}"

    @property
    def files(self) -> Storage:
        """The storage of its own folder, to which the paths in its manifest are relative."""
        return self.topic.sub(self.id)

    def manifest(self) -> Manifest:
        """Reads its manifest. Raises UsageError if it has none, FoldError if that is damaged, StorageError."""
        try:
            return manifest.read(self.topic, self.id)
        except MissingFileError:
            raise UsageError(
                f"{self.location} is no complete snapshot: there is no {manifest.NAME}.",
                "Name another: keyfold snapshot list CONNECTOR.json lists them, each with its folder.",
            ) from None


def newest_in(topic: Storage) -> SnapshotFolder:
    """Finds the snapshot that LATEST names in the folder of a topic. Raises UsageError if it names none, StorageError.

    It may have been removed since: a newer one has then taken its place.
    """
    newest = latest_of(topic)
    if newest is None:
        raise UsageError(
            f"There is no snapshot in {topic.location}: its file {LATEST} is missing, or names none.",
            "Name a topic's folder, <snapshot.location>/<connector>/<topic>. keyfold snapshot list CONNECTOR.json "
            "lists what is there, keyfold snapshot CONNECTOR.json takes one.",
        )
    return SnapshotFolder(topic, newest, is_named=False)
