"""Whether a topic is gone: brokers do not all know of every topic at every moment, so one answer is not enough.

A broker that was just started, or that lags behind the controller, does not know topics that exist. One answer that a
topic is there is enough; that it is gone counts only when nobody has known it for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

T = TypeVar("T")

SURE_S: Final = 10.0
"""A topic is gone when no broker has known it for so long."""
_PAUSE_S: Final = 0.5


def described(
    describe: Callable[[Iterable[str]], Mapping[str, T]],
    names: Iterable[str],
    *,
    known: Iterable[str],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, T]:
    """What `describe` says of those of `names` that exist.

    Those of them that were there before (`known`) are asked for again until they are there or SURE_S is over. Raises
    what `describe` raises.
    """
    found = dict(describe(set(names)))
    waiting = set(known) & set(names)
    until = clock() + SURE_S
    while (absent := waiting - found.keys()) and clock() < until:
        sleep(_PAUSE_S)
        found |= describe(absent)
    return found
