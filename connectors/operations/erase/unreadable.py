"""Tells an error of one file from one of its store: a search goes on without such a file, and names it."""

from __future__ import annotations

import errno
from typing import Final

from compactor.errors import ForeignContentError, StorageError, StorageRefusedError, UnreadableFileError

_OF_FILE: Final = (ForeignContentError, StorageRefusedError, UnreadableFileError)


def is_of_file(error: StorageError) -> bool:
    """Returns whether a store answers and one file cannot be read: by the disk (EIO), by its rights, or by its size."""
    link: BaseException | None = error
    while isinstance(link, StorageError):
        if isinstance(link, _OF_FILE):
            return True
        link = link.__cause__
    return isinstance(link, OSError) and link.errno == errno.EIO
