"""Reads in the log of a Delta table what keyfold's own commits say of themselves.

`DeltaTable.history` would hold Python's lock while it waits for a store, and with it the whole worker. Python's own
reader of JSON would hold it for 10 s for an entry of 60 MiB, which anyone may write who may write the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from compactor.json_types import decoded_as
from compactor.storage.base import Storage
from compactor.storage.limits import LARGE_BYTES

COMMIT_BYTES: Final = 8 << 20
"""Bytes of what a commit says of itself, as far as that is read: ours names three offsets of each partition, so that
100,000 partitions take 7 MB. A larger one counts as somebody else's."""
ENTRIES_BYTES: Final = 256 << 20
"""Bytes of the entries that are looked through for our last commit, the newest first. If it is not among them, others
have committed much since, and it counts as lost."""
_MARK: Final = b'"commitInfo"'
_OWN: Final = "keyfold."

Raw = msgspec.Raw


class _Action(Struct, rename={"info": "commitInfo"}):
    """A line of an entry, as far as it says something of the commit."""

    info: Raw = Raw(b"")


def entry_path(version: int) -> str:
    """Returns the path of the entry of a version, in the table's folder."""
    return f"_delta_log/{version:020}.json"


def last_commit(place: Storage, newest: int) -> dict[str, str]:
    """Returns the properties of our last commit in the table `place` of version `newest`, if the log has it still.

    Raises ValueError for an entry that is no JSON, StorageError.
    """
    sizes = {info.path: info.bytes for info in place.walk("_delta_log")}
    left = ENTRIES_BYTES
    for version in range(newest, -1, -1):
        path = entry_path(version)
        left -= sizes.get(path, 0)
        if path not in sizes or left < 0:
            break
        for commit in _commits(place.read(path, LARGE_BYTES)):
            if "keyfold.snapshot.id" in commit:
                return dict(commit)
    return {}


def _commits(entry: bytes) -> Iterator[Mapping[str, str]]:
    """Yields our properties in each line of an entry that has some."""
    at = 0
    while (at := entry.find(_MARK, at)) >= 0:
        end = entry.find(b"\n", at)
        end = len(entry) if end < 0 else end
        info = decoded_as(entry[entry.rfind(b"\n", 0, at) + 1 : end], _Action).info
        if len(info) <= COMMIT_BYTES:
            yield {name: text for name, raw in _members(info).items() if (text := _text(name, raw)) is not None}
        at = end


def _members(info: Raw) -> Mapping[str, Raw]:
    try:
        return decoded_as(info, dict[str, Raw])
    except msgspec.DecodeError:  # it is no object
        return {}


def _text(name: str, raw: Raw) -> str | None:
    """Returns the value of a property of ours; None of others', and of what is no text."""
    try:
        return decoded_as(raw, str) if name.startswith(_OWN) else None
    except msgspec.DecodeError:
        return None
