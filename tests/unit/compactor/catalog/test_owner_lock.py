"""The lock tells whether a worker lives; it decides nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from compactor.catalog.owner_lock import NAME, PROCESS, Owner, OwnerLock, is_alive, live_owner, this_process
from compactor.storage.base import Storage
from compactor.storage.local import LocalStorage
from tests.support.memory.storage import MemoryStorage


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return LocalStorage(str(tmp_path)) if request.param == "local" else MemoryStorage()


def test_nobody_lives(storage: Storage) -> None:
    """Without a lock nobody lives, and asking makes no file."""
    assert live_owner(storage) is None
    assert not is_alive(storage)
    assert storage.walk("") == []


def test_holder_says_who_it_is(storage: Storage) -> None:
    """The lock names host, process and epoch, also of a later epoch; released, nobody lives."""
    lock = OwnerLock(storage)
    assert lock.claim(Owner(host="a-long-host-name", pid=123456, epoch=1))
    assert lock.claim(Owner(host="h", pid=7, epoch=2))
    assert live_owner(storage) == Owner(host="h", pid=7, epoch=2)
    assert is_alive(storage)
    lock.release()
    lock.release()
    assert not is_alive(storage)


def test_second_claim_waits_for_the_first_to_end(storage: Storage) -> None:
    """Another worker does not get the lock while it is held, and gets it by claiming again afterwards."""
    first, second = OwnerLock(storage), OwnerLock(storage)
    assert first.claim(this_process(1))
    assert not second.claim(this_process(2))
    assert live_owner(storage) == this_process(1)
    first.release()
    assert second.claim(this_process(2))
    assert live_owner(storage) == this_process(2)
    second.release()


@pytest.mark.parametrize("told", [b"", b"{", b"\xff"])
def test_holder_that_has_not_said_who_it_is(storage: Storage, told: bytes) -> None:
    """A lock with nothing readable in it is held all the same."""
    lock = storage.lock(NAME)
    assert lock is not None
    lock.write(told)
    assert live_owner(storage) == Owner(host="?", pid=0)
    lock.release()


def test_owner_as_text() -> None:
    """An owner shows as host and process, as take_over asks for."""
    assert str(Owner(host="h", pid=7, epoch=3)) == "h:7"
    assert this_process(4) == Owner(host=this_process().host, pid=os.getpid(), epoch=4, process=PROCESS)


def _hold(root: str, held: Event) -> None:
    lock = OwnerLock(LocalStorage(root))
    assert lock.claim(this_process(1))
    held.set()
    signal.pause()


def test_lock_ends_with_a_killed_process(tmp_path: Path) -> None:
    """A worker that is killed no longer lives, whatever its file still says."""
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    worker = context.Process(target=_hold, args=(str(tmp_path), held))
    worker.start()
    assert held.wait(30)
    owner = live_owner(LocalStorage(str(tmp_path)))
    assert owner is not None
    assert owner.pid == worker.pid
    worker.kill()
    worker.join(30)
    assert not is_alive(LocalStorage(str(tmp_path)))
    assert (tmp_path / NAME).read_bytes()


def test_a_lock_whose_file_is_another_now_is_taken_again(tmp_path: Path) -> None:
    """A disk that was away, or a folder that was restored: what is held there is nothing that a command sees."""
    storage = LocalStorage(str(tmp_path / "store"))
    lock = OwnerLock(storage)
    assert lock.claim(this_process(1))
    (tmp_path / "store").rename(tmp_path / "away")
    assert not is_alive(storage)
    assert lock.claim(this_process(1))
    assert live_owner(storage) == this_process(1)
    first = OwnerLock(LocalStorage(str(tmp_path / "away")))
    assert first.claim(this_process(2))
    first.release()
    lock.release()
    assert not is_alive(storage)
