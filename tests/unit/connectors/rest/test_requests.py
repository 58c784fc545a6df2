"""Each endpoint of the worker itself: status, headers and body of good requests and of bad ones, over a real socket."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
import structlog

from compactor.errors import StorageError
from connectors.clock import SystemClock
from connectors.config.files import load_connector, load_worker
from connectors.rest.listeners import bind
from tests.support.cli import NAME, connector_file, worker_file
from tests.support.rest import RestWorker, message, rest_worker, rest_worker_of

JSON = {"Content-Type": "application/json"}
CLASS = {"connector.class": "keyfold.CompactedTopic"}


def test_the_worker_says_which_it_is(worker: RestWorker) -> None:
    """GET / and GET /health, which tools call first."""
    found = worker.ask("GET", "/")
    assert (found.status_code, set(found.json())) == (200, {"version", "commit", "kafka_cluster_id"})
    assert all(isinstance(value, str) for value in found.json().values())
    assert worker.ask("GET", "/health").json() == {
        "status": "healthy",
        "message": "Worker has completed startup and is ready to handle requests.",
    }


@pytest.mark.parametrize(("health", "code"), [("starting", 503), ("healthy", 200), ("unhealthy", 500)])
def test_health_is_the_workers(worker: RestWorker, health: str, code: int) -> None:
    """KIP-1017: never that of a connector."""
    worker.create("a")
    worker.supervisor("a").fail("Away.")
    worker.health = health
    found = worker.ask("GET", "/health")
    assert (found.status_code, found.json()["status"]) == (code, health)


def test_strict_health_is_also_its_connectors(worker: RestWorker) -> None:
    """`strict=true` fails, and names each connector that is FAILED."""
    worker.create("a")
    assert worker.ask("GET", "/health?strict=true").status_code == 200
    worker.supervisor("a").fail("Topic t is gone.")
    found = worker.ask("GET", "/health?strict=TRUE")
    assert (found.status_code, found.json()["status"]) == (500, "unhealthy")
    assert "connector a is FAILED: Topic t is gone." in found.json()["message"]
    assert worker.ask("GET", "/health?strict=perhaps").status_code == 200


def test_loggers(worker: RestWorker) -> None:
    """Their levels are read and set while the worker runs, in any case; root is among them."""
    assert set(worker.ask("GET", "/admin/loggers").json()["root"]) == {"level", "last_modified"}
    name = "connectors.test.loggers"
    touched = worker.ask("PUT", f"/admin/loggers/{name}", json={"level": "debug"})
    assert (touched.status_code, touched.json()) == (200, [name])
    found = worker.ask("GET", f"/admin/loggers/{name}").json()
    assert (found["level"], isinstance(found["last_modified"], int)) == ("DEBUG", True)
    assert worker.ask("GET", "/admin/loggers").json()[name] == found
    everywhere = worker.ask("PUT", f"/admin/loggers/{name}?scope=cluster", json={"level": "WARN"})
    assert (everywhere.status_code, everywhere.content) == (204, b"")
    bad = worker.ask("PUT", f"/admin/loggers/{name}", json={"level": "loud"})
    assert (bad.status_code, message(bad)) == (404, "invalid log level 'loud'.")
    assert worker.ask("PUT", f"/admin/loggers/{name}", json={}).status_code == 400
    assert worker.ask("GET", "/admin/loggers/no.such.logger").status_code == 404


@pytest.fixture
def levels() -> Iterator[None]:
    """Gives all loggers of other tests the levels again that they had."""
    loggers = [logging.getLogger(), *map(logging.getLogger, tuple(logging.root.manager.loggerDict))]
    before = {logger: logger.level for logger in loggers}
    yield
    for logger in map(logging.getLogger, tuple(logging.root.manager.loggerDict)):
        logger.setLevel(before.get(logger, logging.NOTSET))
    logging.getLogger().setLevel(before[logging.getLogger()])


@pytest.mark.parametrize(
    "name",
    [
        *("py4j", "py4j.clientserver", "py4j.not.there.yet"),
        "httpcore",
        "httpcore.http11",
        "botocore",
        "botocore.parsers",
    ],
)
@pytest.mark.usefixtures("levels")
def test_a_logger_that_writes_secrets_stays_above_them(worker: RestWorker, name: str) -> None:
    """Py4J's token runs code in Spark's JVM: neither the logger itself nor one above it leads there."""
    own = worker.ask("PUT", f"/admin/loggers/{name}", json={"level": "INFO"})
    assert name in own.json()
    refused = worker.ask("PUT", f"/admin/loggers/{name}", json={"level": "TRACE"})
    assert refused.status_code == 400
    assert f"Logger {name} is not set to TRACE: it writes secrets below INFO." in message(refused)
    assert worker.ask("PUT", "/admin/loggers/root", json={"level": "DEBUG"}).status_code == 200
    assert worker.ask("GET", f"/admin/loggers/{name}").json()["level"] == "INFO"
    assert not logging.getLogger(f"{name}.new").isEnabledFor(logging.DEBUG)


def test_levels_are_this_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When one was set is told in ms of the worker's clock, and the next worker knows nothing of it."""
    path = "/admin/loggers/connectors.test.own"
    for now_ms in (7, 8):
        monkeypatch.setattr(SystemClock, "now_ms", lambda _, now_ms=now_ms: now_ms)
        with rest_worker(tmp_path) as worker:
            worker.ask("PUT", "/admin/loggers/connectors.test.other", json={"level": "INFO"})
            before = worker.ask("GET", path)
            assert before.status_code == 404 or before.json()["last_modified"] is None
            worker.ask("PUT", path, json={"level": "INFO"})
            assert worker.ask("GET", path).json() == {"level": "INFO", "last_modified": now_ms}


def test_the_commit_is_asked_for_once(tmp_path: Path) -> None:
    """A request starts no process."""
    asked = Mock(return_value="abc1234")
    with rest_worker_of(tmp_path, asked) as worker:
        assert [worker.ask("GET", "/").json()["commit"] for _ in range(3)] == ["abc1234"] * 3
    assert asked.call_count == 1


def test_paths_and_methods_as_in_connect(worker: RestWorker) -> None:
    """A slash at the end, HEAD and OPTIONS are taken; what there is not is an error in the same form."""
    worker.create("a")
    for path in ("/connectors/", "/connectors/a/", "/connectors/a/status/", "/admin/loggers/", "/connector-plugins/"):
        assert worker.ask("GET", path).status_code == 200
    head = worker.ask("HEAD", "/connectors")
    assert (head.status_code, head.content) == (200, b"")
    options = worker.ask("OPTIONS", "/connectors/a/config")
    assert (options.status_code, options.text) == (200, "GET, HEAD, OPTIONS, PATCH, PUT")
    assert options.headers["content-type"].startswith("text/plain")
    for method, path, code, said in (
        ("GET", "/nope", 404, "HTTP 404 Not Found"),
        ("PUT", "/connectors", 405, "HTTP 405 Method Not Allowed"),
        ("POST", "/connectors/a/tasks", 405, "HTTP 405 Method Not Allowed"),
        ("PUT", "/connectors/a/fence", 404, "HTTP 404 Not Found"),
        ("GET", "/connectors/a/tasks-config", 404, "HTTP 404 Not Found"),
    ):
        found = worker.ask(method, path)
        assert (found.status_code, message(found)) == (code, said)


@pytest.mark.parametrize("path", ["/connectors/a%2F", "/connectors/a%2foffsets", "/connectors%2Fa"])
def test_a_slash_of_a_name_is_none_of_the_path(worker: RestWorker, path: str) -> None:
    """No connector has one in its name, so there is nothing to answer; `DELETE /connectors/a%2F` deletes no `a`."""
    worker.create("a")
    assert worker.ask("DELETE", path).status_code == 404
    assert worker.ask("GET", "/connectors").json() == ["a"]


def test_media_types(worker: RestWorker) -> None:
    """415 for a body that is not JSON, 406 where no JSON is taken; a GET may say that it sends JSON."""
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        found = worker.ask("POST", "/connectors", content="x", headers={"Content-Type": kind})
        assert (found.status_code, message(found)) == (415, "HTTP 415 Unsupported Media Type")
    made = worker.ask(
        "PUT",
        "/connectors/a/config",
        content=json.dumps({**CLASS, "topics": "t"}),
        headers={"Content-Type": "application/json; charset=utf-8"},
    )
    assert made.status_code == 201
    refused = worker.ask("GET", "/connectors", headers={"Accept": "image/png"})
    assert (refused.status_code, message(refused)) == (406, "HTTP 406 Not Acceptable")
    assert worker.ask("GET", "/connectors", headers={"Accept": "application/json", **JSON}).status_code == 200


def test_a_connector_of_a_file(tmp_path: Path) -> None:
    """Its config is its file's: 409 names that. All else works."""
    file = load_connector(connector_file(tmp_path))
    with rest_worker(tmp_path, file) as worker:
        for method, path, body in (
            ("PUT", f"/connectors/{NAME}/config", {**CLASS, "topics": "u"}),
            ("PATCH", f"/connectors/{NAME}/config", {"tasks.max": 3}),
            ("DELETE", f"/connectors/{NAME}", None),
        ):
            found = worker.ask(method, path, json=body)
            assert (found.status_code, str(file.path) in message(found)) == (409, True), found.text
        assert worker.ask("PUT", f"/connectors/{NAME}/pause").status_code == 202
        assert worker.ask("GET", f"/connectors/{NAME}/status").json()["connector"]["state"] == "PAUSED"


def test_what_cannot_be_stored_is_not_made(worker: RestWorker) -> None:
    """500 with the reason and what to do; the connector is not there."""

    def full() -> None:
        raise StorageError("storage.location is full.", "Free space there.")

    worker.storage.before("create", full, "connectors/a")
    found = worker.create("a")
    assert (found.status_code, message(found)) == (500, "storage.location is full. Free space there.")
    assert worker.ask("GET", "/connectors").json() == []


def test_a_defect_says_so(worker: RestWorker) -> None:
    """500 in the same form, and nothing of the program's insides."""

    def broken() -> list[str]:
        raise ZeroDivisionError("division by zero")

    worker.herder.answer = broken
    with structlog.testing.capture_logs() as logged:
        found = worker.ask("GET", "/connectors")
    assert [(line["event"], line["path"]) for line in logged] == [("request failed", "/connectors")]
    assert (found.status_code, "defect" in message(found), "division" in found.text) == (500, True, False)


def test_an_answers_body_waits_for_no_acknowledgement(tmp_path: Path) -> None:
    """Headers and body are sent one after the other; a client acknowledges the first only 40 ms later."""
    (bound,) = bind(load_worker(worker_file(tmp_path, listeners="http://127.0.0.1:0")))
    with bound.socket, socket.create_connection(("127.0.0.1", bound.port)):
        accepted, _ = bound.socket.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
