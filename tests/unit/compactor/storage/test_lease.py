"""Leases are renewed while their holder lives, each by itself."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from compactor.errors import StorageError
from compactor.storage.lease import RENEWALS, Lease, LeaseRenewals, held_by
from compactor.storage.limits import StoreTimes
from compactor.storage.object_client import ObjectClient, ObjectInfo, ObjectState
from tests.support.kafka import wait_until
from tests.support.thread_limit import no_thread_named


class Client:
    """A store of locks, which counts how often each is written; it answers nothing more for those that are `stuck`."""

    def __init__(self) -> None:
        self.times = StoreTimes()
        self.written: Counter[str] = Counter()
        self.stuck: set[str] = set()
        self.refuses = False
        self.compares = True
        self.looks: list[ObjectState | None] = []
        """What the next looks at a lock find, whatever it is by then."""
        self.before_replace: Callable[[], object] | None = None
        self.after_create: Callable[[], object] | None = None
        """What happens once, before a write that compares or after one that need not."""
        self.ended = threading.Event()
        self.now_ms = 1_000_000
        self.held: dict[str, ObjectState] = {}
        self.contents: dict[str, bytes] = {}

    def state(self, key: str) -> ObjectState | None:
        if self.looks:
            return self.looks.pop()
        if key in self.stuck:
            self.ended.wait()
        if self.refuses:
            raise StorageError("Not now.")
        return self.held.get(key)

    def create(self, key: str, data: bytes, attributes: dict[str, str]) -> bool:
        if key in self.held and self.compares:
            return False
        self.put(key, data, attributes)
        if self.after_create is not None:
            self.after_create()
        return True

    def replace(self, key: str, data: bytes, attributes: dict[str, str], seen: ObjectState) -> bool:
        meanwhile, self.before_replace = self.before_replace, None
        if meanwhile is not None:
            meanwhile()
        if self.compares and self.held.get(key) != seen:
            return False
        self.put(key, data, attributes)
        return True

    def put(self, key: str, data: bytes, attributes: dict[str, str] | None = None) -> None:
        self.written[key] += 1
        self.contents[key] = data
        self.held[key] = ObjectState(attributes or {}, self.now_ms, secrets.token_hex(4))

    def head(self, key: str) -> ObjectInfo | None:
        return ObjectInfo(key, 0, self.held[key].modified_ms) if key in self.held else None

    def get(self, key: str, at_most: int) -> bytes:
        assert len(self.contents[key]) <= at_most
        return self.contents[key]

    def delete(self, keys: list[str]) -> None:
        for key in keys:
            self.held.pop(key, None)


@pytest.fixture
def client() -> Client:
    return Client()


def _taken(client: Any, key: str, renewals: LeaseRenewals = RENEWALS) -> Lease:
    found = Lease.take(cast("ObjectClient", client), key, renewals)
    assert found is not None
    return found


def test_a_store_that_does_not_answer_for_one_lease_renews_the_others() -> None:
    """Otherwise the connectors of a worker would seem dead, one after the other, as one of them waits."""
    client, renewals = Client(), LeaseRenewals(renew_s=0.01)
    held = [_taken(client, key, renewals) for key in ("a", "b")]
    try:
        client.stuck = {"a"}
        before = client.written["b"]
        wait_until(lambda: client.written["b"] > before + 3, "the other lease is renewed")
        renewing = [thread for thread in threading.enumerate() if thread.name == "storage-lease"]
        assert len(renewing) <= 2
    finally:
        client.stuck = set()
        client.ended.set()
        for one in held:
            one.release()


def test_a_renewal_that_fails_is_warned_of() -> None:
    """With the lock and why: others may take it."""
    client = Client()
    held = _taken(client, "a")
    try:
        client.refuses = True
        with capture_logs() as logs:
            held.renew()
        assert [(line["log_level"], line["lock"], line["error"]) for line in logs] == [("warning", "a", "Not now.")]
    finally:
        client.refuses = False
        held.release()


def held(client: Client) -> bytes | None:
    return held_by(cast("ObjectClient", client), "a")


def test_of_two_that_take_a_lock_at_once_one_has_it(client: Client) -> None:
    """Both have seen it absent, or over: the store compares, so the second to ask for it does not get it."""

    def take_where(seen: ObjectState | None) -> Lease | None:
        client.looks = [seen]
        return Lease.take(cast("ObjectClient", client), "a")

    first = take_where(None)
    assert first is not None
    assert take_where(None) is None
    client.now_ms += client.times.lease_ms + 1
    over = client.held["a"]
    second = take_where(over)
    assert second is not None
    assert take_where(over) is None
    assert (first.is_current(), second.is_current()) == (False, True)
    for one in (first, second):
        one.release()


def test_a_store_that_compares_nothing_lets_one_win_too(client: Client) -> None:
    """Who reads afterwards that another has written the lock has not taken it."""
    client.compares = False
    client.after_create = lambda: client.put("a", b"other", {"keyfoldholder": "other"})
    assert Lease.take(cast("ObjectClient", client), "a") is None


def test_a_holder_that_was_frozen_takes_nothing_back(client: Client) -> None:
    """Neither by a renewal nor by writing; it says once that it has lost the lock, and renews it no more."""
    first = _taken(client, "a")
    first.write(b"first")
    client.now_ms += client.times.lease_ms + 1
    assert held(client) is None
    second = _taken(client, "a")
    second.write(b"second")
    with capture_logs() as logs:
        first.renew()
        first.write(b"first again")
    assert [(line["log_level"], line["lock"]) for line in logs] == [("warning", "a")]
    assert first not in RENEWALS
    assert (held(client), first.is_current(), second.is_current()) == (b"second", False, True)
    first.release()
    assert held(client) == b"second"
    second.release()
    assert held(client) is None


def test_a_holder_that_is_overtaken_as_it_renews_takes_nothing_back(client: Client) -> None:
    """It has looked, was frozen, and writes: the store compares what it has looked at."""
    first = _taken(client, "a")
    taken: list[Lease] = []

    def frozen() -> None:
        client.now_ms += client.times.lease_ms + 1
        taken.append(_taken(client, "a"))

    client.before_replace = frozen
    with capture_logs() as logs:
        first.renew()
    assert [line["event"] for line in logs] == ["a lock was lost: it was not renewed for long, and another has it"]
    assert taken[0].is_current()
    for one in (first, *taken):
        one.release()


def test_a_lock_of_an_older_version_is_read(client: Client) -> None:
    """Its content is what its holder wrote, and nothing else."""
    client.put("a", b'{"host": "h", "pid": 1}', {"keyfoldholder": "x"})
    assert held(client) == b'{"host": "h", "pid": 1}'


def test_a_lock_that_no_thread_can_renew_is_given_back(client: Client) -> None:
    """It would else be held by nobody for as long as the process lives."""
    with no_thread_named("storage-leases"), pytest.raises(StorageError, match="can't start new thread"):
        _taken(client, "a", LeaseRenewals(renew_s=0.01))
    assert held(client) is None


def test_renewals_go_on_once_there_are_threads_again(client: Client) -> None:
    """The thread that has leases renewed does not end with one that it cannot start."""
    lease = _taken(client, "a", LeaseRenewals(renew_s=0.2))
    with no_thread_named("storage-lease", times=1):
        before = client.written["a"]
        wait_until(lambda: client.written["a"] > before, "it is renewed")
    lease.release()
