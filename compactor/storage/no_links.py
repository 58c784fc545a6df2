"""Opens files through no symbolic link, so that an account that may write to a folder cannot lead a reader out of it.

To resolve a path, and to open it afterwards, is not the same: a folder may be replaced by a link in between.
"""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import Final

_FOLDER: Final = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
"""How folders are opened: on Linux without the right to list them, as a path needs none."""


def open_below(folder: str | os.PathLike[str], path: str) -> int:
    """Opens the file `path` below `folder` for reading, and returns its descriptor; `folder` itself may be a link.

    Does not wait for the writer of a pipe. Raises OSError, also if a part of `path` is a link.
    """
    *parts, name = PurePath(path).parts
    at = os.open(folder, _FOLDER)
    try:
        for part in parts:
            below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = below
        return os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    finally:
        os.close(at)
