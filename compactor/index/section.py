"""Names what an index file has of one log: what a RunFile keeps as its `index`, as text."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from msgspec import Struct

from compactor.model.key_hash import KNOWN


class IndexSection(Struct, frozen=True, kw_only=True):
    """The part of an index file that is about one log.

    `path` is the file's, `bytes` its size; its last `directory_bytes` are the directory, with this `checksum`. Entries
    of the log have its number `log` in their hashes, and count offsets from `first`, its first one. The hashes are made
    with `secret`, which no producer knows; files of before it was there have the one that everybody knows.
    """

    path: str
    bytes: int
    directory_bytes: int
    checksum: str
    log: int
    first: int
    secret: str = KNOWN


def fingerprint(directory: bytes) -> str:
    """Returns the checksum of a directory, in hex; with those of the blocks in it, it vouches for the whole file."""
    return hashlib.sha256(directory).hexdigest()[:32]


def to_text(section: IndexSection) -> str:
    """Returns `section` as a RunFile keeps it."""
    return ":".join(str(getattr(section, name)) for name in IndexSection.__struct_fields__)


@lru_cache(maxsize=4_096)  # a look-up asks for those of all runs again and again
def from_text(text: str) -> IndexSection:
    """Parses what `to_text` gave. Raises ValueError if it is not of that form."""
    path, size, directory_bytes, checksum, log, first, *secret = text.split(":")
    return IndexSection(
        path=path,
        bytes=int(size),
        directory_bytes=int(directory_bytes),
        checksum=checksum,
        log=int(log),
        first=int(first),
        secret=secret[0] if secret else KNOWN,
    )
