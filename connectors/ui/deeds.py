"""Keeps what was done by the page: what was asked for, by whom and when, and what came of it. The last ones, in memory.

A form is answered by leading the browser to a page, which shows the deed that its address names.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from connectors.clock import Clock

MOST_DEEDS: Final = 200
"""How many deeds are kept, some 500 bytes each: those of a day of a busy operator."""
SHOWN_DEEDS: Final = 5
CREATE: Final = "Create"
"""What is asked for to make a connector: before there is one."""


class Deed(Struct, frozen=True, kw_only=True):
    """What `user` asked for of a connector at `asked_ms`. `ended_ms`: when that had ended, None while it goes on.

    `said` is what came of it; `ok` is False if it failed.
    """

    id: str
    connector: str
    what: str
    user: str
    asked_ms: int
    ended_ms: int | None = None
    ok: bool = True
    said: str = ""


class Deeds:
    """Keeps the newest MOST_DEEDS; threads share it."""

    def __init__(self) -> None:
        # By id, the oldest first; changed under the lock.
        self._deeds: OrderedDict[str, Deed] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, connector: str, what: str, user: str, now_ms: int) -> Deed:
        """Keeps that something is asked for, and returns it."""
        deed = Deed(id=secrets.token_urlsafe(9), connector=connector, what=what, user=user, asked_ms=now_ms)
        with self._lock:
            self._deeds[deed.id] = deed
            if len(self._deeds) > MOST_DEEDS:
                self._deeds.popitem(last=False)
        return deed

    def end(self, deed: Deed, said: str, now_ms: int, *, ok: bool = True) -> Deed:
        """Keeps what came of a deed, and returns it so."""
        ended = replace(deed, ended_ms=now_ms, ok=ok, said=said)
        with self._lock:
            if deed.id in self._deeds:
                self._deeds[deed.id] = ended
        return ended

    @contextmanager
    def ended_if_broken_off(self, deed: Deed, clock: Clock) -> Iterator[None]:
        """Keeps of a deed that it failed if the block raises, so that it is not shown as under way for good."""
        try:
            yield
        except BaseException:
            self.end(deed, "It was broken off; the worker's log says more.", clock.now_ms(), ok=False)
            raise

    def named(self, deed_id: str) -> Deed | None:
        """Returns the deed of an address, None if it is kept no more."""
        with self._lock:
            return self._deeds.get(deed_id)

    def of(self, connector: str, since_ms: int = 0) -> tuple[Deed, ...]:
        """Returns the last deeds of the connector that has the name since `since_ms`, the newest first."""
        with self._lock:
            named = [deed for deed in reversed(self._deeds.values()) if deed.connector == connector]
        return tuple(deed for deed in named if _is_of(deed, since_ms))[:SHOWN_DEEDS]


def _is_of(deed: Deed, since_ms: int) -> bool:
    """Returns whether a deed is of the connector that has its name since `since_ms`, or has made that."""
    made = deed.what == CREATE and (deed.ended_ms is None or deed.ended_ms >= since_ms)
    return made or deed.asked_ms >= since_ms
