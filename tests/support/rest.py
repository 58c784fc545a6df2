"""A worker's REST interface over a real herder whose supervisors are stand-ins; asked over a real socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx

from compactor.metrics import Freshness
from compactor.storage.base import Storage
from connectors.clock import SystemClock
from connectors.config.connector import ConnectorConfig
from connectors.config.files import ConnectorFile, load_worker
from connectors.config.stores import worker_storage
from connectors.progress.observer import Observer
from connectors.rest.listeners import LIMITS, ClientLimits, bind
from connectors.rest.service import MakePage, listening
from connectors.runtime.herder import Herder
from connectors.runtime.lifecycle import RunState, TargetState
from connectors.runtime.specs.connector_store import FOLDER, ConnectorStore
from connectors.runtime.status import ConnectorState, Status
from connectors.runtime.supervisor import RunContext
from connectors.ui.app import WorkerPage
from tests.support.cli import worker_file
from tests.support.memory.storage import FailingStorage

BUCKETS = 2
TIMEOUT_S = 30.0


def client_of(url: str) -> httpx.Client:
    """Makes a client of a worker that is asked without TLS: it loads no certificates, which takes 40 ms."""
    return httpx.Client(base_url=url, timeout=TIMEOUT_S, verify=False)


class StandInSupervisor:
    """Is what it is told to be at once, without doing anything."""

    def __init__(self, config: ConnectorConfig) -> None:
        self.config = config
        self.status = Status()
        self.counters: dict[str, int] = {}
        self.freshness = Freshness()
        self.catalog_state: Any = Mock(buckets=config.tasks_max or BUCKETS, logs=(), topics={}, snapshots=())
        self.error: BaseException | None = None
        self.restarts = 0
        self.target = TargetState.RUNNING
        self.state = RunState.INIT
        self._over = False

    def hold(self) -> None:
        """Holds no lock."""

    def release(self) -> None:
        """Holds no lock."""

    def start(self, _: object) -> None:
        self.state = RunState.RUNNING
        if self.status.state is not ConnectorState.PAUSED:
            self.status = Status(ConnectorState.RUNNING)

    def aim(self, target: TargetState) -> None:
        if target is not self.target:
            self.status = Status(ConnectorState(target))
        self.target = target

    def restart(self) -> None:
        self.restarts += 1
        self.status = Status(ConnectorState.RUNNING)

    def stop(self, **_: object) -> None:
        self._over = True
        self.target = TargetState.STOPPED
        self.status = Status(ConnectorState.STOPPED)

    def fail(self, error: str, next_restart_ms: int | None = None) -> None:
        self.status = Status(ConnectorState.FAILED, error, 1, next_restart_ms)

    def wait(self, error: str, since_ms: int) -> None:
        """Waits for an outage to end."""
        self.status = Status(ConnectorState.RESTARTING, error, 1, since_ms + 1_000, since_ms)

    def join(self, _: float | None = None) -> bool:
        return self._over

    def is_alive(self) -> bool:
        return not self._over

    def has_failed(self) -> bool:
        return self.status.state is ConnectorState.FAILED


class AskedHerder(Herder):
    """Answers a question for all names with `answer`, if a test gives one."""

    answer: Callable[[], list[str]] | None = None

    def names(self) -> list[str]:
        return super().names() if self.answer is None else self.answer()


class RestWorker:
    """A worker that listens; a test lets calls of its connectors' `storage` fail."""

    def __init__(
        self, herder: AskedHerder, storage: FailingStorage, location: Storage, url: str, admin_url: str
    ) -> None:
        self.herder = herder
        self.storage = storage
        # storage.location, with a folder for each connector.
        self.location = location
        self.url = url
        self.admin_url = admin_url
        self.health = "healthy"
        self.client = client_of(url)

    def supervisor(self, name: str) -> StandInSupervisor:
        found = self.herder.connector(name).supervisor
        assert isinstance(found, StandInSupervisor)
        return found

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.client.request(method, path, **more)

    def create(self, name: str, **config: Any) -> httpx.Response:
        """Makes a connector that reads the topic of its own name."""
        settings = {"connector.class": "keyfold.CompactedTopic", "topics": name, **config}
        return self.ask("POST", "/connectors", json={"name": name, "config": settings})


@contextmanager
def rest_worker(folder: Path, *files: ConnectorFile, **settings: str) -> Iterator[RestWorker]:
    """Runs such a worker in `folder` during the block; its listeners take any free port."""
    yield from _listening(folder, LIMITS, settings, files)


@contextmanager
def rest_worker_with_page(folder: Path, page: MakePage, *files: ConnectorFile, **settings: str) -> Iterator[RestWorker]:
    """Runs such a worker with another page."""
    yield from _listening(folder, LIMITS, settings, files, page=page)


@contextmanager
def rest_worker_of(folder: Path, commit: Callable[[], str]) -> Iterator[RestWorker]:
    """Runs a `rest_worker` whose program is of the commit that `commit` tells; that of others is "none"."""
    yield from _listening(folder, LIMITS, {}, commit=commit)


@contextmanager
def limited_rest_worker(folder: Path, limits: ClientLimits, **settings: str) -> Iterator[RestWorker]:
    """Runs a `rest_worker` with other limits for its clients."""
    yield from _listening(folder, limits, settings)


def _supervise(_worker: object, config: ConnectorConfig, *_: object) -> Any:
    return StandInSupervisor(config)


def _listening(
    folder: Path,
    limits: ClientLimits,
    settings: Mapping[str, str],
    files: Sequence[ConnectorFile] = (),
    commit: Callable[[], str] = lambda: "none",  # Git takes 30 ms, for each of hundreds of tests
    page: MakePage = WorkerPage,
) -> Iterator[RestWorker]:
    config = load_worker(worker_file(folder, **{"listeners": "http://127.0.0.1:0", **settings}))
    storage = FailingStorage(worker_storage(config).sub(FOLDER))
    herder = AskedHerder(config, SystemClock(), Observer(), files, ConnectorStore(storage), _supervise)
    herder.changed = herder.reconcile
    herder.begin(RunContext(Mock(), Mock(), once=False, over=Mock()))
    urls: list[str] = []
    found = RestWorker(herder, storage, worker_storage(config), "", "")
    bound = bind(config, limits.connections)
    # Nothing asks the brokers for the cluster's id: there are none, and its thread would log to a command's stdout.
    with listening(
        config,
        herder,
        lambda: found.health,
        bound,
        urls.append,
        limits,
        lambda _: Mock(get=lambda: ""),
        commit,
        page,
    ):
        found.url, found.admin_url = urls[0], urls[-1]
        found.client = client_of(urls[0])
        yield found
        found.client.close()
    herder.release()


def message(answer: Any) -> str:
    """Returns the text of an error, whose form is checked."""
    body = answer.json()
    assert set(body) == {"error_code", "message"}
    assert body["error_code"] == answer.status_code
    assert answer.headers["content-type"] == "application/json"
    found: str = body["message"]
    return found
