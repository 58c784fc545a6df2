"""The planner process's questions to the driver, over a real socket."""

from __future__ import annotations

import errno
import pickle
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import AuthenticationError, process
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from connectors.errors import SparkGoneError
from connectors.source.assignment import PortionSplit, ReadTask
from connectors.source.datasource import Address, DriverAnswers
from connectors.source.driver_link import DriverLink
from connectors.source.plan import SourceRange
from tests.support.kafka import wait_until
from tests.support.source_options import source_options

TIMEOUT_S = 30.0


class Plans:
    """A driver whose micro-batches are a test's."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.held = threading.Event()
        self.held.set()
        self.asked = threading.Event()
        options = source_options(topics=["t"])
        split = (SourceRange("t", "id", 0, 2, 5),)
        self.task = ReadTask((PortionSplit(7, options, split, options.clients),), bounded=True)

    def begin(self) -> int:
        return 4

    def latest(self, start: int) -> int:
        self.asked.set()
        assert self.held.wait(TIMEOUT_S)
        if self.error is not None:
            raise self.error
        return start + 1

    def tasks(self, start: int, end: int) -> list[ReadTask]:
        return [self.task] * (end - start)


@pytest.fixture
def plans() -> Plans:
    return Plans()


@pytest.fixture
def link(plans: Plans) -> Iterator[DriverLink]:
    found = DriverLink(cast("Any", plans))
    found.open()
    yield found
    found.close()


def test_questions_are_answered(link: DriverLink, plans: Plans) -> None:
    """The planner gets numbers and tasks as if it were in the driver, as often as it asks."""
    driver = DriverAnswers(link.address)
    assert (driver.ask("begin"), driver.ask("latest", 8), driver.ask("latest", 9)) == (4, 9, 10)
    found = [pickle.loads(task) for task in driver.ask("tasks", 1, 3)]
    assert [(one.portion, one.ranges) for task in found for one in task.portions] == [
        (one.portion, one.ranges) for one in plans.task.portions * 2
    ]
    assert driver.ask("tasks", 3, 3) == []


def test_an_error_of_the_driver_fails_the_query(link: DriverLink, plans: Plans) -> None:
    """It is raised in the planner process; the connection can still be used."""
    driver = DriverAnswers(link.address)
    plans.error = ValueError("no plan")
    with pytest.raises(RuntimeError, match="ValueError: no plan"):
        driver.ask("latest", 1)
    plans.error = None
    assert driver.ask("latest", 1) == 2


def test_whoever_does_not_know_the_key_is_refused(link: DriverLink) -> None:
    """Other processes of this account may see the socket; the next one with the key is served."""
    for _ in range(2):
        with pytest.raises((AuthenticationError, EOFError, OSError)):
            _ = DriverAnswers(Address(link.address.path, "guessed")).ask("begin")
    assert DriverAnswers(link.address).ask("begin") == 4


def test_a_key_is_not_shown(link: DriverLink) -> None:
    """Addresses stand in logs and errors, and travel."""
    assert link.address.key not in repr(link.address)
    assert pickle.loads(pickle.dumps(link.address)) == link.address


def test_one_that_waits_holds_up_no_other(link: DriverLink, plans: Plans) -> None:
    """A query that was started again asks while its predecessor's question is still waiting."""
    plans.held.clear()
    answers: list[int] = []
    waits = threading.Thread(target=lambda: answers.append(DriverAnswers(link.address).ask("latest", 1)))
    waits.start()
    assert plans.asked.wait(TIMEOUT_S)
    assert DriverAnswers(link.address).ask("begin") == 4
    assert not answers
    plans.held.set()
    waits.join(TIMEOUT_S)
    assert answers == [2]


def test_a_planner_that_freezes_before_it_has_proved_itself_holds_up_no_other(link: DriverLink) -> None:
    """It is connected and answers nothing: the next query's planner is served all the same."""
    with socket.socket(socket.AF_UNIX) as frozen:
        frozen.connect(link.address.path)
        assert DriverAnswers(link.address).ask("begin") == 4


def test_where_no_socket_can_be_made_it_says_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A name of a Unix socket is short; below a long TMPDIR there is none."""
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    monkeypatch.setattr(process.current_process(), "_config", {})  # where multiprocessing keeps the folder it has made
    with pytest.raises(SparkGoneError, match=str(long)) as raised:
        DriverLink(cast("Any", Plans()))
    assert "TMPDIR" in raised.value.action


def test_a_planner_that_cannot_be_let_in_costs_no_other(link: DriverLink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a file or a thread left, it goes on once there is one, and does not spin until then."""
    failing = Mock(side_effect=OSError(errno.EMFILE, "too many open files"))
    accept = link._listener.accept
    monkeypatch.setattr(link._listener, "accept", failing)
    with suppress(EOFError, ConnectionError):  # the thread waits in the real one until now
        DriverAnswers(link.address)
    wait_until(lambda: failing.call_count >= 2, "it tries again", TIMEOUT_S)
    assert failing.call_count < 20
    monkeypatch.setattr(link._listener, "accept", accept)
    assert DriverAnswers(link.address).ask("begin") == 4


def test_a_planner_that_has_ended_ends_its_thread(link: DriverLink) -> None:
    """Queries that fail over and over leave nothing behind."""
    before = set(threading.enumerate())
    driver = DriverAnswers(link.address)
    assert driver.ask("begin") == 4
    (serving,) = [one for one in threading.enumerate() if one.name == "driver-link-planner" and one not in before]
    driver._connection.close()
    serving.join(TIMEOUT_S)
    assert not serving.is_alive()


@pytest.mark.parametrize("opened", [True, False])
def test_after_the_end_nobody_is_served(plans: Plans, *, opened: bool) -> None:
    """The end waits for nothing, also if it was never opened."""
    link = DriverLink(cast("Any", plans))
    if opened:
        link.open()
    closing = threading.Thread(target=link.close, daemon=True)
    closing.start()
    closing.join(TIMEOUT_S)
    assert not closing.is_alive()
    assert not link._accepting.is_alive()
    with pytest.raises(OSError):  # noqa: PT011  # the socket is gone
        DriverAnswers(link.address)
