"""Remembers what this process has just written to object stores.

A small micro-batch is read back at once, to be folded. On its own as it is one for the process, where storages are
opened and pickled all the time. Only files that never change are remembered (`Storage.open_output`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

MOST_BYTES: Final = 32 << 20


class WrittenObjects:
    """The contents of the newest objects, up to `most_bytes` together. Threads share it."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._contents: OrderedDict[tuple[Hashable, str], bytes] = OrderedDict()
        self._turn = threading.Lock()

    def put(self, bucket: Hashable, key: str, data: bytes) -> None:
        """Remembers `data`, and forgets the oldest where that is too much."""
        with self._turn:
            self._bytes += len(data) - len(self._contents.pop((bucket, key), b""))
            self._contents[bucket, key] = data
            while self._bytes > self._most_bytes:
                self._bytes -= len(self._contents.popitem(last=False)[1])

    def get(self, bucket: Hashable, key: str) -> bytes | None:
        """Returns what was written; None where it is not remembered."""
        with self._turn:
            return self._contents.get((bucket, key))

    def drop(self, bucket: Hashable, key: str) -> None:
        """Forgets one."""
        with self._turn:
            self._bytes -= len(self._contents.pop((bucket, key), b""))


WRITTEN: Final = WrittenObjects(MOST_BYTES)
