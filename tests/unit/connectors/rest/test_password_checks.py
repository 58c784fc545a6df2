"""Whose password is checked next: addresses take turns, and those that have guessed wrong come last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

import pytest

from connectors.errors import BusyError
from connectors.rest.password_checks import (
    CHECKS_OF_ADDRESS,
    CHECKS_OF_NAME,
    FAILED_MS,
    MOST_WAITING,
    RIGHT_MS,
    PasswordChecks,
)
from tests.support.clocks import ManualClock

RIGHT = b"right"
WAIT_S = 30.0


class Checked:
    """Tells right passwords, and keeps those that were asked for in their order."""

    def __init__(self) -> None:
        self.passwords: list[bytes] = []

    def __call__(self, password: bytes, _: bytes) -> bool:
        """Is a check."""
        self.passwords.append(password)
        return password == RIGHT


def run(scenario: Callable[[PasswordChecks, Checked], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Runs a scenario on an event loop, with checks that take next to no time."""

    async def begin() -> None:
        checked = Checked()
        await scenario(PasswordChecks(WAIT_S, is_password=checked, **settings), checked)

    asyncio.run(begin())


async def fail(checks: PasswordChecks, *addresses: str) -> None:
    """Has each address give a wrong password."""
    for address in addresses:
        assert not await checks.is_right(address, "eve", b"wrong", b"")


def begun(checks: PasswordChecks, address: str, password: bytes, name: str = "ann") -> asyncio.Task[bool]:
    return asyncio.create_task(checks.is_right(address, name, password, b""))


async def refusals(tasks: list[asyncio.Task[bool]]) -> list[int]:
    """Returns the numbers of those that were refused."""
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    return [number for number, outcome in enumerate(outcomes) if isinstance(outcome, BusyError)]


def test_addresses_take_turns() -> None:
    """However many checks one has."""

    async def scenario(checks: PasswordChecks, checked: Checked) -> None:
        own = [(f"a{number}".encode(), "10.0.0.1") for number in range(4)]
        other = [(f"b{number}".encode(), "10.0.0.2") for number in range(2)]
        tasks = [begun(checks, address, password) for password, address in (*own, *other)]
        await asyncio.gather(*tasks)
        assert checked.passwords == [b"a0", b"b0", b"a1", b"b1", b"a2", b"a3"]

    run(scenario)


def test_who_has_guessed_wrong_comes_last() -> None:
    """Of as many addresses as there are places, with whatever names."""

    async def scenario(checks: PasswordChecks, checked: Checked) -> None:
        guessers = [f"10.0.0.{number}" for number in range(MOST_WAITING - 1)]
        await fail(checks, *guessers)
        checked.passwords.clear()
        tasks = [begun(checks, address, b"guess", f"n{address}") for address in guessers]
        tasks.append(begun(checks, "10.0.1.1", RIGHT))
        await asyncio.gather(*tasks)
        assert checked.passwords.index(RIGHT) == 0
        assert tasks[-1].result()

    run(scenario)


def test_a_place_is_made_for_who_has_not_guessed_wrong() -> None:
    """The one that has most gives its last; one more guess is refused, and so is anyone if none has guessed wrong."""

    async def scenario(checks: PasswordChecks, _: Checked) -> None:
        await fail(checks, "10.0.0.1", "10.0.0.2")
        places = ["10.0.0.1"] * 6 + ["10.0.0.2"] * 5 + [f"10.0.1.{number}" for number in range(MOST_WAITING - 11)]
        tasks = [begun(checks, address, RIGHT, str(number)) for number, address in enumerate(places)]
        tasks += [begun(checks, "10.0.0.2", RIGHT, "one more"), begun(checks, "10.0.2.1", RIGHT)]
        assert await refusals(tasks) == [5, MOST_WAITING]
        full = [begun(checks, f"10.0.3.{number}", RIGHT) for number in range(MOST_WAITING + 1)]
        assert await refusals(full) == [MOST_WAITING]

    run(scenario)


def test_addresses_that_nobody_knows_keep_none_out_that_has_logged_in() -> None:
    """It has a place and the next turn, until it gives a wrong password, or for a week."""
    clock = ManualClock()

    async def scenario(checks: PasswordChecks, checked: Checked) -> None:
        async def is_kept_out(address: str, number: int) -> bool:
            """Returns whether all places are taken by addresses that nobody knows; otherwise it is checked first."""
            checked.passwords.clear()
            tasks = [begun(checks, f"10.{number}.0.{each}", b"guess", f"n{each}") for each in range(MOST_WAITING)]
            refused = await refusals([*tasks, begun(checks, address, RIGHT)])
            assert len(refused) == 1
            assert refused == [MOST_WAITING] or checked.passwords[0] == RIGHT
            return refused == [MOST_WAITING]

        assert await is_kept_out("10.0.0.1", 1)
        assert await checks.is_right("10.0.0.1", "ann", RIGHT, b"")
        assert not await is_kept_out("10.0.0.1", 2)
        clock.advance(RIGHT_MS)
        assert await is_kept_out("10.0.0.1", 3)
        assert await checks.is_right("10.0.0.1", "ann", RIGHT, b"")
        await fail(checks, "10.0.0.1")
        clock.advance(FAILED_MS)
        assert await is_kept_out("10.0.0.1", 4)

    run(scenario, clock=clock)


def test_an_address_and_a_name_have_a_part_of_the_places() -> None:
    """Other users of a proxy are let in while one is guessed for."""

    async def scenario(checks: PasswordChecks, _: Checked) -> None:
        for_ann = [begun(checks, "10.0.0.1", b"guess") for _ in range(CHECKS_OF_NAME + 1)]
        others = [begun(checks, "10.0.0.1", RIGHT, f"n{number}") for number in range(CHECKS_OF_ADDRESS)]
        assert await refusals([*for_ann, *others]) == [
            CHECKS_OF_NAME,
            *range(CHECKS_OF_ADDRESS + 1, CHECKS_OF_NAME + 1 + CHECKS_OF_ADDRESS),
        ]

    run(scenario)


@pytest.mark.parametrize(
    ("guesser", "other", "is_same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("", "unknown", False),
    ],
)
def test_addresses_of_one_machine_are_one(guesser: str, other: str, is_same: bool) -> None:
    """It has a whole network of IPv6."""

    async def scenario(checks: PasswordChecks, checked: Checked) -> None:
        await fail(checks, guesser)
        begin = [("10.9.9.9", b"first"), (other, b"second"), ("10.8.8.8", b"third")]
        await asyncio.gather(*(begun(checks, address, password) for address, password in begin))
        assert checked.passwords[1:] == (
            [b"first", b"third", b"second"] if is_same else [b"first", b"second", b"third"]
        )

    run(scenario)


def test_a_wrong_password_is_forgotten_after_a_while() -> None:
    """And so is that of an address that many others have come after."""
    clock, others = ManualClock(), count()

    async def order(checks: PasswordChecks, checked: Checked, address: str) -> bool:
        """Returns whether the address comes before one that has given none."""
        checked.passwords.clear()
        await asyncio.gather(begun(checks, address, b"own"), begun(checks, f"10.8.8.{next(others)}", RIGHT))
        return checked.passwords[0] == b"own"

    async def scenario(checks: PasswordChecks, checked: Checked) -> None:
        await fail(checks, "10.0.0.1", "10.0.0.2")
        assert not await order(checks, checked, "10.0.0.2")
        await fail(checks, "10.0.0.3", "10.0.0.4")
        assert await order(checks, checked, "10.0.0.1")
        clock.advance(FAILED_MS)
        assert await order(checks, checked, "10.0.0.4")

    run(scenario, clock=clock, most_failed=3)


def test_a_check_that_breaks_ends_itself_alone() -> None:
    """Its request has the error, and the next one its turn."""

    def broken(password: bytes, _: bytes) -> bool:
        if password == b"break":
            raise ValueError
        return True

    async def scenario() -> None:
        checks = PasswordChecks(WAIT_S, is_password=broken)
        tasks = [begun(checks, "10.0.0.1", password) for password in (b"break", RIGHT)]
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(outcomes[0]), outcomes[1]] == [ValueError, True]

    asyncio.run(scenario())
