"""Requests that wait for a store, a broker or a check: they are few and counted, and all others are answered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from inspect import iscoroutinefunction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bcrypt
import httpx
import pytest
from fastapi.routing import APIRoute

from compactor.catalog.catalog import Catalog
from compactor.model.log import PartitionLog
from connectors.config.connector import ConnectorConfig
from connectors.config.files import checked
from connectors.config.worker import WorkerConfig
from connectors.rest import security
from connectors.rest.endpoints import connectors, lifecycle, loggers, offsets, plugins, worker_info
from connectors.rest.listeners import ClientLimits
from connectors.rest.slow_calls import Slow
from tests.support.kafka import wait_until
from tests.support.rest import RestWorker, limited_rest_worker, message
from tests.unit.connectors.rest.test_record_requests import keep_many

LATE_S = 30.0
PATIENT, IMPATIENT = ClientLimits(wait_s=0.2), ClientLimits(wait_s=0.05)
MANY = 45
"""Requests at once, more than the framework has threads."""
FROM_MEMORY = {
    *("list_connectors", "get_connector", "get_config", "get_status", "get_tasks", "get_task_status"),
    *("restart", "restart_task", "get_topics", "reset_topics", "list_plugins", "list_loggers", "get_logger"),
}
"""The endpoints that the framework's own threads answer: they look at values in memory, and wait for nothing."""


class Hanging:
    """Stands in for what does not answer until the test ends; counts who waits for it."""

    def __init__(self) -> None:
        self.waiting = 0
        self._turn = threading.Lock()
        self._released = threading.Event()

    def __call__(self, *_: object, **__: object) -> Any:
        with self._turn:
            self.waiting += 1
        assert self._released.wait(LATE_S)
        return SimpleNamespace(state=SimpleNamespace(logs=()))

    def release(self) -> None:
        self._released.set()


@pytest.fixture
def asking() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(MANY) as pool:
        yield pool


@pytest.fixture
def hanging(asking: ThreadPoolExecutor) -> Iterator[Hanging]:
    """Lets go before `asking` waits for its requests, so that a test that fails does so soon."""
    assert asking is not None
    found = Hanging()
    yield found
    found.release()


@pytest.fixture
def hanging_store(hanging: Hanging, monkeypatch: pytest.MonkeyPatch) -> Hanging:
    """A store of which no catalog is read."""
    monkeypatch.setattr(Catalog, "open", hanging)
    return hanging


def answers(worker: RestWorker, **more: Any) -> None:
    """Checks that a probe, a scrape and a console get what they ask for."""
    for path in ("/health", "/health?strict=true", "/", "/metrics", "/connectors", "/connectors/b/status"):
        assert worker.ask("GET", path, **more).status_code == 200, path
    assert worker.ask("GET", "/connectors?expand=info&expand=status", **more).status_code == 200


def refused(found: httpx.Response, kind: str) -> None:
    assert found.status_code == 503
    assert int(found.headers["retry-after"]) > 0
    assert f"{kind} are under way" in message(found)


@pytest.mark.parametrize("limits", [PATIENT])
def test_reads_of_a_store_that_hangs(worker: RestWorker, hanging_store: Hanging, asking: ThreadPoolExecutor) -> None:
    """As many wait as there are threads for them; the others are told when to ask again, and nothing else waits."""
    for name in ("a", "b"):
        worker.create(name)
    worker.supervisor("a").catalog_state = None
    most = Slow().reads.most
    asked = [asking.submit(worker.ask, "GET", "/connectors/a/offsets", timeout=LATE_S) for _ in range(MANY)]
    wait_until(lambda: hanging_store.waiting == most, "as many wait as may")
    answers(worker)
    assert worker.ask("PUT", "/connectors/b/pause").status_code == 202
    assert worker.create("c").status_code == 201
    assert worker.ask("GET", "/connectors/b/offsets").status_code == 200, "a connector that runs is known"
    wait_until(lambda: sum(one.done() for one in asked) == MANY - most, "the others are answered")
    for one in asked:
        if one.done():
            refused(one.result(), "reads")
    assert hanging_store.waiting == most
    hanging_store.release()
    assert sorted(one.result().status_code for one in asked) == [200] * most + [503] * (MANY - most)
    assert worker.ask("GET", "/connectors/a/offsets").status_code == 200, "the threads are free again"


@pytest.mark.parametrize("limits", [IMPATIENT])
def test_a_client_that_goes_leaves_its_call_counted(worker: RestWorker, hanging_store: Hanging) -> None:
    """The call still waits: who asks and goes, again and again, takes no more threads than others do."""
    worker.create("a")
    worker.supervisor("a").catalog_state = None
    most = Slow().reads.most
    for number in range(most):
        with pytest.raises(httpx.ReadTimeout):
            worker.ask("GET", "/connectors/a/offsets", timeout=0.1)
        wait_until(lambda number=number: hanging_store.waiting == number + 1, "the call waits")  # type: ignore[misc]
    refused(worker.ask("GET", "/connectors/a/offsets"), "reads")
    assert hanging_store.waiting == most


@pytest.mark.parametrize("limits", [PATIENT])
def test_changes_that_wait_for_the_store(worker: RestWorker, hanging: Hanging, asking: ThreadPoolExecutor) -> None:
    """Each connector's waits for itself; beyond a number they are refused, and reads and checks go on."""
    worker.create("b")
    most = Slow().changes.most
    for name in (*(f"c{number}" for number in range(most - 1)), "last"):
        worker.storage.before("create", hanging, f"connectors/{name}")
    made = [asking.submit(worker.create, f"c{number}") for number in range(most - 1)]
    wait_until(lambda: hanging.waiting == most - 1, "the others wait for the store")
    answers(worker)
    assert worker.ask("PUT", "/connectors/b/pause").status_code == 202
    made.append(asking.submit(worker.create, "last"))
    wait_until(lambda: hanging.waiting == most, "no thread is free")
    refused(worker.create("d"), "changes")
    answers(worker)
    body = {"connector.class": "CompactedTopic", "name": "e", "topics": "e"}
    path = "/connector-plugins/CompactedTopic/config/validate"
    assert worker.ask("PUT", path, json=body).status_code == 200
    hanging.release()
    assert [one.result().status_code for one in made] == [201] * most


class LateForLookUps:
    """A connector's catalog, whose logs are late for look-ups on the threads of one kind."""

    key_identity = None
    is_of_topics = False

    def __init__(self, logs: tuple[PartitionLog, ...], hanging: Hanging, kind: str) -> None:
        self._logs = logs
        self._hanging = hanging
        self._kind = kind

    @property
    def logs(self) -> tuple[PartitionLog, ...]:
        if self._kind in threading.current_thread().name:
            self._hanging()
        return self._logs


@pytest.mark.parametrize("limits", [PATIENT])
def test_look_ups_in_many_runs(worker: RestWorker, hanging: Hanging, asking: ThreadPoolExecutor) -> None:
    """One takes a core for a while: a second waits for it, and those of few runs do not."""
    keep_many(worker, 1_100)
    supervisor = worker.supervisor("a")
    supervisor.catalog_state = LateForLookUps(supervisor.catalog_state.logs, hanging, "wide")
    path = "/keyfold/connectors/a/records?key=b"
    asked = asking.submit(worker.ask, "GET", path, timeout=LATE_S)
    wait_until(lambda: hanging.waiting == 1, "it is made")
    refused(worker.ask("GET", path), "wide look-ups")
    assert worker.ask("GET", f"{path}&partition=7").status_code == 200
    hanging.release()
    assert asked.result().status_code == 200


@pytest.mark.parametrize("limits", [PATIENT])
def test_look_ups_in_a_folder(worker: RestWorker, hanging: Hanging, asking: ThreadPoolExecutor) -> None:
    """Two are made side by side: they compute, and more of them would only wait for each other's turn."""
    keep_many(worker, 1)
    supervisor = worker.supervisor("a")
    supervisor.catalog_state = LateForLookUps(supervisor.catalog_state.logs, hanging, "rest-look-ups")
    path = "/keyfold/connectors/a/records?key=b"
    asked = [asking.submit(worker.ask, "GET", path, timeout=LATE_S) for _ in range(2)]
    wait_until(lambda: hanging.waiting == 2, "both are made")
    refused(worker.ask("GET", path), "2 look-ups")
    hanging.release()
    assert [each.result().status_code for each in asked] == [200, 200]


@pytest.mark.parametrize("limits", [PATIENT])
def test_checks_that_take_long(
    worker: RestWorker, monkeypatch: pytest.MonkeyPatch, hanging: Hanging, asking: ThreadPoolExecutor
) -> None:
    """A user's pattern may run for long: that of some is a matter of their requests alone."""
    worker.create("b")

    def late(given: dict[str, str], worker: WorkerConfig) -> ConnectorConfig:
        hanging()
        return checked(given, worker)

    monkeypatch.setattr(plugins, "checked", late)
    body = {"connector.class": "CompactedTopic", "name": "e", "topics": "e"}
    path = "/connector-plugins/CompactedTopic/config/validate"
    most = Slow().checks.most
    asked = [asking.submit(worker.ask, "PUT", path, json=body, timeout=LATE_S) for _ in range(most)]
    wait_until(lambda: hanging.waiting == most, "as many wait as may")
    refused(worker.ask("PUT", path, json=body), "checks")
    answers(worker)
    assert worker.ask("PUT", "/connectors/b/pause").status_code == 202
    hanging.release()
    assert [one.result().status_code for one in asked] == [200] * most


ROUTER = "org.apache.kafka.connect.transforms.RegexRouter"
ROUTERS = {
    f"transforms.r{number}.{name}": text
    for number in range(100)
    for name, text in (("type", ROUTER), ("regex", "(.*)"), ("replacement", "$1"))
}
LARGE = {
    "connector.class": "CompactedTopic",
    "topics": ",".join(f"t{number}" for number in range(1_000)),
    "transforms": ",".join(f"r{number}" for number in range(100)),
    **ROUTERS,
}
"""A config whose check takes half a second of a core."""


@pytest.mark.parametrize("limits", [PATIENT])
def test_checks_of_changes(worker: RestWorker, asking: ThreadPoolExecutor) -> None:
    """What is checked to be stored waits for other checks, and no other connector's change does."""
    worker.create("b")
    most = Slow().changes.most

    def make(number: int) -> int:
        named = {**LARGE, "output.topic": f"${{topic}}.{number}"}
        return worker.ask("PUT", f"/connectors/c{number}/config", json=named, timeout=LATE_S).status_code

    made = [asking.submit(make, number) for number in range(most)]
    while not all(each.done() for each in made):
        assert worker.ask("PUT", "/connectors/b/pause", timeout=LATE_S).status_code == 202
    assert 503 in {each.result() for each in made}, "they are more than are checked at once"
    assert {each.result() for each in made} <= {201, 503}


def test_who_logs_in_beside_requests_that_wait(
    tmp_path: Path, hanging_store: Hanging, asking: ThreadPoolExecutor
) -> None:
    """A password is checked on threads of its own."""
    users = tmp_path / "users"
    users.write_text(f"ann:{bcrypt.hashpw(b'one', bcrypt.gensalt(4)).decode()}:admin\n")
    auth = ("ann", "one")
    hanging, settings = hanging_store, {"rest.auth": "basic", "rest.auth.users.file": str(users)}
    with limited_rest_worker(tmp_path, PATIENT, **settings) as worker:
        for name in ("a", "b"):
            body = {"connector.class": "CompactedTopic", "topics": name}
            assert worker.ask("PUT", f"/connectors/{name}/config", json=body, auth=auth).status_code == 201
        worker.supervisor("a").catalog_state = None
        asked: list[Future[httpx.Response]] = [
            asking.submit(worker.ask, "GET", "/connectors/a/offsets", auth=auth, timeout=LATE_S) for _ in range(MANY)
        ]
        wait_until(lambda: hanging.waiting > 0, "they wait for the store")
        answers(worker, auth=auth)
        assert worker.ask("GET", "/connectors", auth=("ann", "two")).status_code == 401
        hanging.release()
        assert {one.result().status_code for one in asked} <= {200, 503}


def test_a_users_file_that_is_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hanging: Hanging) -> None:
    """Log-ins that wait for its disk are counted too; how the worker is needs none."""
    users = tmp_path / "users"
    users.write_text(f"ann:{bcrypt.hashpw(b'one', bcrypt.gensalt(4)).decode()}:admin\n")
    settings = {"rest.auth": "basic", "rest.auth.users.file": str(users)}
    with (
        limited_rest_worker(tmp_path, IMPATIENT, **settings) as worker,
        ThreadPoolExecutor(security.LOGIN_THREADS) as pool,
    ):
        monkeypatch.setattr(security.Users, "_version", hanging)
        for _ in range(security.LOGIN_THREADS):
            pool.submit(worker.ask, "GET", "/connectors", auth=("ann", "one"))
        wait_until(lambda: hanging.waiting == security.LOGIN_THREADS, "as many wait as may")
        refused(worker.ask("GET", "/connectors", auth=("ann", "one")), "log-ins")
        assert worker.ask("GET", "/health").status_code == 200
        hanging.release()


def test_the_frameworks_threads_wait_for_nothing() -> None:
    """Any other endpoint is a coroutine: what it waits for it waits for by `context.slow`; so is what all depend on."""
    modules = (worker_info, connectors, lifecycle, offsets, plugins, loggers)
    routes = [route for module in modules for route in module.router.routes if isinstance(route, APIRoute)]
    assert {one.endpoint.__name__ for one in routes if not iscoroutinefunction(one.endpoint)} == FROM_MEMORY
    asked_for = {one.call for route in routes for one in route.dependant.dependencies}
    assert asked_for
    assert [call for call in asked_for if not iscoroutinefunction(call)] == []
