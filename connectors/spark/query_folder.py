"""Gives the query a folder for Spark's checkpoint, and removes those of workers that were killed.

A worker holds a lock in its folder, which ends with the process, whatever ends that. A process id says nothing: workers
of two containers may share TMPDIR, and have the same one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "keyfold-query-"
_HELD: Final = "held"
"""The file in a folder that its worker has locked."""
_CHECKPOINT: Final = "checkpoint"
"""What Spark makes in it, once it is locked: a folder without this one may be about to be locked."""


@contextmanager
def query_folder(place: Path | None = None) -> Iterator[Path]:
    """Yields the path for the checkpoint, in a folder of mode 0700 in `place` (TMPDIR) that is removed at the end."""
    place = place or Path(tempfile.gettempdir())
    _remove_left(place)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=place))
    try:
        with (folder / _HELD).open("wb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield folder / _CHECKPOINT
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left(place: Path) -> None:
    """Removes the folders that no process holds. What cannot be looked at is another account's."""
    for folder in place.glob(f"{_PREFIX}*"):
        with suppress(OSError), (folder / _HELD).open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (folder / _CHECKPOINT).exists():
                shutil.rmtree(folder, ignore_errors=True)
