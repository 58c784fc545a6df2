"""What is taken over while Spark starts: when that begins, and who gets it."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from compactor.catalog.catalog import Catalog
from compactor.catalog.owner_lock import OwnerLock, this_process
from compactor.catalog.owner_starts import Start
from compactor.errors import StorageError
from compactor.model.actions import SetBuckets
from connectors.config.files import load_connector, load_worker
from connectors.config.stores import connector_storage
from connectors.progress.observer import Observer
from connectors.runtime.lifecycle import TargetState
from connectors.runtime.supervisor import RunContext, Supervisor
from connectors.runtime.takeover_ahead import TakeoverAhead, cores_of
from tests.support.catalogs import NOW
from tests.support.cli import NAME, connector_file, worker_file, worker_over
from tests.support.clocks import ManualClock
from tests.support.herd import Herd
from tests.support.requests import leave
from tests.support.spark_standins import starting

IDS = 3


class Taking:
    """A take-over that gives a catalog with so many ids, once it `may_end`; it notes what it was asked for."""

    def __init__(self) -> None:
        self.broker = Mock()
        self.asked: list[int] = []
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()
        self.kafka: Any = None
        self.error: BaseException | None = None

    def __call__(self, _storage: object, _connector: object, _clients: object, ids: int, *_: object, **how: Any) -> Any:
        self.asked.append(ids)
        self.kafka = how["kafka"]
        self.begun.set()
        assert self.may_end.wait(60)
        if self.error is not None:
            raise self.error
        return SimpleNamespace(catalog=SimpleNamespace(state=SimpleNamespace(buckets=IDS)), broker=self.broker)


class Ground:
    """A take-over ahead of connector NAME in `folder`."""

    def __init__(self, folder: Path, **more: str) -> None:
        self.worker = load_worker(worker_file(folder))
        self.connector = load_connector(connector_file(folder, **more), self.worker).config
        self.storage = connector_storage(self.worker, NAME)
        self.taking = Taking()
        self.ahead = TakeoverAhead(self.worker, self.connector, ManualClock(), self.taking)

    def begin(self, tasks_max: int = IDS) -> TakeoverAhead:
        self.ahead.begin(lambda: Start(self.storage, 1), tasks_max, tuple)
        return self.ahead


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[3]", 3), ("local[*]", "all"), ("spark://host:7077", None), ("local[*, 2]", None)],
)
def test_cores_are_foreseen_only_on_this_machine(
    master: str, cores: int | str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many a cluster has, Spark alone knows."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(5))
    assert cores_of(master) == (5 if cores == "all" else cores)


def test_what_was_taken_over_is_the_first_runs_alone(tmp_path: Path) -> None:
    """A later run takes over again; nothing closes the connections that the first one has."""
    ground = Ground(tmp_path)
    ahead = ground.begin()
    owned = ahead.owned(IDS)
    assert owned is not None
    ahead.drop()
    assert (ahead.owned(IDS), ground.taking.broker.close.call_count) == (None, 0)


def test_with_other_ids_than_spark_has_cores_nothing_was_taken_over(tmp_path: Path) -> None:
    """The run takes over again, which fences the ids that it needs."""
    ground = Ground(tmp_path)
    assert ground.begin().owned(IDS + 1) is None
    ground.taking.broker.close.assert_called_once_with()


def test_its_failure_is_the_first_runs(tmp_path: Path) -> None:
    """So it is shown, and tried again with back-off, as that of any take-over."""
    ground = Ground(tmp_path)
    ground.taking.error = StorageError("The store is away.")
    ahead = ground.begin()
    with pytest.raises(StorageError):
        ahead.owned(IDS)
    assert ahead.owned(IDS) is None


def test_what_is_dropped_is_closed_once_its_step_ends(tmp_path: Path) -> None:
    """To drop it waits for no broker; its end is waited for, as a take-over that comes later would be fenced by it.

    Fencing waits no longer then.
    """
    ground = Ground(tmp_path)
    ground.taking.may_end.clear()
    ahead = ground.begin()
    assert ground.taking.begun.wait(60)
    ahead.drop()
    assert ground.taking.kafka.fence.keywords["stopped"]()
    assert not ahead.join(0.01)
    ground.taking.may_end.set()
    ahead.end()
    assert (ahead.owned(IDS), ground.taking.broker.close.call_count) == (None, 1)


@pytest.mark.parametrize(("own", "stored", "ids"), [("", 0, 4), ("", 6, 6), ("2", 6, 2)])
def test_the_file_then_the_catalog_says_how_many_ids_there_are(tmp_path: Path, own: str, stored: int, ids: int) -> None:
    """Spark's JVM may count fewer cores than this process: what it counted before is in the catalog."""
    ground = Ground(tmp_path, **({"tasks.max": own} if own else {}))
    if stored:
        catalog = Catalog.open(ground.storage, NAME)
        catalog.take_over("other:1", NOW)
        catalog.commit(lambda _: [SetBuckets(count=stored)], NOW)
    assert ground.begin(4).join(60)
    assert ground.taking.asked == [ids]


class Supervised:
    """A supervisor with a stand-in for its take-over ahead, which notes what it is told."""

    def __init__(self, folder: Path) -> None:
        self.worker = load_worker(worker_file(folder))
        config = load_connector(connector_file(folder), self.worker).config
        self.storage = connector_storage(self.worker, NAME)
        self.ahead = Mock()
        self.task = Mock(catalog=None, counted=None)
        self.one = Supervisor(
            self.worker,
            config,
            ManualClock(),
            Observer(),
            tasks=lambda *_: self.task,
            changers=Mock(),
        )
        self.one.ahead = self.ahead

    def told(self) -> list[str]:
        return [name for name, *_ in self.ahead.method_calls]


@pytest.mark.parametrize("another", [False, True])
def test_a_worker_that_lives_is_fenced_only_once_spark_is_up(tmp_path: Path, another: bool) -> None:
    """Else a worker without a Spark that starts would end one that works."""
    ground = Supervised(tmp_path)
    lock = OwnerLock(ground.storage)
    if another:
        assert lock.claim(this_process())
    ground.one.take_lock(Start(ground.storage, 1))
    ground.one.take_over_ahead(2, tuple)
    assert ground.told() == ([] if another else ["begin"])
    ground.one.release()
    lock.release()


@pytest.mark.parametrize("resync", [False, True])
def test_a_run_that_changes_offsets_takes_over_itself(tmp_path: Path, resync: bool) -> None:
    """Offsets change between T2 and T3, so that the other take-over has ended before."""
    ground = Supervised(tmp_path)
    if resync:
        leave(ground.storage, "resync", 0)
    ground.one.start(RunContext(Mock(), Mock(), once=True))
    assert ground.one.join(60)
    assert ground.told()[0] == ("end" if resync else "drop")
    assert ground.task.run.call_args.kwargs["ahead"] == ground.ahead.owned


def test_a_supervisor_that_stops_before_its_run_waits_for_what_is_taken_over_ahead(tmp_path: Path) -> None:
    """What takes its place would be fenced by it."""
    ground = Supervised(tmp_path)
    ground.one.take_lock(Start(ground.storage, 1))
    ground.one.take_over_ahead(2, tuple)
    ground.ahead.join.return_value = False
    ground.one.stop()
    assert ground.told() == ["begin", "drop"]
    assert not ground.one.join(0)
    ground.one.release()


def test_connectors_that_are_to_pause_are_not_taken_over_ahead(tmp_path: Path) -> None:
    """What is there of cores is shared by all."""
    herd = Herd(tmp_path)
    begun: dict[str, int] = {}

    def supervise(worker: object, config: Any, *others: object) -> Any:
        made: Any = herd.make(worker, config, *others)
        made.take_over_ahead = lambda tasks_max, _: begun.setdefault(config.name, tasks_max)
        return made

    herd.supervise = supervise
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    files = [connector_file(tmp_path / name, name=name, topics=name) for name in ("a", "b")]
    herder = herd.begin(*files)
    herder.specs.target("a", TargetState.PAUSED)
    herder.take_over_ahead(6)
    assert begun == {"b": 3}


@pytest.mark.parametrize(("master", "cores"), [("local[3]", [3]), ("spark://127.0.0.1:1", [])])
def test_a_worker_takes_over_before_it_waits_for_spark(
    tmp_path: Path, master: str, cores: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that fails has had it begin."""
    asked: list[int] = []

    def wait(_: float) -> None:
        assert asked == cores
        raise StorageError("Spark does not start.")

    config = load_worker(worker_file(tmp_path, **{"spark.master": master}))
    worker = worker_over(config, [], starting(wait))
    monkeypatch.setattr("connectors.runtime.herder.Herder.take_over_ahead", lambda _, its: asked.append(its))
    with pytest.raises(StorageError, match="does not start"):
        worker.run(once=False, lives_on=True)
