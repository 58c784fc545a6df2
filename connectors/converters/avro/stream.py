"""Gives fastavro the bytes of a record, and lets the reading of a large one be given up in its midst.

fastavro is compiled, and asks for a few bytes at a time: while it reads, no other thread of the process works, and
nothing else could end it.
"""

from __future__ import annotations

import io
from typing import Final

from connectors.data.pace import EVERY, passed

LARGE: Final = 1 << 20
"""Bytes from which on a record is read so, as many as Kafka lets a record have unless a topic says otherwise. Smaller
ones are read in 0.1 s or less; to count takes 0.3 us for each number or text."""


class _Paced(io.BytesIO):
    """Bytes of which each EVERY reads count as so many members."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._left = EVERY  # reads until the next count

    def read(self, size: int | None = -1, /) -> bytes:
        """See `io.BytesIO`. Raises what the limit raises, if its time has come."""
        self._left -= 1
        if not self._left:
            self._left = EVERY
            passed(EVERY)
        return super().read(size)


def stream_of(data: bytes, start: int) -> io.BytesIO:
    """Returns what `data` is read from, beginning at `start`."""
    buffer = io.BytesIO(data) if len(data) < LARGE else _Paced(data)
    buffer.seek(start)
    return buffer
