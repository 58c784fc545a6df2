"""A store that answers late holds up what waits for it, and nothing else of the worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from compactor.errors import StorageError
from compactor.storage.locations import open_storage
from connectors.config.connector import ConnectorConfig
from connectors.config.errors import Fault, FaultyConfigError
from connectors.config.files import OtherFile, clashes, load_connector
from connectors.errors import BusyError, ConflictError, NoConnectorError
from connectors.runtime.lifecycle import TargetState
from connectors.runtime.specs import connectors
from connectors.runtime.specs.connector_files import FileChanges
from connectors.runtime.specs.connector_store import FOLDER, ConnectorStore, StorePatience
from tests.support.cli import NAME, connector_file
from tests.support.herd import Herd, config, put
from tests.support.kafka import wait_until
from tests.support.memory.storage import FailingStorage

LATE_S = 30.0
"""How long a test waits for what should be there at once; longer than any time of the code that is tried."""


class Gate:
    """Has a call of the storage wait until the gate is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._opened = threading.Event()

    def __call__(self, *_: object) -> None:
        self.reached.set()
        assert self._opened.wait(LATE_S)

    def open(self) -> None:
        self._opened.set()


class Asked:
    """A call on a thread of its own, as REST makes it; `error` is what it has raised."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self.value: object = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], object]) -> None:
        try:
            self.value = call()
        except BaseException as error:  # noqa: BLE001  # the test raises it
            self.error = error

    def ended(self, seconds: float = LATE_S) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()


@pytest.fixture
def herd(tmp_path: Path) -> Herd:
    return Herd(tmp_path)


@pytest.fixture
def storage(herd: Herd) -> FailingStorage:
    return FailingStorage(open_storage(str(herd.worker.storage_path)).sub(FOLDER))


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open()


def at_once(call: Callable[[], object]) -> object:
    """Makes a call that must wait for nothing; what it raises comes out."""
    asked = Asked(call)
    assert asked.ended(), "it waits for the store"
    if asked.error is not None:
        raise asked.error
    return asked.value


def is_refused(change: Callable[[], object]) -> bool:
    try:
        change()
    except ConflictError as error:
        return "The worker ends" in str(error)
    return False


@pytest.mark.parametrize("change", ["create", "update", "pause", "delete"])
def test_a_change_that_waits_for_the_store_holds_up_no_other(
    herd: Herd, storage: FailingStorage, gate: Gate, change: str
) -> None:
    """The worker's own thread goes on, all is shown as it was, and other connectors are paused and made."""
    herder = herd.begin(connector_file(herd.folder), store=ConnectorStore(storage))
    put(herder, config("b"))
    if change != "create":
        put(herder, config("a"))
    storage.before("create", gate, "connectors/a")
    calls: Mapping[str, Callable[[], object]] = {
        "create": lambda: put(herder, config("a")),
        "update": lambda: put(herder, config("a", **{"tasks.max": "3"})),
        "pause": lambda: herder.specs.target("a", TargetState.PAUSED),
        "delete": lambda: herder.specs.delete("a"),
    }
    asked = Asked(calls[change])
    assert gate.reached.wait(LATE_S)
    before = ["b", NAME] if change == "create" else ["a", "b", NAME]
    at_once(herder.reconcile)
    at_once(herder.is_any_alive)
    at_once(lambda: herder.restart("b"))
    at_once(lambda: herder.specs.target("b", TargetState.PAUSED))
    at_once(lambda: herder.specs.target(NAME, TargetState.PAUSED))
    at_once(lambda: put(herder, config("c")))
    at_once(lambda: herder.apply(FileChanges(unchanged=(NAME,))))
    assert at_once(herder.names) == sorted([*before, "c"]), "what is not stored yet is not so yet"
    assert all(one.spec.target is not TargetState.STOPPED for one in herder.connectors())
    assert at_once(herder.alive) is not None
    gate.open()
    assert asked.ended()
    assert asked.error is None
    assert ("a" in herder.names()) is (change != "delete")


def test_changes_of_one_connector_take_turns(herd: Herd, storage: FailingStorage, gate: Gate) -> None:
    """One waits for the other, for a bounded time; then it is told to come again, and nothing has changed."""
    herder = herd.begin(store=ConnectorStore(storage, StorePatience(turn_s=0.05)))
    put(herder, config("a"))
    storage.before("create", gate, "connectors/a")
    first = Asked(lambda: put(herder, config("a", **{"tasks.max": "3"})))
    assert gate.reached.wait(LATE_S)
    changes: tuple[Callable[[], object], ...] = (
        lambda: put(herder, config("a", **{"tasks.max": "4"})),
        lambda: herder.specs.target("a", TargetState.STOPPED),
        lambda: herder.specs.delete("a"),
    )
    for change in changes:
        with pytest.raises(BusyError, match="Connector a is being changed"):
            at_once(change)
    gate.open()
    assert first.ended()
    herder.specs.target("a", TargetState.PAUSED)
    spec = herder.connector("a").spec
    assert (spec.config.tasks_max, spec.target) == (3, TargetState.PAUSED)


def test_a_check_runs_without_any_lock(herd: Herd, gate: Gate) -> None:
    """It runs what a user has written, for as long as that takes: other connectors, and the same one, go on."""
    herder = herd.begin()
    put(herder, config("a"))

    def slow(before: Mapping[str, str]) -> ConnectorConfig:
        if not gate.reached.is_set():
            gate()
        return ConnectorConfig.model_validate({**before, "fold.tier.runs": "6"})

    asked = Asked(lambda: herder.specs.put("a", slow))
    assert gate.reached.wait(LATE_S)
    at_once(herder.reconcile)
    at_once(lambda: put(herder, config("b")))
    at_once(lambda: put(herder, config("a", **{"tasks.max": "3"})))
    gate.open()
    assert asked.ended()
    assert asked.error is None
    given = herder.connector("a").spec.config.given
    assert (given["tasks.max"], given["fold.tier.runs"]) == ("3", "6"), "it was checked again with what came between"


def test_connectors_are_compared_without_any_lock(herd: Herd, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes long if they name many topics, or patterns match slowly; one that comes meanwhile is compared too."""
    herder = herd.begin(connector_file(herd.folder))
    put(herder, config("b"))

    def slow(one: ConnectorConfig, others: Iterable[OtherFile]) -> tuple[Fault, ...]:
        if one.name == "a" and not gate.reached.is_set():
            gate()
        return clashes(one, others)

    monkeypatch.setattr(connectors, "clashes", slow)
    asked = Asked(lambda: put(herder, config("a", topics="t", **{"output.topic": "shared"})))
    assert gate.reached.wait(LATE_S)
    at_once(herder.reconcile)
    at_once(lambda: herder.specs.target("b", TargetState.PAUSED))
    at_once(lambda: herder.specs.delete("b"))
    at_once(lambda: herder.apply(FileChanges(unchanged=(NAME,))))
    at_once(lambda: put(herder, config("c", topics="u", **{"output.topic": "shared"})))
    gate.open()
    assert asked.ended()
    assert '"shared" is also the output topic of connector "c"' in str(asked.error)
    assert herder.names() == ["c", NAME]


def test_a_check_that_is_overtaken_again_and_again_gives_up(herd: Herd) -> None:
    """With a conflict that says so."""
    herder = herd.begin()
    put(herder, config("a"))
    others = iter(range(2, 9))

    def overtaken(before: Mapping[str, str]) -> ConnectorConfig:
        put(herder, config("a", **{"tasks.max": str(next(others))}))
        return ConnectorConfig.model_validate(before)

    with pytest.raises(ConflictError, match="changed by others again and again"):
        herder.specs.put("a", overtaken)


def test_what_is_being_stored_is_held_against_others(herd: Herd, storage: FailingStorage, gate: Gate) -> None:
    """Neither a file nor another request takes its name or its output meanwhile, nor what it had before."""
    herder = herd.begin(store=ConnectorStore(storage))
    put(herder, config("a", topics="old"))
    storage.before("create", gate, "connectors/a")
    asked = Asked(lambda: put(herder, config("a", topics="new")))
    assert gate.reached.wait(LATE_S)
    for topic in ("old", "new"):
        with pytest.raises(FaultyConfigError, match="output topic"):
            at_once(lambda topic=topic: put(herder, config("b", topics=topic)))  # type: ignore[misc]
    named = load_connector(connector_file(herd.folder, name="a", topics="other"))
    at_once(lambda: herder.apply(FileChanges(put=(named,))))
    gate.open()
    assert asked.ended()
    assert asked.error is None
    assert herder.connector("a").spec.config.topics == ("new",)
    put(herder, config("b", topics="old"))


def test_a_pause_beside_a_changed_file_holds_for_it(herd: Herd, storage: FailingStorage, gate: Gate) -> None:
    """The file's new config is paused; of a file that has gone nothing is left."""
    path = connector_file(herd.folder)
    herder = herd.begin(path, store=ConnectorStore(storage))
    storage.before("create", gate, "targets/")
    asked = Asked(lambda: herder.specs.target(NAME, TargetState.PAUSED))
    assert gate.reached.wait(LATE_S)
    changed = load_connector(connector_file(herd.folder, **{"tasks.max": "7"}))
    at_once(lambda: herder.apply(FileChanges(put=(changed,))))
    gate.open()
    assert asked.ended()
    spec = herder.connector(NAME).spec
    assert (spec.config.tasks_max, spec.target) == (7, TargetState.PAUSED)
    again = Gate()
    storage.before("create", again, "targets/")
    asked = Asked(lambda: herder.specs.target(NAME, TargetState.RUNNING))
    assert again.reached.wait(LATE_S)
    herder.apply(FileChanges(removed=(NAME,)))
    again.open()
    assert asked.ended()
    assert isinstance(asked.error, NoConnectorError)
    assert herder.names() == []


def test_new_files_wait_for_a_store_that_does_not_answer(herd: Herd, storage: FailingStorage) -> None:
    """What they are to be stands there: one that is to be stopped is not started instead."""
    herder = herd.begin(store=ConnectorStore(storage))
    file = load_connector(connector_file(herd.folder))

    def away() -> None:
        raise StorageError("Not now.")

    storage.before("walk", away, "targets")
    with pytest.raises(StorageError):
        herder.apply(FileChanges(put=(file,)))
    assert herder.names() == []
    herder.apply(FileChanges(put=(file,)))
    assert herder.names() == [NAME]


@pytest.mark.parametrize("moment", ["start", "end"])
def test_locks_that_are_late_hold_up_neither_start_nor_end(
    tmp_path: Path, storage: FailingStorage, gate: Gate, moment: str
) -> None:
    """The locks only inform commands: the worker's thread waits for them for a bounded time."""
    herd = Herd(tmp_path, locks_ms=50)
    word = "take_lock" if moment == "start" else "release"
    path = connector_file(herd.folder)

    def made(*arguments: Any) -> Any:
        found = herd.make(*arguments)
        setattr(found, word, gate)
        return found

    herd.supervise = made
    herder: Any = at_once(lambda: herd.begin(path, store=ConnectorStore(storage)))
    if moment == "end":
        herd.made[NAME][0].over = True
        at_once(herder.release)
    assert gate.reached.wait(LATE_S)
    assert herder.is_releasing
    at_once(herder.reconcile)
    gate.open()
    wait_until(lambda: not herder.is_releasing, "the locks are taken or given back")


def test_the_end_lets_a_change_that_is_under_way_be_stored(herd: Herd, storage: FailingStorage, gate: Gate) -> None:
    """It keeps the store until then; what is asked later is refused, and another worker has the store afterwards."""
    herder = herd.begin(store=ConnectorStore(storage))
    storage.before("create", gate, "connectors/a")
    asked = Asked(lambda: put(herder, config("a")))
    assert gate.reached.wait(LATE_S)
    ended = Asked(herder.release)
    wait_until(lambda: is_refused(lambda: put(herder, config("b"))), "the worker has begun to end")
    assert not ended.ended(0)
    assert not ConnectorStore.of(herd.worker).claim()
    gate.open()
    assert asked.ended()
    assert asked.error is None
    assert ended.ended()
    assert "a" in herd.begin().names()
