"""Reads and writes one object as a file: Parquet asks for a footer, then for some row groups of it.

Each request has its price in time and in money. So a small object is read whole by its first request, the end of a
larger one with a margin that nearly every footer fits into, and what else is asked for is read as it is asked for.
"""

from __future__ import annotations

import io
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from compactor.errors import StorageError
from compactor.storage.object_client import PART_BYTES, ObjectClient, OutOfRangeError

if TYPE_CHECKING:
    from obstore import WritableFile

WHOLE_BYTES: Final = 1 << 20
"""An object that is not larger is read whole by the first request."""

TAIL_BYTES: Final = 128 << 10
"""How much of the end of a larger one is read at once."""


class ObjectReader(io.RawIOBase):
    """Reads an object by ranges. `size` in bytes spares a request, if it is known.

    Raises MissingFileError at once if the object is absent; StorageError also while it reads.
    """

    def __init__(self, client: ObjectClient, key: str, size: int | None = None) -> None:
        super().__init__()
        self._client = client
        self._key = key
        # Byte at which the next read begins; moved by `seek` and `read`.
        self._place = 0
        # What is in memory of the object: bytes from `_start` on.
        self._start, self._held = 0, b""
        if size is not None and size > WHOLE_BYTES:
            self._start = size - TAIL_BYTES
            with suppress(OutOfRangeError):  # it is shorter than was said
                self._held, self._size = client.get_range(key, self._start, size)
                return
        self._start, (self._held, self._size) = 0, client.get_start(key, WHOLE_BYTES)

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True

    def tell(self) -> int:
        """Returns the place of the next read."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Lets the next read begin at `offset`, counted from `whence`."""
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        return self._place

    def read(self, size: int = -1, /) -> bytes:
        """Reads up to `size` bytes, by default all that follow."""
        end = self._size if size < 0 else min(self._place + size, self._size)
        data = self._between(self._place, end) if self._place < end else b""
        self._place += len(data)
        return data

    def readall(self) -> bytes:
        """Reads all that follows."""
        return self.read()

    def _between(self, start: int, end: int) -> bytes:
        if not (self._start <= start and end <= self._start + len(self._held)):
            if start < self._size - TAIL_BYTES:
                return self._client.get_range(self._key, start, end)[0]
            self._start = self._size - TAIL_BYTES
            self._held = self._client.get_range(self._key, self._start, self._size)[0]
        return self._held[start - self._start : end - self._start]


class ObjectWriter(io.RawIOBase):
    """Writes a new object: in one request if it is small, else in parts while it is written.

    It appears with `complete`, whole, and never without.
    """

    def __init__(self, client: ObjectClient, key: str) -> None:
        super().__init__()
        self._client = client
        self._key = key
        # Bytes not uploaded yet, less than PART_BYTES; `_sent` counts those that were.
        self._waiting = bytearray()
        self._sent = 0
        # The upload; None while all fits into one request.
        self._parts: WritableFile | None = None

    def writable(self) -> bool:
        """Returns True."""
        return True

    def tell(self) -> int:
        """Returns how many bytes were written."""
        return self._sent + len(self._waiting)

    def write(self, data: Any, /) -> int:
        """Writes all of `data`; returns its length in bytes. Raises StorageError."""
        self._waiting += data
        if len(self._waiting) >= PART_BYTES:
            self._parts = self._parts or self._client.open_writer(self._key)
            self._send(self._parts)
        return len(data)

    def complete(self) -> bytes | None:
        """Lets the object appear; returns its content if that is small. Raises StorageError, also if it exists."""
        data = None
        if self._parts is None:
            data = bytes(self._waiting)
            made = self._client.create(self._key, data)
        else:
            self._send(self._parts)
            made = self._client.head(self._key) is None
            if made:
                self._close(self._parts)
        if not made:
            raise StorageError(
                f"{self._client.url(self._key)} exists already.", "This is a defect of keyfold; it was left as it is."
            )
        return data

    def abort(self, error: BaseException) -> None:
        """Gives up what was uploaded, because of `error`."""
        if self._parts is not None:
            with suppress(StorageError):  # the first error counts; the bucket's lifecycle removes what is left
                self._client.abort_writer(self._key, self._parts, error)

    def _close(self, parts: WritableFile) -> None:
        """Completes the upload; if its answer was lost, and a second call is refused, the object shows it."""
        try:
            self._client.close_writer(self._key, parts)
        except StorageError:
            info = self._client.head(self._key)
            if info is None or info.bytes != self._sent:
                raise

    def _send(self, parts: WritableFile) -> None:
        self._client.write_part(self._key, parts, bytes(self._waiting))
        self._sent += len(self._waiting)
        self._waiting.clear()
