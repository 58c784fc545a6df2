"""Decides which files of a catalog no reader needs any more, and which file is the catalog's at all: pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from compactor.catalog.commits import version_of
from compactor.decode_errors import UNDECODABLE
from compactor.storage.base import FileInfo

# Old versions stay this long for readers that began with an older listing; a reader that is slower starts over.
TRIM_GRACE_MS: Final = 300_000
# Versions that far below the second newest checkpoint go whatever their age: commits may follow one another in ms,
# and each of them lists the folder.
TRIM_KEEP: Final = 100


def trimmable(files: Sequence[FileInfo], now_ms: int, newest: int) -> list[str]:
    """Returns the catalog files that may go: below the second newest checkpoint, and past a grace or far below it.

    `newest`: the catalog's newest version. A checkpoint above it is of a catalog that is gone (`catalog.catalog`).
    A reader that still wants one starts over; the grace keeps that rare, and the second newest
    checkpoint is there for the day on which the newest turns out to be damaged.
    """
    named = [(info, parsed) for info in files if (parsed := version_of(info.path))]
    checkpoints = sorted(version for _, (version, checkpoint) in named if checkpoint and version <= newest)
    if len(checkpoints) < 2:
        return []
    keep = checkpoints[-2]
    return [
        info.path
        for info, (version, _) in named
        if version < keep and (now_ms - info.modified_ms > TRIM_GRACE_MS or version < keep - TRIM_KEEP)
    ]


class _Named(Struct):
    catalog: str | None = None


_DECODER: Final = msgspec.json.Decoder(_Named)


def is_of(catalog_id: str, data: bytes) -> bool:
    """Returns whether a catalog's file with the content `data` names no other catalog than `catalog_id`.

    What cannot be read names none, as files of earlier versions do not.
    """
    try:
        return _DECODER.decode(data).catalog in (None, catalog_id)
    except UNDECODABLE:
        return True
