"""Taking a connector over again in one process: the catalog must be the one that was there before."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from compactor.catalog import owner_lock
from compactor.catalog.catalog import Catalog
from compactor.catalog.commits import CHECKPOINT_EVERY, commit_path
from compactor.catalog.owner_starts import draw
from compactor.errors import CatalogError, FencedError, KeyfoldError, StorageError
from compactor.model.actions import AnyAction, Refill, Reidentify, ReopenTopic, Reorder
from compactor.model.position import Position, encode
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState, Topic, rejection_of
from compactor.storage.limits import LEASE_MS
from compactor.storage.local import LocalStorage
from connectors.config.connector import ConnectorConfig
from connectors.config.files import load_worker
from connectors.errors import ConflictError, ConnectorError
from connectors.kafka.access import KafkaAccess
from connectors.kafka.admin import TopicInfo
from connectors.kafka.client_settings import ClientSettings
from connectors.runtime import takeover
from connectors.runtime.specs.connector_store import FOLDER
from connectors.runtime.takeover import Fenced, newer_owner, take_over
from tests.support.catalogs import NOW, grow, owned
from tests.support.cli import worker_file
from tests.support.memory.storage import FailingStorage, MemoryStorage


class NoTopics:
    """An Admin whose brokers have no topics."""

    def list_topics(self) -> list[str]:
        return []

    def describe(self, _: Iterable[str]) -> dict[str, TopicInfo]:
        return {}

    def topic_configs(self, _: Iterable[str]) -> dict[str, dict[str, str]]:
        return {}

    def starts(self, _: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {}

    ends = starts

    def close(self) -> None:
        """There is no connection."""


class Held(NoTopics):
    """An Admin with one topic, of which a catalog has committed the position `held`."""

    def __init__(self, held: Position) -> None:
        self._held = held

    def list_topics(self) -> list[str]:
        return ["t"]

    def describe(self, _: Iterable[str]) -> dict[str, TopicInfo]:
        return {"t": TopicInfo("t", "T", 1)}

    def committed(self, _: str, partitions: Iterable[TopicPartition], **__: object) -> dict[TopicPartition, Any]:
        return {tp: (self._held.offset, encode(self._held)) for tp in partitions}


def taking_over(admin: Any, more: Mapping[str, str] | None = None, **named: Any) -> Any:
    """A take-over of connector c with this Admin: its store, and the catalog that was there before.

    `more` are settings of c, `named` arguments of the take-over.
    """
    settings = {"name": "c", "connector.class": "keyfold.CompactedTopic", "topics.regex": "t", **(more or {})}
    connector = ConnectorConfig.model_validate(settings)
    kafka = KafkaAccess(probe_brokers=lambda *_: None, fence=lambda *_: None, admin=lambda _: admin)
    clients = ClientSettings({}, {}, {})
    return lambda storage, known, start=None: take_over(
        storage, connector, clients, 1, NOW, known, start=start or draw(MemoryStorage()), kafka=kafka, **named
    )


@pytest.fixture
def again() -> Any:
    """A take-over of connector c without brokers."""
    return taking_over(NoTopics())


def test_a_process_that_was_frozen_takes_nothing_from_one_that_started_later(again: Any) -> None:
    """It ends for the connectors that it had not come to, as for the others: ownership is never split."""
    shared, mine, theirs = MemoryStorage(), MemoryStorage(), MemoryStorage()
    frozen = draw(shared)
    again(mine, None, frozen)
    later = draw(shared, "other")
    other = owner_lock.Owner(host="h", pid=7, process="other", start=later.number)
    for storage in (mine, theirs):
        Catalog.open(storage, "c").take_over(other.text, NOW)
    for storage in (mine, theirs):
        epoch = Catalog.open(storage, "c").state.epoch
        with pytest.raises(FencedError, match="which started after this process"):
            again(storage, None, frozen)
        assert Catalog.open(storage, "c").state.epoch == epoch
        assert again(storage, None, draw(shared)).catalog.epoch == epoch + 1  # an operator asked for it again


@pytest.mark.parametrize(
    ("setting", "word", "applied"),
    [
        ("compaction.key.identity", "json", Reidentify(identity="json")),
        ("compaction.order", "timestamp", Reorder(order="timestamp")),
        ("compaction.fill", "unavailable", Refill(fill="unavailable")),
    ],
)
def test_a_resync_that_is_refused_leaves_a_connector_with_other_rules_failed(
    again: Any, setting: str, word: str, applied: AnyAction
) -> None:
    """It would read on by the rules of its file into logs that others decided about; one that is applied runs on."""
    storage = MemoryStorage()
    again(storage, None)

    def taken(*actions: AnyAction) -> CatalogState:
        def change(fenced: Fenced) -> None:
            fenced.catalog.commit(lambda _: actions, NOW)

        more = {setting: word, "value.converter": "keyfold.Json"}
        take: Any = taking_over(NoTopics(), more, change=change, changes_rules=True)
        state: CatalogState = take(storage, None).catalog.state
        return state

    with pytest.raises(CatalogError, match=f"{setting} was .* so far and is {word} now"):
        taken()
    before, after = taken(applied), taken()
    assert (before.winners, before.identity) == (after.winners, after.identity)
    assert (before.winners, before.identity) != (CatalogState().winners, CatalogState().identity)


def test_a_start_takes_up_the_topics_that_were_set_aside_for_a_bad_record() -> None:
    """It may be corrected or allowed by now; what cannot be read on for another reason stays closed."""
    reasons = {"t": rejection_of("offset 5"), "u": "recreated", "v": None}
    topics = {
        name: Topic(topic=name, topic_id="i", output=None, output_id=None, closed=why) for name, why in reasons.items()
    }
    assert takeover.reopened(CatalogState(topics=topics)) == [ReopenTopic(topic="t")]


def test_a_place_in_the_order_of_starts_is_no_condition(again: Any, tmp_path: Path) -> None:
    """An account may have rights on its connectors' folders alone: it takes them over without one, and that is said."""
    worker = load_worker(worker_file(tmp_path))
    in_its_place = tmp_path / "store" / FOLDER
    in_its_place.parent.mkdir()
    in_its_place.write_text("no folder: nothing can be made in it")
    with capture_logs() as lines:
        start = takeover.draw_start(worker)
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


@pytest.mark.parametrize("known", [None, "gone-1"])
def test_no_catalog_is_made_while_one_has_committed_positions(known: str | None) -> None:
    """A store may list its folder as empty for a while: the connector is started again, and begins from nothing never.

    A position that another tool has committed is none of a catalog's.
    """
    held = Position(offset=5, catalog_id="gone-1", output_id="o")
    storage = MemoryStorage()
    with pytest.raises(KeyfoldError, match="catalog gone-1") as raised:
        taking_over(Held(held))(storage, known)
    assert raised.value.retriable
    assert "keyfold rebuild" in raised.value.action
    assert storage.list("catalog") == []


def test_a_catalog_that_was_made_as_a_list_hid_another_one_is_given_up(again: Any) -> None:
    """Version 1 is its own, so the other one is older; whatever else is in its place is for people to see to."""
    storage = MemoryStorage()
    real = owned(storage)
    grow(real, CHECKPOINT_EVERY)
    first = commit_path(1)
    storage.write(first, storage.read(first).replace(real.state.catalog_id.encode(), b"beside-1"))
    assert again(storage, "beside-1").catalog.state.catalog_id == real.state.catalog_id


def test_the_lock_of_a_killed_worker_is_waited_for_on_a_store() -> None:
    """It stands until its lease is over; a lock that is renewed is another worker's, and one in a folder is at once."""
    storage = MemoryStorage()
    assert takeover.abandoned_s(storage) == LEASE_MS / 1000 + takeover.LEASE_MARGIN_S
    held = storage.lock(owner_lock.NAME)
    assert held is not None
    with pytest.raises(ConflictError, match="run by another worker"), takeover.claimed(storage, "c", 0.2, poll_s=0.05):
        pass
    ended = threading.Timer(0.3, held.release)
    ended.start()
    with takeover.claimed(storage, "c", 30, poll_s=0.05):
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
        takeover.OwnerClaim(storage, owner_lock.OwnerLock(storage)).warn_of_another()
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


@pytest.mark.parametrize(
    "owner",
    [
        pytest.param(owner_lock.this_process().text, id="own"),
        pytest.param("other:1#9.other", id="other"),
        pytest.param(replace(owner_lock.this_process(), process="other").text, id="another of its host name and pid"),
    ],
)
@pytest.mark.parametrize("backup", [3, 8, 11])
def test_only_another_process_takes_a_catalog_over_that_was_restored(backup: int, owner: str) -> None:
    """Runs that fail after T1 come to the version that this process knows: their commits are its own."""
    storage = MemoryStorage()
    known = owned(storage, owner=owner_lock.this_process().text)
    grow(known, backup - known.version)
    kept = {info.path: storage.read(info.path) for info in storage.walk("")}
    grow(known, 12 - backup)
    storage.delete_folder("")
    for path, content in kept.items():
        storage.write(path, content)
    assert newer_owner(known) is None  # the next run says what is wrong
    while Catalog.open(storage, "c").version < known.version:
        Catalog.open(storage, "c").take_over(owner, NOW)
    fenced = newer_owner(known)
    if owner != owner_lock.this_process().text:
        assert fenced is not None
        assert "was restored from a backup" in fenced.message
    else:
        assert fenced is None
