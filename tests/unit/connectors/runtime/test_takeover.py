"""Taking a connector over again in one process: the catalog must be the one that was there before."""

from __future__ import annotations

import threading
from typing import Any
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from compactor.catalog import owner_lock, owner_starts
from compactor.catalog.catalog import Catalog
from compactor.catalog.owner_starts import draw
from compactor.errors import CatalogError, FencedError, KeyfoldError, StorageError
from compactor.storage.local import LocalStorage
from connectors.errors import ConflictError, ConnectorError
from connectors.runtime import takeover
from connectors.runtime.takeover import take_over
from tests.support.catalogs import NOW, owned
from tests.support.memory.storage import FailingStorage, MemoryStorage


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A take-over of connector c without brokers: its store, and the catalog that was there before."""
    for outside in ("probe_all", "_fence"):
        monkeypatch.setattr(takeover, outside, lambda *_: None)
    monkeypatch.setattr(takeover, "KafkaBroker", lambda *_: Mock(discover=lambda _: (), look_into=lambda _: ()))
    monkeypatch.setattr(takeover, "Admin", Mock())
    connector = Mock()
    connector.name, connector.key_identity = "c", "bytes"
    return lambda storage, known, start=None: take_over(
        storage, connector, Mock(), 1, NOW, known, start=start or draw(MemoryStorage())
    )


def test_a_process_that_was_frozen_takes_nothing_from_one_that_started_later(
    again: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends for the connectors that it had not come to, as for the others: ownership is never split."""
    shared, mine, theirs = MemoryStorage(), MemoryStorage(), MemoryStorage()
    frozen = draw(shared)
    again(mine, None, frozen)
    with monkeypatch.context() as other:
        other.setattr(owner_lock, "PROCESS", "other")
        later = draw(shared, "other")
        for storage in (mine, theirs):
            again(storage, None, later)
    for storage in (mine, theirs):
        epoch = Catalog.open(storage, "c").state.epoch
        with pytest.raises(FencedError, match="which started after this process"):
            again(storage, None, frozen)
        assert Catalog.open(storage, "c").state.epoch == epoch
        assert again(storage, None, draw(shared)).catalog.epoch == epoch + 1  # an operator asked for it again


def test_a_place_in_the_order_of_starts_is_no_condition(again: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An account may have rights on its connectors' folders alone: it takes them over without one, and that is said."""
    monkeypatch.setattr(owner_starts, "draw", Mock(side_effect=StorageError("Could not create it: not allowed.")))
    monkeypatch.setattr(takeover, "worker_storage", lambda _: MemoryStorage())
    with capture_logs() as lines:
        start = takeover.draw_start(Mock())
    assert [(line["log_level"], line["event"]) for line in lines] == [
        ("warning", "the order of starts is not known: another worker that starts meanwhile may share the connectors")
    ]
    storage = MemoryStorage()
    assert not start.is_ordered
    assert [again(storage, None, start).catalog.epoch for _ in range(2)] == [1, 2]


def test_the_same_catalog_is_taken_over_again(again: Any) -> None:
    """By its id, whoever owned it meanwhile; a first life takes what there is."""
    storage = MemoryStorage()
    known = again(storage, None).catalog.state.catalog_id
    assert again(storage, known).catalog.epoch == 2


@pytest.mark.parametrize(("other", "error"), [(False, StorageError), (True, CatalogError)])
def test_another_one_is_neither_taken_nor_made(again: Any, *, other: bool, error: type[KeyfoldError]) -> None:
    """An unmounted disk leaves an empty folder: the worker waits for it; another catalog is for people to see to."""
    storage = MemoryStorage()
    if other:
        owned(storage)
    before = Catalog.open(storage, "c")
    with pytest.raises(error, match="catalog gone-1"):
        again(storage, "gone-1")
    assert Catalog.open(storage, "c").version == before.version
    assert error.retriable is not other


def test_the_lock_of_a_killed_worker_is_waited_for_on_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands until its lease is over; a lock that is renewed is another worker's, and one in a folder is at once."""
    monkeypatch.setattr(takeover, "LEASE_MARGIN_S", 0.5)
    monkeypatch.setattr(takeover, "LEASE_MS", 1_000)
    monkeypatch.setattr(takeover, "LOCK_POLL_S", 0.05)
    storage = MemoryStorage()
    assert takeover.abandoned_s(storage) == 1.5
    held = storage.lock(owner_lock.NAME)
    assert held is not None
    with pytest.raises(ConflictError, match="run by another worker"), takeover.claimed(storage, "c", 0.2):
        pass
    ended = threading.Timer(0.3, held.release)
    ended.start()
    with takeover.claimed(storage, "c", takeover.abandoned_s(storage)):
        assert storage.lock(owner_lock.NAME) is None
    ended.join()
    assert takeover.abandoned_s(LocalStorage("never-made")) == 0


def test_what_is_being_deleted_is_not_taken_over(again: Any) -> None:
    """Neither where that has begun before, nor where it begins beside the take-over: then after T1 it is found."""
    storage = MemoryStorage()
    storage.write(takeover.DELETING, b"{}")
    with pytest.raises(ConnectorError, match="is being deleted"):
        again(storage, None)
    assert storage.list("catalog") == []
    beside = MemoryStorage()
    meanwhile = FailingStorage(beside)
    meanwhile.before("create", lambda: beside.write(takeover.DELETING, b"{}"), "catalog")
    with pytest.raises(ConnectorError, match="is being deleted"):
        again(meanwhile, None)


def test_who_takes_over_one_connector_of_several_is_told_what_becomes_of_the_worker() -> None:
    """It goes on with its other connectors: it ends with 5 only where it has none. It is told the same of its own."""
    storage = MemoryStorage()
    assert owner_lock.OwnerLock(storage).claim(owner_lock.this_process(3))
    with capture_logs() as lines:
        takeover.OwnerClaim(storage, None).warn_of_another()
    (line,) = lines
    assert line["event"].endswith("it lets this connector go, and ends with 5 if it has no other")
    older, newer = Catalog.open(storage, "c"), Catalog.open(storage, "c")
    older.take_over("older:1", 0)
    newer.take_over("newer:1", 0)
    with pytest.raises(FencedError, match="newer:1 took it over") as fenced:
        older.refresh()
    assert "stop this worker if it has no other connector" in fenced.value.action


def test_a_connector_that_waits_is_ended_by_a_catalog_in_the_place_of_its_own() -> None:
    """That catalog may be of the same epoch and version, and its owner is no newer one that the old catalog names."""
    storage = MemoryStorage()
    catalog = owned(storage, owner=owner_lock.this_process().text)
    assert takeover.newer_owner(catalog) is None
    storage.delete_folder("")
    owned(storage, owner="other:1")
    error = takeover.newer_owner(catalog)
    assert error is not None
    assert f"its catalog {catalog.state.catalog_id} is gone" in error.message
