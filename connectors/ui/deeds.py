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

    `said` is what came of it; `ok` is False if it failed. `aim` is the state that it asks for, "" if for none, and
    `then` what is said once that is reached, which the connector may do later, or never.
    """

    id: str
    connector: str
    what: str
    user: str
    asked_ms: int
    ended_ms: int | None = None
    ok: bool = True
    said: str = ""
    aim: str = ""
    then: str = ""
    reached: bool = False

    @property
    def word(self) -> str:
        """How it is, in a word or two."""
        if self.ended_ms is None:
            return "under way"
        if not self.ok:
            return "refused"
        return "asked for" if self.is_open else "done"

    @property
    def tone(self) -> str:
        """The colour of that word: good, warn or bad."""
        return {"done": "good", "refused": "bad"}.get(self.word, "warn")

    @property
    def is_open(self) -> bool:
        """Whether it was taken, and the connector was not seen in the state that it asks for."""
        return self.ended_ms is not None and self.ok and self.aim != "" and not self.reached


class Aim(Struct, frozen=True):
    """What a deed asks a connector to become: a state, and what is said before and after it is reached."""

    state: str
    said: str
    then: str


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

    def take(self, deed: Deed, aim: Aim, now_ms: int) -> Deed:
        """Keeps that a deed was taken, and what it asks for, and returns it so."""
        return self.end(replace(deed, aim=aim.state, then=aim.then), aim.said, now_ms)

    def follow(self, connector: str, state: str) -> None:
        """Keeps of the last deed that asks a connector for a state that it has reached `state`, if it asks for that."""
        with self._lock:
            aimed = (deed for deed in reversed(self._deeds.values()) if deed.connector == connector and deed.aim)
            last = next(aimed, None)
            if last is not None and last.is_open and last.aim == state:
                self._deeds[last.id] = replace(last, reached=True, said=last.then)

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

    def of(self, connector: str, since_ms: int = 0, without: Deed | None = None) -> tuple[Deed, ...]:
        """Returns the last deeds of the connector that has the name since `since_ms`, the newest first.

        `without` is one that the page shows elsewhere.
        """
        hidden = "" if without is None else without.id
        with self._lock:
            every = reversed(self._deeds.values())
            named = [deed for deed in every if deed.connector == connector and deed.id != hidden]
        return tuple(deed for deed in named if _is_of(deed, since_ms))[:SHOWN_DEEDS]


def _is_of(deed: Deed, since_ms: int) -> bool:
    """Returns whether a deed is of the connector that has its name since `since_ms`, or has made that."""
    made = deed.what == CREATE and (deed.ended_ms is None or deed.ended_ms >= since_ms)
    return made or deed.asked_ms >= since_ms
