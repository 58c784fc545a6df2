"""Lets the work on one record be given up in its midst: a record of a few megabytes may have millions of members.

What goes over the members of a value goes over them by `paced`, which asks the limit of the thread after each EVERY of
them. The limit is whatever `limited` was given: a function that raises once the work has to end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final, TypeVar

from connectors.data.schema import Schema

Member = TypeVar("Member")

EVERY: Final = 5_000
"""Members after which the limit is asked. One takes 0.2 to 20 us, so that is after 0.1 s at the latest; to ask takes
less than a microsecond."""
OF_LIST: Final = 16
"""Members that a list or map within a list or map counts as, before its own are counted when they are gone over."""


class _Limit(threading.local):
    # Raises once the work of this thread has to end; None: nothing limits it. Set by `limited`.
    check: Callable[[], None] | None = None
    # Members until `check` is called the next time, counted down by `passed`.
    left: int = EVERY


_limit: Final = _Limit()


@contextmanager
def limited(check: Callable[[], None]) -> Iterator[None]:
    """Has `check` called now and then by what this thread does in the block."""
    before, _limit.check = _limit.check, check
    try:
        yield
    finally:
        _limit.check = before


def ask_limit() -> None:
    """Asks the limit now, as what waits for a process does. Raises what the limit raises, if its time has come."""
    if _limit.check is not None:
        _limit.check()


def passed(members: int) -> None:
    """Counts members that are gone over next. Raises what the limit raises, if its time has come."""
    _limit.left -= members
    if _limit.left <= 0:
        _limit.left = EVERY
        ask_limit()


def paced(members: Collection[Member], width: int = 1) -> Iterable[Member]:
    """Returns what goes over `members` in their order, and asks the limit meanwhile.

    `width`: how many members each of them has itself, see `width_of`.
    """
    count = len(members) * width
    if count <= EVERY:
        passed(count)
        return members
    return _in_pieces(members, width)


def _in_pieces(members: Collection[Member], width: int) -> Iterator[Member]:
    size, rest = max(1, EVERY // width), iter(members)
    for _ in range(0, len(members), size):
        passed(size * width)
        yield from islice(rest, size)


def width_of(schema: Schema) -> int:
    """Returns how many values one of `schema` has, with those of the structs in it.

    A list or map counts as OF_LIST: its members are counted when they are gone over.
    """
    return (OF_LIST if schema.value_schema else 1) + sum(width_of(field.schema) for field in schema.fields)
