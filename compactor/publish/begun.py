"""Begins to make what is sent while the producer waits for brokers: steps 6 to 8 do not depend on it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from typing import Final, TypeVar

T = TypeVar("T")

_END: Final = object()
END_S: Final = 5.0
"""How long (s) a block that has ended waits for its thread: a read of a store that answers takes less. One that does
not answer would keep the error of the block from the connector, which tries again by it."""


@contextmanager
def begun(make: Callable[[], Iterator[T]], end_s: float = END_S) -> Iterator[Iterator[T]]:
    """Yields the items that `make` gives, of which a thread of the block makes the first at once.

    The block ends once that thread has, or `end_s` seconds later: it only reads, and what becomes of the item counts
    for nothing then. What making it raises is raised to who takes it.
    """
    items, first = iter(make()), Future[T | object]()

    def make_first() -> None:
        try:
            first.set_result(next(items, _END))
        except BaseException as error:  # noqa: BLE001 - it is raised to who takes the item
            first.set_exception(error)

    thread = threading.Thread(target=copy_context().run, args=(make_first,), name="first-sent", daemon=True)
    thread.start()
    try:
        yield _from(first.result, items)
    finally:
        thread.join(end_s)


def _from(first: Callable[[], T | object], items: Iterator[T]) -> Iterator[T]:
    item = first()
    if item is not _END:
        yield item  # type: ignore[misc]  # it is one of the items
        yield from items
