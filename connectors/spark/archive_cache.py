"""Keeps the archives for executors in the cache from piling up: one is made for each version of anything in it."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_KEPT: Final = ".keep"
"""The end of a file next to an archive of `keyfold package`, as the archive's path may stand in a worker file."""
_UNUSED_S: Final = 7 * 86_400
"""A new one takes half a minute; below this, two versions that are run in turn would make theirs each time."""


def hold(archive: Path, now_s: float) -> bool:
    """Marks `archive` as used by this process until that ends; returns whether the file is there.

    The file stays open, and locked, for as long: executors that start later ask for it.
    """
    try:
        descriptor = os.open(archive, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    with suppress(OSError):  # one that this account cannot change it does not remove either
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        os.utime(archive, (now_s, archive.stat().st_mtime))
    return archive.exists()


def keep(archive: Path) -> None:
    """Keeps `archive` for good, used or not."""
    with suppress(OSError):
        archive.with_name(archive.name + _KEPT).touch()


def remove_unused(folder: Path, pattern: str, now_s: float) -> list[Path]:
    """Removes archives that no process of this machine holds, and none has held for a week; returns them."""
    return [archive for archive in sorted(folder.glob(pattern)) if _is_unused(archive, now_s) and _remove(archive)]


def _is_unused(archive: Path, now_s: float) -> bool:
    with suppress(OSError):
        used_s = max(archive.stat().st_atime, archive.stat().st_mtime)
        return now_s - used_s > _UNUSED_S and not archive.with_name(archive.name + _KEPT).exists()
    return False


def _remove(archive: Path) -> bool:
    try:
        descriptor = os.open(archive, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        archive.unlink(missing_ok=True)
    except OSError:  # held, or not ours
        return False
    finally:
        os.close(descriptor)
    return True
