"""Begins to make what is sent while the producer waits for brokers: steps 6 to 8 do not depend on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Final, TypeVar

T = TypeVar("T")

_END: Final = object()


@contextmanager
def begun(make: Callable[[], Iterator[T]]) -> Iterator[Iterator[T]]:
    """Yields the items that `make` gives, of which a thread of the block makes the first at once.

    The block ends once that thread has, whatever became of the item. What making it raises is raised to who takes it.
    """
    with ThreadPoolExecutor(1) as pool:
        items = iter(make())
        first = pool.submit(copy_context().run, lambda: next(items, _END))
        yield _from(first.result, items)


def _from(first: Callable[[], T | object], items: Iterator[T]) -> Iterator[T]:
    item = first()
    if item is not _END:
        yield item  # type: ignore[misc]  # it is one of the items
        yield from items
