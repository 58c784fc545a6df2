"""Decides which password is checked next: a right one gets in however many others guess.

To check a password takes some 50 ms of a core on purpose, so they are checked one after another, and who asks most must
not come first. Addresses take turns, whatever names each asks for, by rank: those that have given a right password
lately and no wrong one since, those of which nothing is known, and those that have guessed wrong. So a right password
from an address of its own waits for the check that is under way and for one of each other address that has not guessed
yet, and a guesser is such an address once. From an address that has given one before it waits for no guesser.

A proxy is one address: there each name may take a part of its places.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import bcrypt
from msgspec import Struct

from connectors.clock import SYSTEM_CLOCK, Clock
from connectors.errors import BusyError
from connectors.rest.slow_calls import WAIT_S, SlowCalls

MOST_WAITING: Final = 32
"""How many checks wait at most: each has a connection. With the usual cost of 10 the last of them waits 2 s."""
CHECKS_OF_ADDRESS: Final = 8
"""How many of these one address has. A console that is opened has six requests at once."""
CHECKS_OF_NAME: Final = 6
"""How many of these may be for one name: who guesses one user's password leaves room for other users of a proxy."""
FAILED_MS: Final = 600_000
"""How long an address counts as one that guesses, from its last wrong password on."""
RIGHT_MS: Final = 7 * 24 * 3_600_000
"""How long an address counts as one that has given a right password: over a weekend."""
MOST_FAILED: Final = 10_000
"""Addresses that are remembered as such, 2 MB; those that guessed last. To use more takes a guesser 500 s of checks."""
MOST_RIGHT: Final = 10_000
"""Addresses that are remembered as those that have given a right password; those that did so last."""
_NETWORK: Final = 64
"""Bits of an IPv6 address that count: one machine has all addresses with the same ones."""
_AGAIN: Final = "Ask again later; a password that was right is not checked again."


class _Rank(IntEnum):
    """Which addresses come first, and give no place to those after them."""

    RIGHT = 0
    UNKNOWN = 1
    GUESSES = 2


class _Check(Struct, eq=False):
    """A check that waits: the hash that the password is held against, and what is told the outcome."""

    name: str
    password: bytes
    hashed: bytes
    outcome: asyncio.Future[bool]


class PasswordChecks:
    """Checks passwords, one at a time; each waits for `wait_s` at most. To be used on one event loop.

    `is_password` tells whether a password is that of a hash.
    """

    def __init__(
        self,
        wait_s: float = WAIT_S,
        clock: Clock = SYSTEM_CLOCK,
        is_password: Callable[[bytes, bytes], bool] | None = None,
        most_failed: int = MOST_FAILED,
    ) -> None:
        self._wait_s = wait_s
        self._clock = clock
        self._is_password = is_password or _is_password
        self._most_failed = most_failed
        self._calls = SlowCalls("checks of passwords", 1)
        # The checks that wait, by address, in the order in which the addresses have their turns; none is empty.
        self._waiting: OrderedDict[str, list[_Check]] = OrderedDict()
        # When (monotonic ms) each address gave a wrong password last, the latest at the end; changed by `_note`.
        self._failed: OrderedDict[str, int] = OrderedDict()
        # When (monotonic ms) each address gave a right password last, the latest at the end; changed by `_note`.
        self._right: OrderedDict[str, int] = OrderedDict()
        # Takes one check after the other while any waits; None while none does.
        self._taking: asyncio.Task[None] | None = None

    async def is_right(self, address: str, name: str, password: bytes, hashed: bytes) -> bool:
        """Returns whether `password` is that of `hashed`. Raises BusyError if there is no place, or no turn in time."""
        check = _Check(name, password, hashed, asyncio.get_running_loop().create_future())
        own = _network(address)
        self._admit(own, name)
        self._waiting.setdefault(own, []).append(check)
        if self._taking is None:
            self._taking = asyncio.create_task(self._take_turns())
        try:
            async with asyncio.timeout(self._wait_s):
                return await check.outcome
        except TimeoutError:
            raise _busy(f"No password was checked for this request within {self._wait_s:g} s.") from None
        finally:
            self._leave(own, check)

    def _admit(self, address: str, name: str) -> None:
        """Makes room for one more check. Raises BusyError if its address or name has as many as it may, or all have.

        If all have, one of the lowest rank gives its place to an address of a higher one.
        """
        own = self._waiting.get(address, [])
        if len(own) >= CHECKS_OF_ADDRESS or sum(each.name == name for each in own) >= CHECKS_OF_NAME:
            raise _busy(f"{len(own)} checks of passwords wait for this address.")
        if sum(map(len, self._waiting.values())) < MOST_WAITING:
            return
        longest = max(self._waiting, key=lambda each: (self._rank(each), len(self._waiting[each])))
        if self._rank(longest) <= self._rank(address):
            raise _busy(f"{MOST_WAITING} checks of passwords wait.")
        last = self._waiting[longest][-1]
        self._leave(longest, last)
        last.outcome.set_exception(_busy("Addresses that have given right passwords, or no wrong ones, come first."))

    def _leave(self, address: str, check: _Check) -> None:
        """Takes a check out of those that wait, if it still does."""
        own = self._waiting.get(address, [])
        if check in own:
            own.remove(check)
        if not own:
            self._waiting.pop(address, None)

    async def _take_turns(self) -> None:
        try:
            while self._waiting:
                address = self._next()
                check = self._waiting[address][0]
                self._leave(address, check)
                if address in self._waiting:
                    self._waiting.move_to_end(address)
                await self._make(check, address)
        finally:
            self._taking = None

    async def _make(self, check: _Check, address: str) -> None:
        """Makes a check, and tells its outcome unless the client has gone, or has waited for too long."""
        try:
            is_right = await self._calls.run(self._is_password, check.password, check.hashed)
        except Exception as error:  # noqa: BLE001  # the request raises it, and the next one has its turn
            if not check.outcome.done():
                check.outcome.set_exception(error)
            return
        self._note(address, is_right=is_right)
        if not check.outcome.done():
            check.outcome.set_result(is_right)

    def _next(self) -> str:
        """Returns the address that has the next turn."""
        return min(self._waiting, key=self._rank)  # the first of several

    def _rank(self, address: str) -> _Rank:
        now_ms = self._clock.monotonic_ms()
        failed_ms, right_ms = self._failed.get(address), self._right.get(address)
        if failed_ms is not None and now_ms - failed_ms < FAILED_MS:
            return _Rank.GUESSES
        return _Rank.RIGHT if right_ms is not None and now_ms - right_ms < RIGHT_MS else _Rank.UNKNOWN

    def _note(self, address: str, *, is_right: bool) -> None:
        """Remembers what an address has given: after a wrong password the right ones before it count no more."""
        if not is_right:
            self._right.pop(address, None)
        noted, most = (self._right, MOST_RIGHT) if is_right else (self._failed, self._most_failed)
        noted[address] = self._clock.monotonic_ms()
        noted.move_to_end(address)
        if len(noted) > most:
            noted.popitem(last=False)


def _is_password(password: bytes, hashed: bytes) -> bool:
    return bcrypt.checkpw(password, hashed)


def _network(address: str) -> str:
    """Returns the part of an address that one machine has to itself."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), _NETWORK), strict=False))


def _busy(why: str) -> BusyError:
    return BusyError(why, _AGAIN)
