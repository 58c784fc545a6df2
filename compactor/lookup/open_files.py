"""Keeps files open between the look-ups of a thread.

To open one takes a seventh to a fifth of a look-up's processor time. Next to a thread that computes, look-ups waited
2.3 to 3.0 times each before files were kept open, and 1.3 to 2.2 times since.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

import pyarrow.parquet as pq

from compactor.errors import StorageError
from compactor.model.log import RunFile
from compactor.runs import checksums
from compactor.storage.base import Storage

USES: Final = 64
"""After so many uses a thread closes those of its files that were deleted: to look for them takes 5 µs each. Until then
the system keeps their bytes."""


class _OpenFile(NamedTuple):
    storage: Storage
    path: str
    file: pq.ParquetFile
    closing: ExitStack

    @property
    def is_there(self) -> bool:
        """Whether it was not deleted."""
        try:
            return self.storage.exists(self.path)
        except StorageError:
            return False


class _OfThread(threading.local):
    """The files of one thread, the one that was used last at the end; they are closed when the thread ends."""

    def __init__(self) -> None:
        self.files: dict[tuple[str, str], _OpenFile] = {}
        # How often a file was used.
        self.uses = 0


class OpenFiles:
    """Up to `most` files of a folder for each thread that uses them; those of an object store are not kept open."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._own = _OfThread()

    @contextmanager
    def opened(self, storage: Storage, file: RunFile, footer: pq.FileMetaData | None) -> Iterator[pq.ParquetFile]:
        """Opens `file`, unless this thread has it open. Raises as `checksums.open_verified` does.

        It is closed if the block fails: the file may have been put back from a copy meanwhile.
        """
        if not self._most or not storage.is_folder:
            with checksums.open_verified(storage, file, footer) as opened:
                yield opened
            return
        files, place = self._own.files, (storage.location, file.path)
        self._own.uses += 1
        if place not in files or self._own.uses % USES == 0:
            self._close_deleted()
        known = files.pop(place, None) or _open(storage, file, footer)
        try:
            with checksums.read_errors(storage, file.path):
                yield known.file
        except BaseException:
            known.closing.close()
            raise
        files[place] = known
        if len(files) > self._most:
            files.pop(next(iter(files))).closing.close()

    def _close_deleted(self) -> None:
        for place, known in [*self._own.files.items()]:
            if not known.is_there:
                del self._own.files[place]
                known.closing.close()


def _open(storage: Storage, file: RunFile, footer: pq.FileMetaData | None) -> _OpenFile:
    closing = ExitStack()
    opened = closing.enter_context(checksums.open_verified(storage, file, footer))
    return _OpenFile(storage, file.path, opened, closing)
