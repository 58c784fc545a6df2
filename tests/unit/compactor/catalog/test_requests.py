"""Requests to a live worker have one answer each."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from compactor.catalog import requests
from compactor.catalog.requests import Answer, Request
from compactor.errors import StorageError, StorageRefusedError
from compactor.storage.base import Storage
from compactor.storage.local import LocalStorage
from tests.support.memory.storage import FailingStorage, MemoryStorage
from tests.support.requests import leave


@pytest.fixture
def storage() -> Storage:
    return MemoryStorage()


def test_left_requests_are_pending_in_order(storage: Storage) -> None:
    """The worker sees what was asked, the oldest first, whole or for one partition."""
    later = leave(storage, "clean", 1000, "t", 3)
    earlier = leave(storage, "snapshot", 999)
    assert requests.pending(storage, 1) == (earlier, later)
    assert (later.kind, later.topic, later.partition, later.asked_ms) == ("clean", "t", 3, 1000)


def test_answer_reaches_the_asker(storage: Storage) -> None:
    """An answered request is no longer pending, and the asker reads the answer as it was given."""
    asked = leave(storage, "snapshot", 1)
    assert requests.answered(storage, asked.id) is None
    given = Answer(ok=True, message="done", result={"records": 10, "id": "x"})
    assert requests.answer(storage, asked.id, given)
    assert requests.answered(storage, asked.id) == given
    assert requests.pending(storage, 1) == ()


def test_first_answer_stays(storage: Storage) -> None:
    """Worker and asker may both answer; the first one counts, and the other is told."""
    asked = leave(storage, "clean", 1)
    assert requests.withdraw(storage, asked.id)
    assert not requests.answer(storage, asked.id, Answer(ok=True))
    assert requests.pending(storage, 1) == ()
    assert requests.answered(storage, asked.id) == Answer(ok=False, message="The request was withdrawn.")


def test_who_was_first_says_whether_a_request_is_carried_out(storage: Storage) -> None:
    """What its asker has taken back is never begun; what a worker has begun is not taken back."""
    back, begun = (leave(storage, "clean", 1) for _ in range(2))
    assert requests.withdraw(storage, back.id)
    assert not requests.begin(storage, back.id)
    assert requests.begin(storage, begun.id)
    assert not requests.withdraw(storage, begun.id)
    assert requests.answered(storage, begun.id) is None


def test_what_a_dead_worker_had_begun_is_carried_out_by_the_next(storage: Storage) -> None:
    """It has no answer, and its asker still waits."""
    asked = leave(storage, "clean", 1)
    assert requests.begin(storage, asked.id)
    assert requests.begin(storage, asked.id)


def test_an_asker_who_dies_while_he_takes_it_back_has_taken_it_back(storage: Storage) -> None:
    """The file that says who was first is enough; whoever meets the request writes its answer."""
    asked = leave(storage, "clean", 1)
    requests.withdraw(storage, asked.id)
    storage.delete(f"requests/{asked.id}.done.json")
    assert requests.pending(storage, 1) == (asked,)
    assert not requests.begin(storage, asked.id)
    assert requests.pending(storage, 1) == ()


def test_nobody_carries_out_what_nobody_waits_for(storage: Storage) -> None:
    """An asker who was killed took nothing back: his request goes once its time is over, with room for his clock."""
    asked = leave(storage, "clean", 1, until_ms=60_000)
    assert requests.pending(storage, 60_000 + requests.GRACE_MS) == (asked,)
    assert requests.pending(storage, 60_001 + requests.GRACE_MS) == ()
    answer = requests.answered(storage, asked.id)
    assert answer is not None
    assert "withdrawn" in answer.message


@pytest.mark.parametrize("since", ["the list", "after it"])
def test_what_has_begun_is_not_withdrawn_when_its_time_is_over(storage: Storage, since: str) -> None:
    """It takes longer than its asker waits: the answer says what came of it."""
    shown = FailingStorage(storage)
    asked = leave(storage, "clean", 1, until_ms=60_000)
    if since == "after it":
        shown.freeze(requests.FOLDER)
    assert requests.begin(storage, asked.id)
    assert requests.pending(shown, 60_001 + requests.GRACE_MS) == (asked,)
    given = Answer(ok=True, message="done")
    assert requests.answer(storage, asked.id, given)
    assert requests.answered(storage, asked.id) == given


NESTED = b'{"id":"x","kind":"clean","asked_ms":1,"more":' + b"[" * 50_000
ANOTHERS = b'{"id":"y","kind":"snapshot","asked_ms":1}'


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"id":1}', NESTED, ANOTHERS], ids=range(6))
def test_damaged_request_is_answered_so(storage: Storage, content: bytes) -> None:
    """What is no request stops nobody: it is answered with its path, and the others are carried out."""
    storage.write("requests/x.json", content)
    asked = leave(storage, "clean", 1)
    assert requests.pending(storage, 1) == (asked,)
    answer = requests.answered(storage, "x")
    assert answer is not None
    assert not answer.ok
    assert "requests/x.json is no request" in answer.message


@pytest.mark.parametrize("other", ["y", "y" * 300, "../../y", "y\0"], ids=range(4))
def test_the_id_of_another_request_leads_nowhere(storage: Storage, other: str) -> None:
    """It is carried out once or not at all: answered by its file's name, it waits no more."""
    storage.write("requests/x.json", msgspec.json.encode(Request(id=other, kind="snapshot", asked_ms=1)))
    assert requests.pending(storage, 1) == ()
    assert not requests.is_any_pending(storage)
    assert storage.list("requests") == ["x.done.json", "x.json"]


@pytest.mark.parametrize("name", ["y" * 248, "y z", "²"], ids=range(3))
def test_a_file_with_another_name_is_no_request(tmp_path: Path, name: str) -> None:
    """With a longer ending it could not be answered."""
    storage = LocalStorage(str(tmp_path))
    storage.write(f"requests/{name}.json", b"{}")
    assert not requests.is_any_pending(storage)
    assert requests.pending(storage, 1) == ()


def _too_large(file: Path) -> None:
    with file.open("wb") as content:
        content.truncate(1 << 40)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, _too_large])
def test_what_is_no_request_is_answered_so(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """No run ends because of it, and none waits for it; in place of the file that begins a request neither."""
    storage = LocalStorage(str(tmp_path))
    asked, begun = (leave(storage, "clean", number) for number in (1, 2))
    make(tmp_path / "requests/x.json")
    make(tmp_path / f"requests/{begun.id}.begun.json")
    assert requests.pending(storage, 1) == (asked, begun)
    assert not requests.begin(storage, begun.id)
    for name in ("x", begun.id):
        answer = requests.answered(storage, name)
        assert answer is not None
        assert (answer.ok, f"requests/{name}" in answer.message) == (False, True)
    assert requests.pending(storage, 1) == (asked,)


def test_of_a_request_that_cannot_be_read_now_nothing_waits() -> None:
    """It may be readable at the next look; one that may not be read is answered so."""
    storage = FailingStorage(MemoryStorage())
    first, second, third = (leave(storage, "clean", number) for number in (1, 2, 3))
    storage.before("read", Mock(side_effect=StorageError("Not now.")), first.id)
    storage.before("read", Mock(side_effect=StorageRefusedError("Refused.")), second.id)
    assert requests.pending(storage, 1) == (third,)
    assert requests.pending(storage, 1) == (first, third)
    answer = requests.answered(storage, second.id)
    assert answer is not None
    assert (answer.ok, answer.message) == (False, "Refused.")


@pytest.mark.parametrize("content", [b"{", b'{"ok":true,"more":' + b"[" * 50_000], ids=range(2))
def test_damaged_answer_is_told(storage: Storage, content: bytes) -> None:
    """An answer that cannot be read ends the waiting."""
    asked = leave(storage, "clean", 1)
    storage.write(f"requests/{asked.id}.done.json", content)
    answer = requests.answered(storage, asked.id)
    assert answer is not None
    assert not answer.ok


def test_that_any_waits_is_known_without_reading_it(storage: Storage) -> None:
    """From the list of names alone, until each is answered."""
    assert not requests.is_any_pending(storage)
    asked = [leave(storage, "clean", number) for number in (1, 2)]
    for one in asked:
        assert requests.is_any_pending(storage)
        requests.begin(storage, one.id)
        assert requests.is_any_pending(storage)
        requests.answer(storage, one.id, Answer(ok=True))
    assert not requests.is_any_pending(storage)
