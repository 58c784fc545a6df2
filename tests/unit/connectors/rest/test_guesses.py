"""Who guesses passwords keeps out nobody: not who comes from elsewhere, and not who was let in before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import bcrypt
import httpx
import pytest

from connectors.rest.password_checks import MOST_WAITING
from tests.support.kafka import wait_until
from tests.support.rest import RestWorker, message, rest_worker

GUESSERS = MOST_WAITING + 8
"""More than there are places for checks of passwords."""
TRIES = 3
ELSEWHERE = "127.0.0.2"
COST = 8
"""Of the hashes: a check takes some 15 ms, so that all places are taken most of the time."""
PAUSE_S = 0.02
"""After this a client that was refused comes again: with no pause, clients take the processors from what they ask."""
LATE_S = 30.0


def _line(name: str, password: str) -> str:
    return f"{name}:{bcrypt.hashpw(password.encode(), bcrypt.gensalt(COST)).decode()}:admin\n"


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """Of `ann` and `bob`, each with the name as password."""
    path = tmp_path / "users"
    path.write_text(_line("ann", "ann") + _line("bob", "bob"))
    return path


@pytest.fixture
def secured(tmp_path: Path, users: Path) -> Iterator[RestWorker]:
    with rest_worker(tmp_path, **{"rest.auth": "basic", "rest.auth.users.file": str(users)}) as made:
        yield made


@contextmanager
def guessing(
    worker: RestWorker, name: Callable[[int], str], address: str = "127.0.0.1"
) -> Iterator[list[httpx.Response]]:
    """Has many clients guess during the block, of which each takes the name, and comes from the address, of its number.

    Yields their refusals.
    """
    over, all_known, refused, known = threading.Event(), threading.Event(), list[httpx.Response](), set[int]()

    def guess(number: int) -> None:
        place = httpx.HTTPTransport(verify=False, local_address=address.format(number + 1))
        login = (name(number), "guess")
        with httpx.Client(base_url=worker.url, auth=login, timeout=LATE_S, transport=place) as client:
            while not over.is_set():
                answer = client.get("/connectors")
                assert answer.status_code in (401, 503), answer
                if answer.status_code == 503:
                    refused.append(answer)
                    over.wait(PAUSE_S)
                else:
                    known.add(number)
                    all_known.wait(LATE_S)  # so that it takes no place from those that are not known yet

    with ThreadPoolExecutor(GUESSERS) as pool:
        guesses = [pool.submit(guess, number) for number in range(GUESSERS)]
        try:
            # Until then an address has given no wrong password yet, and comes before none.
            wait_until(lambda: len(known) == GUESSERS, "each address is known to guess")
            refused.clear()
            all_known.set()
            wait_until(lambda: len(refused) > GUESSERS, "no place is left")
            yield refused
        finally:
            over.set()
            all_known.set()
        for each in guesses:
            each.result()


def _asked_from_elsewhere(worker: RestWorker, name: str) -> int:
    transport = httpx.HTTPTransport(verify=False, local_address=ELSEWHERE)
    with httpx.Client(base_url=worker.url, auth=(name, name), timeout=LATE_S, transport=transport) as client:
        return client.get("/connectors").status_code


@pytest.mark.parametrize(
    ("name", "address"),
    [
        pytest.param("ann", "127.0.0.1", id="ann-one address"),
        pytest.param("eve{}", "127.0.1.{}", id="eve{}-many addresses"),
        pytest.param("ann", "127.0.1.{}", id="ann-many addresses", marks=pytest.mark.long),
        pytest.param("eve{}", "127.0.0.1", id="eve{}-one address", marks=pytest.mark.long),
    ],
)
def test_who_comes_from_elsewhere_is_let_in(secured: RestWorker, users: Path, name: str, address: str) -> None:
    """Whatever names are guessed for, the own one too; each time a password that was not checked before."""
    with guessing(secured, name.format, address) as refused:
        for number in range(TRIES):
            users.write_text(_line("ann", "ann") + _line(f"user{number}", f"user{number}"))
            assert _asked_from_elsewhere(secured, "ann") == 200
            assert _asked_from_elsewhere(secured, f"user{number}") == 200
    assert "a password that was right is not checked again" in message(refused[0])
    assert int(refused[0].headers["Retry-After"]) > 0


def test_other_users_of_a_proxy_are_let_in(secured: RestWorker, users: Path) -> None:
    """All come from its address; the guesses for one name leave room there."""
    with guessing(secured, lambda _: "ann"):
        for number in range(TRIES):
            users.write_text(_line("ann", "ann") + _line("bob", "bob") + f"# {number}\n")
            assert secured.ask("GET", "/connectors", auth=("bob", "bob"), timeout=LATE_S).status_code == 200


def test_who_was_let_in_stays_so_while_the_own_line_does(secured: RestWorker, users: Path) -> None:
    """Another user's line changes, and the passwords of all would be checked again behind the guesses."""
    assert secured.ask("GET", "/connectors", auth=("bob", "bob")).status_code == 200
    line = users.read_text().splitlines(keepends=True)[1]
    with guessing(secured, "eve{}".format):
        for number in range(TRIES):
            users.write_text(_line("ann", f"new{number}") + line)
            assert secured.ask("GET", "/connectors", auth=("bob", "bob")).status_code == 200
    users.write_text(_line("ann", "ann") + line.replace(":admin", ":viewer"))
    assert secured.ask("PUT", "/connectors/a/pause", auth=("bob", "bob")).status_code == 403
    users.write_text(_line("ann", "ann") + _line("bob", "other"))
    assert secured.ask("GET", "/connectors", auth=("bob", "bob")).status_code == 401
