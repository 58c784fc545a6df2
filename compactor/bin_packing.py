"""Packs weighted items into bins, in their order: pure, and lazy, so that items may come as they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class AtMost(NamedTuple):
    """A bin holds `limit` at most."""

    limit: int
    weight: Callable[[Any], int]

    def takes(self, total: int, weight: int) -> bool:
        """Returns whether a bin of `total` takes an item of `weight`."""
        return total + weight <= self.limit


class Until(NamedTuple):
    """A bin takes items until it holds `target`: about that much, as the last item may go beyond."""

    target: int
    weight: Callable[[Any], int]

    def takes(self, total: int, weight: int) -> bool:  # noqa: ARG002  # the last item's weight does not matter
        """Returns whether a bin of `total` takes another item."""
        return total < self.target


Limit = AtMost | Until
"""Decides by the weights of items how many of them share a bin."""


def unit_weight(_: object) -> int:
    """Returns 1, the weight by which items are counted."""
    return 1


def pack(items: Iterable[T], *limits: Limit) -> Iterator[list[T]]:
    """Packs neighbouring `items` into bins that keep all `limits`; an item that is too large for any is in one alone.

    No item is passed over for a later one that would still fit. A bin is yielded once the item after it is known.
    """
    packed: list[T] = []
    totals = [0] * len(limits)
    for item in items:
        weights = [limit.weight(item) for limit in limits]
        taken = (limit.takes(*pair) for limit, *pair in zip(limits, totals, weights, strict=True))
        if packed and not all(taken):
            yield packed
            packed, totals = [], [0] * len(limits)
        packed.append(item)
        totals = [total + weight for total, weight in zip(totals, weights, strict=True)]
    if packed:
        yield packed
