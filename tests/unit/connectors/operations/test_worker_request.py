"""A command that asks a worker waits as long as it was told, and leaves nothing behind that runs later."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compactor.catalog import requests
from compactor.catalog.owner_lock import OwnerLock, is_alive, this_process
from compactor.catalog.requests import Answer, Request
from compactor.errors import FencedError, KeyfoldError
from connectors.errors import EXIT_FAILED, EXIT_UNREACHABLE, UnreachableError, exit_code
from connectors.operations.request_timeout import RequestTimeout
from connectors.operations.worker_request import POLL_MS, Here, answered
from connectors.runtime.request_handler import CLEAN
from tests.support.cli import connector_file, invoke, storage_of, worker_file
from tests.support.clocks import ManualClock
from tests.support.memory.storage import MemoryStorage

NOW = 1_000_000


class Asker:
    """Asks; `meanwhile` is what happens at its first look for the answer."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.clock = ManualClock(NOW)
        self.told: list[str] = []
        self.lock = OwnerLock(self.storage)
        self.lock.claim(this_process(3))

    def ask(
        self, meanwhile: Callable[[str], object], seconds: float = 60, here: Here | None = None, **more: bool
    ) -> dict[str, Any]:
        sleep = self.clock.sleep_ms

        def noted(ms: int) -> None:
            for one in requests.pending(self.storage, self.clock.now_ms()):
                meanwhile(one.id)
            sleep(ms)

        self.clock.sleep_ms = noted  # type: ignore[method-assign]
        wanted = Request(id="", kind=CLEAN, asked_ms=NOW, topic="t", partition=1)
        timeout = RequestTimeout(seconds, self.told.append)
        return answered(self.storage, "c", wanted, timeout, here or _not_here, self.clock, **more)

    def left(self) -> tuple[Request, ...]:
        """What a worker would still carry out."""
        return requests.pending(self.storage, self.clock.now_ms())


def _not_here(*_: object) -> dict[str, Any]:
    pytest.fail("It was carried out here, though a worker holds the lock.")


@pytest.fixture
def asker() -> Asker:
    return Asker()


def _interrupt(_: str) -> None:
    raise KeyboardInterrupt


def test_the_answer_is_what_the_worker_gave(asker: Asker) -> None:
    """Said on the way: which worker is waited for, what for, and how long at most."""
    given = Answer(ok=True, result={"logs": []})
    assert asker.ask(lambda one: requests.answer(asker.storage, one, given)) == {"logs": []}
    assert len(asker.told) == 1
    for part in ("worker of connector c", str(this_process()), "to clean", "60 s", "--timeout"):
        assert part in asker.told[0]


@pytest.mark.parametrize(("unreachable", "code"), [(True, EXIT_UNREACHABLE), (False, EXIT_FAILED)])
def test_what_the_worker_refuses_is_told_in_its_words(asker: Asker, *, unreachable: bool, code: int) -> None:
    """Message and action; the exit code is 4 where brokers or storage did not answer it."""
    given = Answer(ok=False, message="Away.", action="Wait.", unreachable=unreachable)
    with pytest.raises(KeyfoldError, match=r"Away\.") as caught:
        asker.ask(lambda one: requests.answer(asker.storage, one, given))
    assert (caught.value.action, exit_code(caught.value)) == ("Wait.", code)


def test_who_has_waited_long_enough_takes_the_request_back(asker: Asker) -> None:
    """After --timeout, not sooner, not later; neither this worker nor the next carries it out."""
    with pytest.raises(UnreachableError, match=r"did not answer `clean` in 5 s.*was taken back") as caught:
        asker.ask(lambda _: None, seconds=5)
    assert 5_000 <= asker.clock.now_ms() - NOW <= 5_000 + POLL_MS * 2
    assert "--timeout" in caught.value.action
    assert asker.left() == ()


@pytest.mark.parametrize("ends", [False, True])
def test_if_the_worker_was_killed_the_command_takes_over_itself(asker: Asker, *, ends: bool) -> None:
    """On a store its lock stands for a while: it does not answer, and then the lock is free."""
    held: list[bool] = []

    def here(_: Request, lock: OwnerLock) -> dict[str, Any]:
        held.append(lock.is_held())
        return {"logs": ["here"]}

    def work(_: str) -> None:
        if ends:
            asker.lock.release()

    if ends:
        assert asker.ask(work, seconds=5, here=here) == {"logs": ["here"]}
        assert held == [True]
        assert not is_alive(asker.storage)
    else:
        with pytest.raises(UnreachableError):
            asker.ask(work, seconds=5, here=here)
        assert held == []


@pytest.mark.parametrize("may_be_done_twice", [True, False])
def test_a_worker_that_starts_meanwhile_is_asked(asker: Asker, *, may_be_done_twice: bool) -> None:
    """It fences the command, which has begun before; what must not be done twice ends there."""
    asker.lock.release()

    def fenced(_: Request, lock: OwnerLock) -> dict[str, Any]:
        assert lock.is_held()
        raise FencedError("Connector c: a newer owner took it over; ours is 3.", "Leave it.")

    def work(left: str) -> None:
        assert asker.lock.claim(this_process(4))
        requests.answer(asker.storage, left, Answer(ok=True, result={"logs": ["there"]}))

    if may_be_done_twice:
        assert asker.ask(work, here=fenced, asks_new_owner=True) == {"logs": ["there"]}
        assert "Waiting for the worker of connector c" in asker.told[0]
    else:
        with pytest.raises(FencedError):
            asker.ask(work, here=fenced)
        assert asker.told == []


def test_what_the_worker_has_begun_goes_on(asker: Asker) -> None:
    """Whoever waits no longer is told so; the worker may still answer."""
    with pytest.raises(UnreachableError, match="has begun it, and goes on with `clean`"):
        asker.ask(lambda one: requests.begin(asker.storage, one), seconds=5)
    (begun,) = asker.left()
    assert requests.answer(asker.storage, begun.id, Answer(ok=True))


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (_interrupt, KeyboardInterrupt),
        (lambda _: os.kill(os.getpid(), signal.SIGTERM), SystemExit),
        (lambda _: os.kill(os.getpid(), signal.SIGHUP), SystemExit),
    ],
)
def test_however_a_command_ends_it_takes_its_request_back(
    asker: Asker, end: Callable[[str], None], error: type[BaseException]
) -> None:
    """Ctrl-C, SIGTERM, a terminal that is closed: and it says so."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(error):
        asker.ask(end)
    assert asker.left() == ()
    assert "taken back" in asker.told[-1]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_request_says_how_long_somebody_waits(asker: Asker) -> None:
    """So the worker drops what a killed command has left."""
    seen: list[Request] = []

    def look(one: str) -> None:
        seen.extend(asker.left())
        requests.answer(asker.storage, one, Answer(ok=True))

    asker.ask(look, seconds=7)
    assert (seen[0].until_ms, seen[0].topic, seen[0].partition) == (NOW + 7_000, "t", 1)


def test_restart_needs_a_worker(tmp_path: Path) -> None:
    """Exit code 2, what to do instead, and nothing is made."""
    files = connector_file(tmp_path), worker_file(tmp_path)
    shown = invoke("restart", files[0], "--worker", files[1])
    assert (shown.exit_code, "No worker runs connector" in shown.stderr) == (2, True)
    assert "keyfold run" in shown.stderr
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (Answer(ok=True, result={"state": "RUNNING"}), 0, "is RUNNING"),
        (Answer(ok=False, message="Connector orders-keeper is FAILED: Away."), 1, "is FAILED: Away."),
    ],
)
def test_restart_says_what_came_of_it(tmp_path: Path, answer: Answer, code: int, said: str) -> None:
    """It runs again, or FAILED again, with the error; what is waited for stands on stderr."""
    files, storage = (connector_file(tmp_path), worker_file(tmp_path)), storage_of(tmp_path)
    lock, over = OwnerLock(storage), threading.Event()
    lock.claim(this_process(1))

    def work() -> None:
        while not over.wait(0.05):
            for one in requests.pending(storage, 0):
                requests.answer(storage, one.id, answer)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        shown = invoke("restart", files[0], "--worker", files[1], "--timeout", "30")
    finally:
        over.set()
        worker.join()
        lock.release()
    assert (shown.exit_code, said in shown.output) == (code, True)
    assert "to restart, 30 s at most" in shown.stderr
