"""What connectors are to be, and how they become that: over stand-ins for supervisors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import structlog

from compactor.catalog.owner_lock import OwnerLock, this_process
from compactor.errors import FencedError, StorageError
from compactor.storage.locations import open_storage
from connectors.config.connector import ConnectorConfig
from connectors.config.errors import FaultyConfigError
from connectors.config.files import load_connector
from connectors.errors import ConflictError, NoConnectorError
from connectors.runtime.herder import Herder
from connectors.runtime.lifecycle import TargetState
from connectors.runtime.specs.connector_files import FileChanges
from connectors.runtime.specs.connector_store import FOLDER, ConnectorStore
from connectors.runtime.status import ConnectorState
from tests.support.cli import NAME, connector_file
from tests.support.herd import Herd, config, put
from tests.support.memory.storage import FailingStorage, MemoryStorage


@pytest.fixture
def herd(tmp_path: Path) -> Herd:
    return Herd(tmp_path)


def test_a_connector_that_is_made_is_there_after_a_restart(herd: Herd) -> None:
    """With its config as it was sent, and what it is to be; a deleted one is not."""
    herder = herd.begin()
    assert put(herder, config("a", **{"tasks.max": "3"}))
    assert put(herder, config("b"), TargetState.PAUSED)
    assert put(herder, config("c"))
    herder.specs.delete("c")
    assert herd.said("a") == [["start"]]
    assert herd.said("b") == [["pause", "start"]]
    herd.end()
    again = herd.begin()
    assert herd.states() == {"a": "RUNNING", "b": "PAUSED"}
    assert again.connector("a").spec.config.given["tasks.max"] == "3"
    assert herd.said("a") == [["start"], ["start"]]


def test_a_connector_exists_once(herd: Herd) -> None:
    """Making it again is refused where a new one is asked for; changing it is not."""
    herder = herd.begin()
    assert put(herder, config("a"), only_new=True)
    with pytest.raises(ConflictError, match="Connector a already exists"):
        put(herder, config("a"), only_new=True)
    assert not put(herder, config("a", **{"tasks.max": "2"}))


def test_nothing_changes_where_it_cannot_be_stored(herd: Herd) -> None:
    """A client that gets an error may believe it."""
    storage = FailingStorage(MemoryStorage())
    herder = herd.begin(store=ConnectorStore(storage))
    put(herder, config("a"))

    def full() -> None:
        raise StorageError("full")

    for change in (
        lambda: put(herder, config("a", **{"tasks.max": "2"})),
        lambda: put(herder, config("b")),
        lambda: herder.specs.target("a", TargetState.PAUSED),
        lambda: herder.specs.delete("a"),
    ):
        storage.before("create", full)
        with pytest.raises(StorageError):
            change()
    assert herd.states() == {"a": "RUNNING"}
    assert herder.connector("a").spec.config == config("a")
    assert herd.said("a") == [["start"]]


def test_a_connector_is_paused_resumed_and_stopped(herd: Herd) -> None:
    """A pause reaches the supervisor that runs; a stop ends it, and the next one begins when it has ended."""
    herder = herd.begin()
    put(herder, config("a"))
    herder.specs.target("a", TargetState.PAUSED)
    herder.specs.target("a", TargetState.RUNNING)
    assert herd.said("a") == [["start", "pause"]]
    assert herd.made["a"][0].said[-1] == "resume"
    herder.specs.target("a", TargetState.STOPPED)
    herder.specs.target("a", TargetState.RUNNING)
    assert herd.said("a") == [["start", "pause", "drop"]], "what was told to end is let end first"
    herd.made["a"][0].over = True
    herder.reconcile()
    assert herd.said("a")[1:] == [["start"]]
    herder.specs.target("a", TargetState.STOPPED)
    assert herd.said("a")[1:] == [["start", "drop"]]
    assert herder.connector("a").status.state is ConnectorState.UNASSIGNED
    herd.made["a"][1].over = True
    herder.reconcile()
    assert herder.connector("a").status.state is ConnectorState.STOPPED
    herder.specs.target("a", TargetState.RUNNING)
    assert herd.said("a")[2:] == [["start"]]


def test_what_rest_changes_is_logged(herd: Herd) -> None:
    """The log tells when a connector was made, changed, stopped and deleted; what is refused is no change."""
    herder = herd.begin()
    with structlog.testing.capture_logs() as logged:
        put(herder, config("a"))
        put(herder, config("a", **{"segment.bytes": "2048"}))
        herder.specs.target("a", TargetState.STOPPED)
        herder.specs.delete("a")
        with pytest.raises(NoConnectorError):
            herder.specs.delete("a")
    said = [(entry["event"], entry["connector"]) for entry in logged if "over REST" in entry["event"]]
    assert said == [
        ("connector made over REST", "a"),
        ("connector's config set over REST", "a"),
        ("connector's target state set over REST", "a"),
        ("connector deleted over REST", "a"),
    ]


def test_a_changed_config_waits_for_the_run_before(herd: Herd) -> None:
    """A fold that runs may finish, and two runs of one connector are never there at once."""
    herder = herd.begin()
    put(herder, config("a"))
    put(herder, config("a", **{"tasks.max": "2"}))
    put(herder, config("a", **{"tasks.max": "3"}))
    assert herd.said("a") == [["start", "finish"]]
    assert herder.is_any_alive()
    herd.made["a"][0].over = True
    assert herder.is_any_alive(), "it is about to be started again"
    herder.reconcile()
    assert herd.said("a") == [["start", "finish"], ["start"]]
    assert herd.made["a"][1].config.tasks_max == 3


def test_a_name_that_is_deleted_and_made_again_waits_too(herd: Herd) -> None:
    """The run of the deleted one still has the connector."""
    herder = herd.begin()
    put(herder, config("a"))
    herder.specs.delete("a")
    assert herder.names() == []
    with pytest.raises(NoConnectorError):
        herder.connector("a")
    put(herder, config("a", **{"tasks.max": "2"}))
    assert len(herd.made["a"]) == 1
    herd.made["a"][0].over = True
    herder.reconcile()
    assert herd.made["a"][1].said[-1] == "start"


def test_a_restart_ends_a_run_or_begins_one(herd: Herd) -> None:
    """Also of a connector that another worker has taken over: who asks for it wants it here."""
    herder = herd.begin()
    put(herder, config("a"))
    herder.restart("a")
    assert herd.said("a") == [["start", "restart"]]
    herd.made["a"][0].over, herd.made["a"][0].error = True, FencedError("other:1")
    herder.reconcile()
    assert len(herd.made["a"]) == 1, "what ended by itself is not started again by itself"
    herder.restart("a")
    assert herd.said("a")[1:] == [["start"]]
    herder.specs.target("a", TargetState.STOPPED)
    herd.made["a"][1].over = True
    herder.restart("a")
    assert len(herd.made["a"]) == 2
    with pytest.raises(NoConnectorError):
        herder.restart("b")


def test_a_connector_of_a_file_is_its_files(herd: Herd) -> None:
    """REST pauses and stops it, which survives a restart, and does not change or delete it: the file is named."""
    path = connector_file(herd.folder)
    herder = herd.begin(path)
    for change in (lambda: put(herder, config(NAME)), lambda: herder.specs.delete(NAME)):
        with pytest.raises(ConflictError, match=str(path)):
            change()
    herder.specs.target(NAME, TargetState.STOPPED)
    herd.made[NAME][0].over = True
    herd.end()
    herd.begin(path)
    assert herd.states() == {NAME: "STOPPED"}
    assert len(herd.made[NAME]) == 1
    herd.herder.specs.target(NAME, TargetState.RUNNING)
    herd.end()
    herd.begin(path)
    assert herd.states() == {NAME: "RUNNING"}


def test_a_worker_that_does_not_listen_runs_its_files(herd: Herd) -> None:
    """What was stopped over REST would stay so for ever otherwise: nothing could be asked to resume it."""
    path = connector_file(herd.folder)
    herd.begin(path).specs.target(NAME, TargetState.STOPPED)
    put(herd.herder, config("a"))
    herd.end()
    herd.begin(path, listens=False)
    assert herd.states() == {NAME: "RUNNING"}


def test_two_workers_on_one_storage(herd: Herd) -> None:
    """The second neither runs the first one's connectors nor makes any; once that has ended it does."""
    put(herd.begin(), config("a"))
    herd.end()
    lock = OwnerLock(open_storage(str(herd.worker.storage_path)).sub(FOLDER))
    assert lock.claim(this_process())
    herder = herd.begin()
    assert herder.names() == []
    assert [line["event"] for line in herd.logged] == [
        "connectors made over REST belong to another worker on this storage.location"
    ]
    changes: tuple[Callable[[], object], ...] = (
        lambda: put(herder, config("b")),
        lambda: herder.specs.delete("a"),
        lambda: herder.specs.target("a", TargetState.PAUSED),
    )
    for change in changes:
        with pytest.raises(ConflictError, match="Another worker"):
            change()
    lock.release()
    put(herder, config("b"))
    assert herder.names() == ["a", "b"]  # what the other had made is taken up, not written over


def test_a_connector_that_another_worker_has_left_is_there_for_the_first_who_asks(herd: Herd) -> None:
    """Making it is refused, changing it changes what was left, pausing and deleting it find it."""
    asks: tuple[Callable[[Herder], object], ...] = (
        lambda herder: put(herder, config("a", topics="other"), only_new=True),
        lambda herder: put(herder, config("b", topics="a")),
        lambda herder: herder.specs.target("a", TargetState.PAUSED),
        lambda herder: herder.specs.put(
            "a", lambda before: ConnectorConfig.model_validate({**before, "tasks.max": "3"})
        ),
        lambda herder: herder.specs.delete("a"),
    )
    put(herd.begin(), config("a", **{"fold.tier.runs": "6"}))
    herd.end()
    lock = OwnerLock(open_storage(str(herd.worker.storage_path)).sub(FOLDER))
    found = []
    for ask in asks:
        assert lock.claim(this_process())
        herder = herd.begin()
        lock.release()
        try:
            ask(herder)
        except (ConflictError, FaultyConfigError) as error:
            found.append(type(error).__name__)
        else:
            found.append("".join(herd.states().values()))
        herd.end()
    assert found == ["ConflictError", "FaultyConfigError", "PAUSED", "PAUSED", ""]
    assert herd.begin().names() == []


def test_who_changes_a_files_connector_learns_of_the_file_first(herd: Herd) -> None:
    """A config that is faulty besides is not what has to be mended."""
    herder = herd.begin(path := connector_file(herd.folder))

    def faulty(_: object) -> ConnectorConfig:
        raise FaultyConfigError("config", ())

    with pytest.raises(ConflictError, match=str(path)):
        herder.specs.put(NAME, faulty)


def test_nothing_is_stored_once_a_worker_has_ended(herd: Herd) -> None:
    """Its listener may still answer, while another worker has the store already."""
    herder = herd.begin()
    herd.end()
    with pytest.raises(ConflictError, match="The worker ends"):
        put(herder, config("a"))


def test_a_file_takes_nothing_from_a_connector_made_over_rest(herd: Herd) -> None:
    """Neither its name nor its output topic; and where that file goes, the connector stays."""
    herder = herd.begin()
    put(herder, config("a"))
    put(herder, config("b"))
    named = load_connector(connector_file(herd.folder, name="a", topics="other"))
    shared = load_connector(connector_file(herd.folder, name="c", topics="b"))
    with structlog.testing.capture_logs() as logged:
        herder.apply(FileChanges(put=(named, shared)))
    herder.apply(FileChanges(removed=("a", "c")))
    assert herder.names() == ["a", "b"]
    assert herder.connector("a").spec.config.topics == ("a",)
    assert [line["event"] for line in logged] == ["connector file is not valid"] * 2


TO_C_OR_A = {
    "transforms": "c,a",
    **{f"transforms.{name}.type": "org.apache.kafka.connect.transforms.RegexRouter" for name in "ca"},
    "transforms.c.regex": "b",
    "transforms.c.replacement": "c",
    "transforms.a.regex": "d",
    "transforms.a.replacement": "a",
}


def test_what_clashes_is_refused(herd: Herd) -> None:
    """Two connectors of one worker never share an output topic, wherever they come from."""
    herder = herd.begin(connector_file(herd.folder))
    with pytest.raises(FaultyConfigError, match="output topic of connector"):
        put(herder, config("a", topics="orders"))
    put(herder, config("a"))
    with pytest.raises(FaultyConfigError, match="output topic of connector"):
        put(herder, config("b", topics="a"))
    assert herder.names() == ["a", NAME]


def test_a_loop_over_several_connectors_is_refused(herd: Herd) -> None:
    """Also one that a changed config closes; without it they are a chain."""
    herder = herd.begin(connector_file(herd.folder, topics="a", **{"output.topic": "b"}))
    put(herder, config("second", topics="b", **{"output.topic": "c"}))
    with pytest.raises(FaultyConfigError, match="comes back by connector"):
        put(herder, config("third", topics="c", **{"output.topic": "a"}))
    put(herder, config("third", topics="c", **{"output.topic": "d"}))
    with pytest.raises(FaultyConfigError, match="comes back by connector"):
        put(herder, config("second", topics="b,d", **{"output.topic": "${topic}", **TO_C_OR_A}))
    assert herder.connector("second").spec.config.topics == ("b",)


def test_a_stored_connector_whose_name_a_file_has_is_left_out(herd: Herd) -> None:
    """The file was named by an operator just now; what is stored stays, and is there again without the file."""
    put(herd.begin(), config(NAME))
    herd.end()
    herd.begin(connector_file(herd.folder))
    assert herd.herder.connector(NAME).spec.file is not None
    assert [line["event"] for line in herd.logged] == ["connector made over REST is left out"]
    herd.end()
    assert herd.begin().connector(NAME).spec.file is None


def test_files_come_and_go(herd: Herd) -> None:
    """A file that is gone stops its connector; a new one starts one."""
    path = connector_file(herd.folder)
    herder = herd.begin(path)
    herder.apply(FileChanges(removed=(NAME,)))
    assert herder.names() == []
    assert herd.said(NAME) == [["start", "drop"]]
    herd.made[NAME][0].over = True
    herder.apply(FileChanges(put=(load_connector(path, herd.worker),)))
    assert herd.said(NAME)[1:] == [["start"]]


def test_a_worker_is_fenced_once_all_of_its_connectors_are(herd: Herd) -> None:
    """One that is STOPPED has no run that another worker could fence, and may be resumed here."""
    herder = herd.begin()
    assert not herder.is_fenced()
    put(herder, config("a"))
    put(herder, config("b"), TargetState.STOPPED)
    herd.made["a"][0].over, herd.made["a"][0].error = True, FencedError("other:1")
    assert not herder.is_fenced()
    herder.specs.delete("b")
    assert herder.is_fenced()
