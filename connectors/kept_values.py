"""Keeps the newest values within a bound, by their number and by what they weigh together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

HEAVIEST: Final = 32 << 20
"""About how many bytes may be kept in one place: a hundred thousand types, as a thousand tables of a hundred columns
have. A chain has a handful of such places."""


class Kept(Generic[Key, Value]):
    """Keeps at most `most` values, which weigh at most `heaviest` together; the oldest are let go.

    The newest stays in any case. Changed by one thread at a time.
    """

    def __init__(self, most: float, heaviest: float = HEAVIEST) -> None:
        self._most = max(1, most)
        self._heaviest = heaviest
        self._weight = 0  # of all that is in `_kept`
        # Each value with its weight, in the order in which they were put: the first is the oldest.
        self._kept: dict[Key, tuple[Value, int]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: Key) -> bool:
        return key in self._kept

    def newest_first(self) -> list[tuple[Key, Value]]:
        """Returns what is kept, each with its key."""
        return [(key, value) for key, (value, _) in reversed(self._kept.items())]

    def get(self, key: Key) -> Value | None:
        """Returns what is kept under `key`, or None."""
        kept = self._kept.get(key)
        return None if kept is None else kept[0]

    def get_all(self, keys: Iterable[Key]) -> list[Value | None]:
        """Returns what is kept under each of `keys`, or None."""
        return [None if kept is None else kept[0] for kept in map(self._kept.get, keys)]

    def put(self, key: Key, value: Value, weight: int) -> Value:
        """Keeps `value`, which weighs `weight`, in place of what is kept under `key`; returns it."""
        self._let_go(key)
        while self._kept and (len(self._kept) >= self._most or self._weight + weight > self._heaviest):
            self._let_go(next(iter(self._kept)))
        self._kept[key] = value, weight
        self._weight += weight
        return value

    def _let_go(self, key: Key) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._weight -= kept[1]
