"""Leases are renewed while their holder lives, each by itself."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from compactor.errors import StorageError
from compactor.storage import lease
from compactor.storage.lease import Lease
from compactor.storage.object_client import ObjectClient
from tests.support.kafka import wait_until


class Client:
    """A store of locks, which counts how often each is written; it answers nothing more for those that are `stuck`."""

    def __init__(self) -> None:
        self.written: Counter[str] = Counter()
        self.stuck: set[str] = set()
        self.refuses = False
        self.ended = threading.Event()
        self._held: dict[str, dict[str, str]] = {}

    def head(self, key: str) -> None: ...

    def attributes(self, key: str) -> dict[str, str] | None:
        if key in self.stuck:
            self.ended.wait()
        if self.refuses:
            raise StorageError("Not now.")
        return self._held.get(key)

    def put(self, key: str, _data: bytes, attributes: dict[str, str]) -> None:
        self.written[key] += 1
        self._held[key] = attributes

    def delete(self, keys: list[str]) -> None:
        for key in keys:
            self._held.pop(key, None)


def _taken(client: Any, key: str) -> Lease:
    found = Lease.take(cast("ObjectClient", client), key)
    assert found is not None
    return found


def test_a_store_that_does_not_answer_for_one_lease_renews_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the connectors of a worker would seem dead, one after the other, as one of them waits."""
    monkeypatch.setattr(lease, "RENEW_S", 0.01)
    client = Client()
    held = [_taken(client, key) for key in ("a", "b")]
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
