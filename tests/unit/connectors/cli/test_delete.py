"""`keyfold delete`, as far as it needs no broker: when it asks, and when it refuses."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from compactor.catalog import owner_lock
from compactor.model.position import Position
from compactor.model.record import TopicPartition
from connectors.cli.commands import delete as command
from connectors.cli.options import CommandParts
from connectors.config.connector import ConnectorConfig
from connectors.config.files import load_worker
from connectors.errors import UsageError
from connectors.kafka.access import KafkaAccess
from connectors.operations.deletion_preview import DeletionPlan, DeletionPreview, OutputTopic
from connectors.runtime import takeover
from connectors.runtime.lifecycle import TargetState
from connectors.runtime.specs.connector_store import ConnectorStore, StoredConnector
from tests.support.cli import connector_file, invoke, keep, row, storage_of, worker_file


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    """A folder with both files and a catalog."""
    keep(tmp_path, [row(0, b"k", b"v")])
    return tmp_path


class Brokers:
    """Brokers that know nothing of the connector; a test says what happens when they are asked."""

    def __init__(self) -> None:
        self.probed: Callable[[], object] = lambda: None
        """Called between the look at the locks and the removal."""
        self.group_goes: Callable[[], object] = lambda: None
        """Called when a consumer group is removed."""
        self.fenced: list[str] = []
        """Transactional ids that were initialised, in their order."""

    def probe(self, *_: object) -> None:
        self.probed()

    def describe(self, _: object) -> dict[str, object]:
        return {}

    def committed(self, *_: object, **__: object) -> dict[object, object]:
        return {}

    def has_group(self, _: str) -> bool:
        return False

    def delete_group(self, _: str) -> None:
        self.group_goes()

    def fence(self, _: object, ids: Iterable[str]) -> None:
        self.fenced += ids

    def delete(self, folder: Path, *more: str) -> Any:
        """`keyfold delete` of the connector in `folder` on these brokers."""
        admin: Any = self
        access = KafkaAccess(probe_brokers=self.probe, fence=self.fence, admin=lambda _: admin)
        return delete(folder, *more, kafka=access)


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def delete(folder: Path, *more: str, kafka: KafkaAccess) -> Any:
    """`keyfold delete` of the connector in `folder`."""
    files = connector_file(folder), "--worker", worker_file(folder)
    return invoke("delete", *files, *more, parts=CommandParts(kafka=kafka))


def test_nothing_is_removed_without_an_answer(deployment: Path, brokers: Brokers) -> None:
    """Without a terminal to ask on it says what it would remove, and how to go on; with --yes it does it."""
    before = storage_of(deployment).walk("")
    shown = brokers.delete(deployment)
    assert shown.exit_code == 2
    assert "--yes" in shown.stderr
    assert "consumer group connect-orders-keeper" in shown.stdout
    assert storage_of(deployment).walk("") == before
    assert brokers.delete(deployment, "--yes").exit_code == 0
    assert not (deployment / "store" / "orders-keeper").exists()
    again = brokers.delete(deployment, "--yes")
    assert (again.exit_code, "There is nothing to delete" in again.stdout) == (0, True)
    assert not (deployment / "store" / "orders-keeper").exists()


@pytest.mark.parametrize("redriven", [True, False])
def test_a_redrive_that_sleeps_is_shut_out_before_its_group_goes(
    deployment: Path, brokers: Brokers, redriven: bool
) -> None:
    """It would make the group again when it wakes up. If none ever ran, no right on its id is asked for."""
    if redriven:
        storage_of(deployment).create("redrive/0000000001.json", b"{}")
    before: list[list[str]] = []
    brokers.group_goes = lambda: before.append(list(brokers.fenced))
    assert brokers.delete(deployment, "--yes").exit_code == 0
    assert ["orders-keeper-dlq" in fenced for fenced in before] == [redriven] * (1 + redriven)


@pytest.mark.parametrize(("answer", "goes"), [("y", True), ("Yes", True), ("n", False), ("", False)])
def test_only_yes_is_yes(answer: str, goes: bool) -> None:
    """On a terminal it waits for the word."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal(f"{answer}\n")
    if goes:
        command.ask(terminal)
    else:
        with pytest.raises(UsageError, match="Nothing was removed"):
            command.ask(terminal)


def test_a_running_connector_is_not_deleted(deployment: Path, brokers: Brokers) -> None:
    """It names the worker and what to do; nothing is removed."""
    lock = owner_lock.OwnerLock(storage_of(deployment))
    assert lock.claim(owner_lock.this_process(3))
    try:
        shown = brokers.delete(deployment, "--yes")
    finally:
        lock.release()
    assert shown.exit_code == 2
    assert str(owner_lock.this_process()) in shown.stderr
    assert "Stop that worker" in shown.stderr
    assert storage_of(deployment).exists("catalog")


def test_nothing_is_removed_without_the_lock(deployment: Path, brokers: Brokers) -> None:
    """Also where another process takes it after the first look, and has not written who it is yet."""
    locks: list[object] = []
    brokers.probed = lambda: locks.append(storage_of(deployment).lock(owner_lock.NAME))
    before = storage_of(deployment).walk("catalog")
    shown = brokers.delete(deployment, "--yes")
    assert (shown.exit_code, "is run by ?:0 now; nothing was removed" in " ".join(shown.stderr.split())) == (2, True)
    assert storage_of(deployment).walk("catalog") == before


def test_brokers_that_do_not_answer_keep_everything(deployment: Path) -> None:
    """Exit code 4, and not a file is gone."""
    before = storage_of(deployment).walk("")
    shown = delete(deployment, "--yes", "--outputs", kafka=KafkaAccess(probe_s=0.3))
    assert shown.exit_code == 4
    assert storage_of(deployment).walk("") == before


HELD = {TopicPartition("t", partition): Position(offset=1) for partition in (0, 1)}


def test_what_is_told_names_what_stays() -> None:
    """Outputs that are not asked for, and what nothing shows to be ours, with what follows from it."""
    plan = DeletionPlan(connector="c", outputs=(OutputTopic("t.compacted", "id"),), snapshots=("c/t/1",), tables=("t",))
    found = DeletionPreview(plan, 3, 30, False, True, HELD, ("cat-1",), ("u.compacted",), None, False, "folder/c")
    tables = {"snapshot.table": "iceberg", "value.converter": "keyfold.String"}
    least = {"name": "c", "connector.class": "keyfold.CompactedTopic", "topics": "t", "snapshot.location": "s"}
    config = ConnectorConfig.model_validate({**least, **tables})
    told = "\n".join(command.lines_of(found, config))
    removed, left = told.split("It leaves")
    assert "connect-c" in removed
    assert "t.compacted" not in removed
    assert all(name in left for name in ("t.compacted", "another output.topic", "c/t/1", "u.compacted", "cat-1"))
    assert "table of Iceberg c.t: a connector that begins anew refuses" in left
    assert "mount it first" in left


def test_what_is_told_names_the_tables_that_go() -> None:
    """As people call them; and why those that cannot be looked at are not known."""
    plan = DeletionPlan(connector="c", tables=("t",), with_outputs=True)
    found = DeletionPreview(plan, 3, 30, True, True, HELD, (), (), None, False, "folder/c", tables_fault="it is away")
    least = {"name": "c", "connector.class": "keyfold.CompactedTopic", "topics": "t", "snapshot.location": "s"}
    settings = {**least, "snapshot.table": "delta", "value.converter": "keyfold.String"}
    removed, left = "\n".join(command.lines_of(found, ConnectorConfig.model_validate(settings))).split("It leaves")
    assert "table of Delta s/c/t/delta, with all its versions" in removed
    assert "tables of delta, if any: it is away" in left


@pytest.fixture
def store(deployment: Path) -> ConnectorStore:
    """What a worker has stored: the connector, as it was made over REST."""
    found = ConnectorStore.of(load_worker(worker_file(deployment)))
    found.put(StoredConnector(name="orders-keeper", config={"topics": "t"}))
    found.put(StoredConnector(name="another", config={"topics": "u"}))
    return found


def test_the_config_of_a_connector_made_over_rest_goes_with_it(
    deployment: Path, brokers: Brokers, store: ConnectorStore
) -> None:
    """It is named before anybody is asked: the next run of a worker would make its outputs again."""
    store.put_target("orders-keeper", TargetState.STOPPED)
    shown = brokers.delete(deployment)
    assert shown.exit_code == 2
    assert f"{store.location}/connectors/orders-keeper@" in shown.stdout
    assert [one.name for one in store.connectors()] == ["another", "orders-keeper"]
    assert brokers.delete(deployment, "--yes").exit_code == 0
    assert [one.name for one in store.connectors()] == ["another"]
    assert store.targets(["orders-keeper"]) == {"orders-keeper": TargetState.RUNNING}
    assert store.owner() is None


def test_a_config_that_is_left_alone_is_removed(deployment: Path, brokers: Brokers, store: ConnectorStore) -> None:
    """Also if nothing else is left of the connector, as earlier versions left it."""
    storage_of(deployment).delete_folder("")
    assert brokers.delete(deployment, "--yes").exit_code == 0
    assert [one.name for one in store.connectors()] == ["another"]
    assert "There is nothing to delete" in brokers.delete(deployment, "--yes").stdout


def test_a_worker_that_keeps_the_config_is_asked_to_let_it_go_first(
    deployment: Path, brokers: Brokers, store: ConnectorStore
) -> None:
    """It has it in memory, and would run it again, also if it is STOPPED now; its other connectors do not matter."""
    assert store.claim()
    try:
        shown = brokers.delete(deployment, "--yes")
        assert shown.exit_code == 2
        assert "keyfold connectors delete orders-keeper" in " ".join(shown.stderr.split())
        assert str(owner_lock.this_process()) in shown.stderr
        assert storage_of(deployment).exists("catalog")
        store.delete("orders-keeper")
        assert brokers.delete(deployment, "--yes").exit_code == 0
    finally:
        store.release()


def test_a_worker_that_begins_after_the_question_keeps_everything(
    deployment: Path, brokers: Brokers, store: ConnectorStore
) -> None:
    """It may have read the config by then."""
    brokers.probed = store.claim
    shown = brokers.delete(deployment, "--yes")
    assert (shown.exit_code, "nothing was removed" in " ".join(shown.stderr.split())) == (2, True)
    assert storage_of(deployment).exists("catalog")
    assert [one.name for one in store.connectors()] == ["another", "orders-keeper"]


def test_a_delete_that_breaks_off_leaves_no_config_behind_a_connector_that_is_gone(
    deployment: Path, brokers: Brokers, store: ConnectorStore
) -> None:
    """The config goes while deleting.json keeps workers out, and that goes last."""

    def breaks_off() -> None:
        assert [one.name for one in store.connectors()] == ["another"]
        raise UsageError("Broken off.", "Again.")

    brokers.group_goes = breaks_off
    assert brokers.delete(deployment, "--yes").exit_code == 2
    brokers.group_goes = lambda: None
    assert storage_of(deployment).exists(takeover.DELETING)
    assert brokers.delete(deployment, "--yes").exit_code == 0
    assert storage_of(deployment).walk("") == []
