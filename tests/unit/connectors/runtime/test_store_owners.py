"""Two workers on one storage: which of them says what connectors are to be, and what the other learns of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog

from compactor.catalog import owner_lock
from compactor.errors import StorageError
from compactor.storage.local import LocalStorage
from connectors.errors import ConflictError
from connectors.runtime.herder import Herder
from connectors.runtime.lifecycle import TargetState
from connectors.runtime.specs.connector_store import ConnectorStore, StorePatience
from tests.support.cli import NAME, connector_file
from tests.support.herd import Herd, config, put
from tests.support.kafka import wait_until
from tests.support.memory.storage import FailingStorage, MemoryStorage, lose_answer

LOST = "connectors made over REST are another worker's, or storage.location is away: changes are refused here"


class Workers:
    """Two workers on one storage in memory, whose locks may lapse as leases do."""

    def __init__(self, folder: Path) -> None:
        self.memory = MemoryStorage()
        self.storage = FailingStorage(self.memory)
        (folder / "a").mkdir()
        (folder / "b").mkdir()
        self._herds = Herd(folder / "a"), Herd(folder / "b")
        self.file = connector_file(folder / "a", topics="files")
        self.a = self._begin(self._herds[0], self.storage, self.file)

    def _begin(self, herd: Herd, storage: MemoryStorage | FailingStorage, *files: Path) -> Herder:
        return herd.begin(*files, store=ConnectorStore(storage, StorePatience(again_s=0.01)))

    def take(self) -> Herder:
        """The lease of A lapses, and B begins."""
        self.memory.lapse(owner_lock.NAME)
        return self._begin(self._herds[1], self.memory)

    def stored(self) -> dict[str, TargetState]:
        """What the next start reads."""
        return {one.name: one.target_state for one in ConnectorStore(self.memory).connectors()}


@pytest.fixture
def workers(tmp_path: Path) -> Workers:
    return Workers(tmp_path)


def test_connectors_of_files_are_paused_by_the_worker_that_has_the_files(workers: Workers) -> None:
    """It need not have the store: what another worker has stored stays as it is."""
    put(workers.a, config("b"))
    owner = workers.take()
    workers.a.specs.target(NAME, TargetState.PAUSED)
    assert workers.a.connector(NAME).spec.target is TargetState.PAUSED
    assert ConnectorStore(workers.memory).targets([NAME]) == {NAME: TargetState.PAUSED}
    assert (owner.names(), workers.stored()) == (["b"], {"b": TargetState.RUNNING})


def test_who_has_lost_the_store_changes_nothing(workers: Workers) -> None:
    """Each change is refused with 409, the loss is logged once, and what the new owner has made of it counts."""
    for name in ("a", "b"):
        put(workers.a, config(name))
    owner = workers.take()
    assert owner.names() == ["a", "b"]
    owner.specs.delete("a")
    owner.specs.target("b", TargetState.PAUSED)
    changes: tuple[Callable[[], object], ...] = (
        lambda: put(workers.a, config("a", **{"tasks.max": "3"})),
        lambda: workers.a.specs.target("a", TargetState.PAUSED),
        lambda: workers.a.specs.target("b", TargetState.STOPPED),
        lambda: workers.a.specs.delete("b"),
        lambda: put(workers.a, config("c")),
    )
    with structlog.testing.capture_logs() as logged:
        for change in changes:
            with pytest.raises(ConflictError, match=r"Another worker on this storage\.location"):
                change()
    assert [(line["event"], line["log_level"]) for line in logged] == [(LOST, "warning")]
    assert workers.stored() == {"b": TargetState.PAUSED}
    assert owner.names() == ["b"]


def test_who_has_lost_the_store_takes_it_up_again(workers: Workers) -> None:
    """Once it is free: with what has become of all connectors meanwhile, those of its files as they were."""
    for name in ("a", "b", "c"):
        put(workers.a, config(name))
    owner = workers.take()
    owner.specs.delete("a")
    owner.specs.put("b", lambda before: config("b", **{"tasks.max": "5"}))
    put(owner, config("d"))
    with pytest.raises(ConflictError):
        workers.a.specs.target("c", TargetState.PAUSED)
    owner.release()
    workers.a.specs.target("c", TargetState.PAUSED)
    assert workers.a.names() == ["b", "c", "d", NAME]
    assert workers.a.connector("b").spec.config.tasks_max == 5
    assert workers.stored() == {"b": TargetState.RUNNING, "c": TargetState.PAUSED, "d": TargetState.RUNNING}


def test_connectors_that_a_list_leaves_out_run_on(workers: Workers) -> None:
    """What is stored is read again once the store was lost, perhaps as what answers is no store for a while."""
    put(workers.a, config("a"))
    workers.take().release()
    workers.memory.lists_nothing = True
    with pytest.raises(StorageError):
        workers.a.specs.target("a", TargetState.PAUSED)
    workers.memory.lists_nothing = False
    assert workers.a.names() == ["a", NAME]
    workers.a.specs.target("a", TargetState.PAUSED)
    assert workers.stored() == {"a": TargetState.PAUSED}


def test_connectors_run_on_while_nothing_is_mounted(tmp_path: Path) -> None:
    """Whatever is asked meanwhile, also of connectors that there are not: the empty folder says nothing of them."""
    place, aside = tmp_path / "storage", tmp_path / "aside"
    herder = Herd(tmp_path).begin(store=ConnectorStore(LocalStorage(str(place)).sub(".worker")))
    put(herder, config("a"))
    place.rename(aside)
    changes: tuple[Callable[[], object], ...] = (
        lambda: herder.specs.target("absent", TargetState.PAUSED),
        lambda: put(herder, config("b")),
        lambda: herder.specs.delete("a"),
    )
    for change in changes:
        with pytest.raises(StorageError, match="has nothing of a"):
            change()
    assert herder.names() == ["a"]
    shutil.rmtree(place)
    aside.rename(place)
    put(herder, config("b"))
    herder.specs.target("a", TargetState.PAUSED)
    stored = {
        one.name: one.target_state for one in ConnectorStore(LocalStorage(str(place)).sub(".worker")).connectors()
    }
    assert stored == {"a": TargetState.PAUSED, "b": TargetState.RUNNING}


@pytest.mark.parametrize("change", ["put", "target", "delete"])
@pytest.mark.parametrize("its", ["delete", "change"])
def test_who_loses_the_store_during_a_change_replaces_nothing(workers: Workers, change: str, its: str) -> None:
    """It had the store when it asked, was frozen, and writes: what the new owner has stored meanwhile stays."""
    put(workers.a, config("a"))

    def taken() -> None:
        owner = workers.take()
        owner.specs.delete("a") if its == "delete" else owner.specs.target("a", TargetState.STOPPED)

    workers.storage.before("create", taken, "connectors/a")
    changes: dict[str, Callable[[], object]] = {
        "put": lambda: put(workers.a, config("a", **{"tasks.max": "3"})),
        "target": lambda: workers.a.specs.target("a", TargetState.PAUSED),
        "delete": lambda: workers.a.specs.delete("a"),
    }
    with pytest.raises(ConflictError, match="Another worker"):
        changes[change]()
    assert workers.stored() == ({} if its == "delete" else {"a": TargetState.STOPPED})
    spec = workers.a.connector("a").spec
    assert (spec.target, spec.config.tasks_max) == (TargetState.RUNNING, config("a").tasks_max), "nothing was done here"


def test_what_is_stored_as_the_store_is_lost_is_refused(workers: Workers) -> None:
    """It stands there, as the new owner has not changed it: the client hears of the other, and nothing runs here."""
    put(workers.a, config("a"))
    workers.storage.before("create", workers.take, "connectors/a")
    with pytest.raises(ConflictError, match="Another worker"):
        workers.a.specs.target("a", TargetState.PAUSED)
    assert workers.a.connector("a").spec.target is TargetState.RUNNING
    assert workers.stored() == {"a": TargetState.PAUSED}, "docs/rest.md says so"


def test_what_a_late_worker_has_stored_is_met_by_the_owner(workers: Workers) -> None:
    """The owner's own change is refused once, and all is taken up before the next: none of the two is lost unseen."""
    put(workers.a, config("a"))
    owner = workers.take()
    late = ConnectorStore(workers.memory)
    (stored,) = late.connectors()
    late.put(stored)
    with pytest.raises(ConflictError, match="newer version of a"):
        owner.specs.target("a", TargetState.PAUSED)
    owner.specs.target("a", TargetState.STOPPED)
    assert workers.stored() == {"a": TargetState.STOPPED}


@pytest.mark.parametrize("change", ["put", "update", "target", "delete", "file"])
def test_an_answer_that_the_store_loses_is_read_back(workers: Workers, change: str) -> None:
    """The change is stored, the client is told so, and what is known here is what the next start reads."""
    put(workers.a, config("a"))
    workers.storage.after("create", lose_answer)
    changes: dict[str, Callable[[], object]] = {
        "put": lambda: put(workers.a, config("b")),
        "update": lambda: put(workers.a, config("a", **{"tasks.max": "3"})),
        "target": lambda: workers.a.specs.target("a", TargetState.PAUSED),
        "delete": lambda: workers.a.specs.delete("a"),
        "file": lambda: workers.a.specs.target(NAME, TargetState.STOPPED),
    }
    changes[change]()
    known = {one.name: one.spec.target for one in workers.a.connectors()}
    assert known.pop(NAME) == ConnectorStore(workers.memory).targets([NAME])[NAME]
    assert known == workers.stored()
    assert known == {
        "put": {"a": TargetState.RUNNING, "b": TargetState.RUNNING},
        "target": {"a": TargetState.PAUSED},
        "delete": {},
    }.get(change, {"a": TargetState.RUNNING})


@pytest.mark.parametrize("is_made", [True, False])
def test_a_change_of_which_nothing_is_known_is_found_out(workers: Workers, is_made: bool) -> None:
    """The client hears that; as soon as the store answers, what is known here is what the next start reads."""
    put(workers.a, config("a"))
    (workers.storage.after if is_made else workers.storage.before)("create", lose_answer)

    def away() -> None:
        workers.storage.before("create", lose_answer)  # and it does not answer for another while
        lose_answer()

    workers.storage.before("read", away)
    with pytest.raises(StorageError, match="Whether a was stored is not known"):
        workers.a.specs.target("a", TargetState.PAUSED)
    expected = TargetState.PAUSED if is_made else TargetState.RUNNING
    wait_until(lambda: not workers.storage.plan, "the store has refused the second question too")
    wait_until(lambda: workers.a.connector("a").spec.target is expected, "the store is taken up again")
    assert workers.stored() == {"a": workers.a.connector("a").spec.target}
