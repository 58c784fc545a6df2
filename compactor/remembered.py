"""Remembers values that never change, up to a number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Remembered(Generic[T]):
    """Values by the place that they were read from or made of, those that were asked for last; threads share it."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        # Each with its bytes, the one that was asked for last at the end; and the bytes of all.
        self._known: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get(self, place: Hashable) -> T | None:
        """Returns the value of `place`, if it is remembered."""
        with self._lock:
            if place not in self._known:
                return None
            self._known.move_to_end(place)
            return self._known[place][0]

    def put(self, place: Hashable, value: T, size: int) -> T:
        """Remembers a value of `size` bytes, and forgets those that were not asked for longest.

        Returns the value that is remembered: another thread may have been quicker.
        """
        with self._lock:
            if place not in self._known:
                self._known[place] = value, size
                self._bytes += size
            while self._bytes > self._most_bytes and len(self._known) > 1:
                self._bytes -= self._known.popitem(last=False)[1][1]
            return self._known[place][0]

    @property
    def is_full(self) -> bool:
        """Whether more than three quarters of the bytes are taken."""
        return 4 * self._bytes > 3 * self._most_bytes

    def drop(self, places: Iterable[Hashable]) -> None:
        """Forgets the values of `places`, as they are about to be replaced or removed."""
        with self._lock:
            for place in places:
                if place in self._known:
                    self._bytes -= self._known.pop(place)[1]

    def clear(self) -> None:
        """Forgets all values."""
        with self._lock:
            self._known.clear()
            self._bytes = 0

    def __len__(self) -> int:
        return len(self._known)
