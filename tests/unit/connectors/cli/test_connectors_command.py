"""`keyfold connectors`: each subcommand against a worker that listens, what it prints, and how it ends without one."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import Result

from compactor.errors import StorageError
from compactor.model.record import TopicPartition
from connectors.cli.commands import connectors
from connectors.cli.commands.connectors import PASSWORD_VARIABLE, URL_VARIABLE
from connectors.config.files import load_connector
from connectors.rest import client
from tests.support.cli import NAME, connector_file, invoke, worker_file
from tests.support.logs import log, run
from tests.support.measured import state
from tests.support.rest import BUCKETS, RestWorker, rest_worker

SECRET: Final = "geheim-4711"
WORDS: Final = ("list", "show", "create", "update", "pause", "resume", "stop", "restart", "delete", "offsets")
OF_ONE: Final = ("show", "pause", "resume", "stop", "restart", "delete", "offsets")
"""Those that take a connector's name."""


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SECRET", SECRET)
    for name in (URL_VARIABLE, PASSWORD_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[RestWorker]:
    with rest_worker(tmp_path, **{"config.providers.env.param.allowlist.pattern": "TEST_SECRET"}) as found:
        yield found


def asked(worker: RestWorker, *arguments: object) -> Result:
    """Runs `keyfold connectors ARGUMENTS…` against a worker."""
    return invoke("connectors", *arguments, "--url", worker.url)


def printed(worker: RestWorker, *arguments: object) -> str:
    """What a command says that ends well."""
    done = asked(worker, *arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def failed(done: Result, code: int) -> str:
    """What a command says on stderr that ends with `code`, and prints nothing."""
    assert (done.exit_code, done.stdout) == (code, ""), done.output
    assert "Traceback" not in done.stderr
    return done.stderr


def rows(text: str) -> list[list[str]]:
    """The cells of a table, whose columns are two spaces apart."""
    return [line.split() for line in text.splitlines()]


def state_of(worker: RestWorker, name: str) -> str:
    found: str = worker.ask("GET", f"/connectors/{name}/status").json()["connector"]["state"]
    return found


def test_every_subcommand_is_here() -> None:
    """Those of the help are those that are tried."""
    from connectors.cli.commands.connectors import app

    assert [command.name for command in app.registered_commands] == list(WORDS)


def test_list(worker: RestWorker) -> None:
    """A line for each connector, by name: its state, its tasks, what it reads, and the worker."""
    worker.create("b", topics="x,y")
    config = {"connector.class": "CompactedTopic", "topics.regex": "z.*"}
    worker.ask("PUT", "/connectors/c/config", json=config)
    worker.create("a")
    worker.supervisor("b").fail("Away.")
    worker.ask("PUT", "/connectors/c/stop")
    at = worker.url.removeprefix("http://")
    assert rows(printed(worker, "list")) == [
        ["CONNECTOR", "STATE", "TASKS", "TOPICS", "WORKER"],
        ["a", "RUNNING", str(BUCKETS), "a", at],
        ["b", "FAILED", str(BUCKETS), "x,y", at],
        ["c", "STOPPED", "0", "z.*", at],
    ]


def test_list_of_nothing(worker: RestWorker) -> None:
    """Only the headers, and an empty object."""
    assert len(rows(printed(worker, "list"))) == 1
    assert json.loads(printed(worker, "list", "--json")) == {}


def test_list_as_json(worker: RestWorker) -> None:
    """What Kafka Connect's REST says of all connectors: their status and their info."""
    worker.create("a")
    expected = worker.ask("GET", "/connectors?expand=status&expand=info").json()
    assert json.loads(printed(worker, "list", "--json")) == expected
    assert set(expected["a"]) == {"status", "info"}


def test_show(worker: RestWorker) -> None:
    """The state, the tasks, and each setting by its name; secrets are hidden, placeholders stay."""
    settings = {"producer.override.sasl.password": "${env:TEST_SECRET}", "consumer.override.sasl.password": SECRET}
    worker.create("a", **settings)
    first, blank, *table = printed(worker, "show", "a").splitlines()
    assert (first, blank) == (f"Connector a: RUNNING, {BUCKETS} tasks", "")
    assert rows("\n".join(table)) == [
        ["KEY", "VALUE"],
        ["connector.class", "keyfold.CompactedTopic"],
        ["consumer.override.sasl.password", "[hidden]"],
        ["name", "a"],
        ["producer.override.sasl.password", "${env:TEST_SECRET}"],
        ["topics", "a"],
    ]


def test_one_task_is_no_tasks(worker: RestWorker) -> None:
    """The count of a single task stands without a plural."""
    worker.create("a", **{"tasks.max": "1"})
    assert printed(worker, "show", "a").splitlines()[0] == "Connector a: RUNNING, 1 task"


def test_show_why_it_failed(worker: RestWorker) -> None:
    """The error and when it is started again stand below the state."""
    worker.create("a")
    worker.supervisor("a").fail("Topic t, partition 3, offset 7: no.", next_restart_ms=1_700_000_000_000)
    assert printed(worker, "show", "a").splitlines()[:4] == [
        f"Connector a: FAILED, {BUCKETS} tasks",
        "Topic t, partition 3, offset 7: no.",
        "Started again at 2023-11-14T22:13:20Z or before.",
        "",
    ]


def test_show_as_json(worker: RestWorker) -> None:
    """Its status and its config."""
    worker.create("a", **{"consumer.override.sasl.password": SECRET})
    found = printed(worker, "show", "a", "--json")
    assert json.loads(found) == {
        "status": worker.ask("GET", "/connectors/a/status").json(),
        "config": worker.ask("GET", "/connectors/a/config").json(),
    }
    assert SECRET not in found


@pytest.mark.parametrize("wrapped", [False, True])
def test_create(worker: RestWorker, tmp_path: Path, wrapped: bool) -> None:
    """The worker has what the file says; relative paths count from the file, placeholders are not resolved."""
    file = connector_file(
        tmp_path, **{"snapshot.location": "snapshots", "producer.override.sasl.password": "${env:TEST_SECRET}"}
    )
    if wrapped:
        content = json.loads(file.read_text())
        file.write_text(json.dumps({"name": content.pop("name"), "config": content}))
    assert printed(worker, "create", file) == f"Connector {NAME} was made.\n"
    file.unlink()
    given = worker.herder.connector(NAME).spec.config.given
    assert given == {
        "name": NAME,
        "connector.class": "keyfold.CompactedTopic",
        "topics": "orders",
        "snapshot.location": f"{tmp_path}/snapshots",
        "producer.override.sasl.password": "${env:TEST_SECRET}",
    }


def test_create_makes_new_ones_only(worker: RestWorker, tmp_path: Path) -> None:
    """One that is there is left as it is: exit code 2."""
    worker.create(NAME, topics="t")
    assert f"error: Connector {NAME} already exists" in failed(asked(worker, "create", connector_file(tmp_path)), 2)
    assert worker.herder.connector(NAME).spec.config.given["topics"] == "t"


def test_update(worker: RestWorker, tmp_path: Path) -> None:
    """Makes the connector, or changes it to what the file says."""
    for tasks in (1, 2):
        file = connector_file(tmp_path, **{"tasks.max": str(tasks)})
        assert printed(worker, "update", file) == f"Connector {NAME} has the config of {file}.\n"
        assert worker.herder.connector(NAME).spec.config.tasks_max == tasks


@pytest.mark.parametrize("word", ["create", "update"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "this is not JSON"),
        ('{"name": "a", "connector.class": "keyfold.CompactedTopic", "topics": "t", "tasks.max": "q"}', "tasks.max"),
        ('{"name": "../a", "connector.class": "keyfold.CompactedTopic", "topics": "t"}', "name"),
        (None, "cannot be read"),
    ],
)
def test_a_faulty_file_is_not_sent(worker: RestWorker, tmp_path: Path, word: str, content: str, said: str) -> None:
    """Exit code 3, with the file and the key; the worker is not asked."""
    file = tmp_path / "a.json"
    if content is not None:
        file.write_text(content)
    found = failed(asked(worker, word, file), 3)
    assert f"error: {file}: " in found
    assert said in found
    assert worker.herder.names() == []


@pytest.mark.parametrize("word", ["create", "update"])
def test_what_the_worker_refuses_is_a_fault_of_the_file(worker: RestWorker, tmp_path: Path, word: str) -> None:
    """A connector that clashes with another of the worker's: exit code 3, and the worker's words."""
    worker.create("a", topics="orders")
    found = failed(asked(worker, word, connector_file(tmp_path)), 3)
    assert "error: Connector configuration is invalid and contains the following 1 error(s):" in found
    assert 'is also the output topic of connector "a"' in found


@pytest.mark.parametrize(
    ("word", "said", "is_then"),
    [
        ("pause", "is being paused.", "PAUSED"),
        ("stop", "is being stopped.", "STOPPED"),
        ("resume", "is being resumed.", "RUNNING"),
    ],
)
def test_what_it_is_to_be(worker: RestWorker, word: str, said: str, is_then: str) -> None:
    """Each is asked for and said, of the connector that is named only."""
    before = "pause" if word == "resume" else "resume"
    for name in ("a", "b"):
        worker.create(name)
        worker.ask("PUT", f"/connectors/{name}/{before}")
    other = state_of(worker, "b")
    assert printed(worker, word, "a") == f"Connector a {said}\n"
    assert (state_of(worker, "a"), state_of(worker, "b")) == (is_then, other)
    assert is_then != other


def test_restart(worker: RestWorker) -> None:
    """The connector that is named is started again, whether it runs or is FAILED."""
    for name in ("a", "b"):
        worker.create(name)
    assert printed(worker, "restart", "a") == "Connector a is being restarted.\n"
    worker.supervisor("a").fail("Away.")
    printed(worker, "restart", "a")
    assert (worker.supervisor("a").restarts, worker.supervisor("b").restarts) == (2, 0)
    assert state_of(worker, "a") == "RUNNING"


def test_delete(worker: RestWorker) -> None:
    """It is gone from the worker, and the others are not; what it has published is said to stay."""
    worker.create("a")
    worker.create("b")
    said = "Connector a is deleted on the worker; what it keeps and has published stays.\n"
    assert printed(worker, "delete", "a") == said
    assert worker.ask("GET", "/connectors").json() == ["b"]


def test_offsets(worker: RestWorker) -> None:
    """The next source offset of each partition, by topic and number."""
    worker.create("a")
    logs = [
        log(run(0, 9, 1), published=5, tp=TopicPartition("u", 1)),
        log(run(0, 3, 1), tp=TopicPartition("t", 10)),
        log(tp=TopicPartition("t", 2)),
    ]
    worker.supervisor("a").catalog_state = state(*logs)
    assert rows(printed(worker, "offsets", "a")) == [
        ["TOPIC", "PARTITION", "OFFSET"],
        ["t", "2", "0"],
        ["t", "10", "3"],
        ["u", "1", "5"],
    ]
    found = json.loads(printed(worker, "offsets", "a", "--json"))
    assert found == worker.ask("GET", "/connectors/a/offsets").json()
    assert found["offsets"][2] == {
        "partition": {"kafka_topic": "u", "kafka_partition": 1},
        "offset": {"kafka_offset": 5},
    }


def test_offsets_of_what_has_published_nothing(worker: RestWorker) -> None:
    """A sentence, and an empty list."""
    worker.create("a")
    assert printed(worker, "offsets", "a") == "Connector a has published nothing yet.\n"
    assert json.loads(printed(worker, "offsets", "a", "--json")) == {"offsets": []}


@pytest.mark.parametrize("word", OF_ONE)
def test_a_connector_that_there_is_not(worker: RestWorker, word: str) -> None:
    """Exit code 2 and where to look, whatever letters its name has; no other connector is touched."""
    worker.create("a")
    for name in ("nope", "", "..", "a b", "a/", "a/status", "ä", "a?b", "a#b", "%61"):
        found = failed(asked(worker, word, name), 2)
        assert found.endswith("\nnext: keyfold connectors list shows those that there are.\n")
    assert state_of(worker, "a") == "RUNNING"


@pytest.mark.parametrize("word", ["delete", "update"])
def test_a_connector_of_a_file_is_its_files(tmp_path: Path, word: str) -> None:
    """Exit code 2, and the file that is to be changed."""
    path = connector_file(tmp_path)
    with rest_worker(tmp_path, load_connector(path)) as worker:
        found = failed(asked(worker, word, NAME if word == "delete" else path), 2)
        assert f"error: Connector {NAME} comes from the file {path}." in found
        assert worker.herder.names() == [NAME]


def test_a_failure_of_the_workers(worker: RestWorker, tmp_path: Path) -> None:
    """Exit code 1, and what the worker says."""

    def full() -> None:
        raise StorageError("No space left on device.", "Free space there.")

    worker.storage.before("create", full, "connectors/")
    found = failed(asked(worker, "create", connector_file(tmp_path)), 1)
    assert found == "error: No space left on device. Free space there.\n"


@pytest.mark.parametrize("word", WORDS)
def test_a_worker_that_is_not_there(tmp_path: Path, word: str) -> None:
    """Exit code 4, its address, and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    arguments = {"list": (), "create": (connector_file(tmp_path),), "update": (connector_file(tmp_path),)}
    found = failed(invoke("connectors", word, *arguments.get(word, ("a",)), "--url", url), 4)
    assert found.startswith(f"error: No worker answers at {url}: ")
    assert "next: Start one with listeners, or name another address with --url." in found


def test_a_worker_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for as long as Kafka Connect itself may take, and then it is exit code 4."""
    monkeypatch.setattr(client, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert f"No worker answers at {url}: the answer was not complete in time." in failed(
            invoke("connectors", "list", "--url", url), 4
        )


@pytest.mark.parametrize(
    "url",
    ["", "localhost", "localhost:8083", "ftp://localhost", "http://", "http://:8083", "http://[::1", "http://h:port"],
)
def test_what_is_no_address(url: str) -> None:
    """Exit code 2, the text as it was given, and the form of an address."""
    found = failed(invoke("connectors", "list", "--url", url), 2)
    assert found == f'error: --url "{url}" is no address of a worker.\nnext: Write http://HOST:PORT.\n'


def test_the_address_from_the_environment(worker: RestWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked where no other is named; a slash at its end is none of a path."""
    monkeypatch.setenv(URL_VARIABLE, f"{worker.url}/")
    worker.create("a")
    assert rows(invoke("connectors", "list").stdout)[1][0] == "a"
    monkeypatch.setenv(URL_VARIABLE, "http://127.0.0.1:1")
    assert rows(printed(worker, "list"))[1][0] == "a"


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """Something that is no worker, which answers every GET; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "body", "code", "said"),
    [
        (200, b"<html>Hello</html>", 4, "is no worker: its answer is not JSON."),
        (200, b"\xff", 4, "is no worker: its answer is not JSON."),
        (302, b"", 1, "The worker answered 302 Found."),
        (404, b"<html>Nothing</html>", 2, "The worker answered 404 Not Found."),
        (502, b"[]", 1, "The worker answered 502 Bad Gateway."),
        (502, b"{}", 1, "The worker answered 502 Bad Gateway."),
        (599, b"", 1, "The worker answered 599."),
    ],
)
def test_answers_that_are_no_workers(status: int, body: bytes, code: int, said: str) -> None:
    """A proxy, or another program at that address: what came is said, without a traceback."""
    with answering(status, body) as url:
        assert said in failed(invoke("connectors", "list", "--url", url), code)


def test_the_worker_file_says_where_the_worker_is(
    worker: RestWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named with --worker, or worker.json in the current folder; --url wins."""
    worker.create("a")
    folder = tmp_path / "here"
    folder.mkdir()
    path = worker_file(folder, listeners=worker.url)
    assert invoke("connectors", "list", "--worker", path).exit_code == 0
    other = worker_file(tmp_path, listeners="http://127.0.0.1:1")
    assert invoke("connectors", "list", "--worker", other).exit_code == 4
    assert invoke("connectors", "list", "--worker", other, "--url", worker.url).exit_code == 0
    monkeypatch.chdir(folder)
    path.rename("worker.json")
    assert invoke("connectors", "show", "a").exit_code == 0


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({"listeners": "http://0.0.0.0:81,http://127.0.0.1:82", "rest.auth": "none"}, "http://127.0.0.1:81"),
        ({"listeners": "http://[::]:81", "rest.auth": "none"}, "http://[::1]:81"),
        ({"listeners": "http://127.0.0.1:0", "rest.advertised.port": "85"}, "http://127.0.0.1:85"),
        (
            {
                "listeners": "http://127.0.0.1:81",
                "rest.advertised.host.name": "front",
                "rest.advertised.port": "443",
                "rest.advertised.listener": "https",
            },
            "https://front:443",
        ),
    ],
)
def test_the_address_is_the_advertised_one_or_the_first_listener(
    tmp_path: Path, settings: dict[str, str], url: str
) -> None:
    """One on all addresses is reached on this machine."""
    assert connectors.address(None, worker_file(tmp_path, **settings)) == url


@pytest.mark.parametrize("listeners", ["", "http://127.0.0.1:0"])
def test_a_worker_file_that_does_not_say_it_is_told(tmp_path: Path, listeners: str) -> None:
    """Without listeners there is nothing to ask; a free port is known to the worker alone."""
    done = invoke("connectors", "list", "--worker", worker_file(tmp_path, listeners=listeners))
    assert "--url" in failed(done, 2)


def test_without_a_worker_file_the_default_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were one without listeners in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KEYFOLD_BOOTSTRAP_SERVERS", raising=False)
    assert connectors.address(None, None) == connectors.DEFAULT_URL
