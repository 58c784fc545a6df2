"""Tells folders among temporary files that a process uses from those of processes that were killed.

A process holds a lock in its folder, which ends with the process, whatever ends that. A process id says nothing:
workers of two containers may share TMPDIR, and have the same one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

_HELD: Final = "held"
"""The file in a folder that its process has locked."""


def hold(folder: Path) -> BinaryIO:
    """Locks `folder` for this process until what it returns is closed."""
    held = (folder / _HELD).open("wb")
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
    except OSError:  # a file system without locks
        held.close()
        raise
    return held


def remove_left(place: Path, prefix: str, content: str) -> None:
    """Removes the folders with `prefix` in `place` that no process holds.

    One without `content` stays, as it may be about to be locked. What cannot be looked at is another account's, which
    may also have made a pipe in place of the file: its writer is not waited for.
    """
    for folder in place.glob(f"{prefix}*"):
        with suppress(OSError), os.fdopen(os.open(folder / _HELD, os.O_RDONLY | os.O_NONBLOCK)) as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (folder / content).exists():
                shutil.rmtree(folder, ignore_errors=True)
