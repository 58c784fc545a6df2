"""A worker that may start no further thread goes on with what it has, and begins what is left later.

Whoever may make connectors over REST may bring it there: a container has a limit of threads, and each connector needs
some twenty.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import httpx
import pytest

from connectors.chain.chain import Chain
from connectors.chain.spec import chain_spec
from connectors.config.files import load_connector, load_worker
from connectors.errors import NoThreadError, RegistryError
from connectors.kafka.client_settings import ClientSettings
from connectors.progress.observer import Observer
from connectors.registry.http_client import HttpClient, HttpRequest
from connectors.runtime.lifecycle import RunState
from connectors.runtime.status import ConnectorState
from connectors.runtime.supervisor import RunContext, Supervisor
from connectors.source.poller import Pollers
from connectors.threads import CancellableThread
from tests.support.cli import NAME, connector_file, worker_file
from tests.support.clocks import ManualClock
from tests.support.herd import Herd, config, put
from tests.support.kafka import wait_until
from tests.support.memory.schema_registry import MemoryRegistry, served
from tests.support.rest import message, rest_worker
from tests.support.thread_limit import no_thread_named
from tests.unit.connectors.chain.test_chain import batch
from tests.unit.connectors.chain.test_key_identity import V1, encoded

TIMEOUT_S = 10.0
AVRO = {
    "compaction.key.identity": "avro",
    "key.converter": "keyfold.Avro",
}


def test_no_record_is_rejected_as_its_schema_cannot_be_asked_for() -> None:
    """That is no answer of the registry's, so it is asked again; with errors.tolerance=all the record would be lost."""
    memory = MemoryRegistry()
    records = batch((encoded(V1, memory.add(V1), {"id": 1}), b"v"))
    with served(memory) as url:
        chain = Chain(chain_spec({**AVRO, "key.converter.schema.registry.url": url}), str)
        with no_thread_named("http-request"), pytest.raises(RegistryError, match="does not answer: UnsentRequest"):
            chain.apply(records)
        assert chain.apply(records)["rejected"].to_pylist() == [None]
        chain.close()


def test_a_request_that_had_no_thread_holds_up_none_after_it() -> None:
    """It never is over, so nobody may wait for its end."""
    with httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200))) as inner:
        client = HttpClient(inner)
        with no_thread_named("http-request"), pytest.raises(httpx.TransportError):
            client.ask(HttpRequest("GET", "http://a/b", {}), TIMEOUT_S)
        assert client.ask(HttpRequest("GET", "http://a/b", {}), TIMEOUT_S).status == httpx.codes.OK


def test_no_connector_gets_a_poller_without_a_thread() -> None:
    """Nothing would be planned for it, nor for all that come after it with equal settings."""
    clients = ClientSettings({}, {}, {})
    pollers = Pollers(lambda: None, cast("Any", ManualClock()), lambda *_: cast("Any", Mock()))
    with no_thread_named("source-poller"), pytest.raises(NoThreadError):
        pollers.borrow(clients)
    poller = pollers.borrow(clients)
    assert poller.is_alive()
    pollers.give_back(poller)


@pytest.fixture
def supervisor(tmp_path: Path) -> Supervisor:
    """Of a connector whose runs end at once."""
    worker = load_worker(worker_file(tmp_path))
    connector = load_connector(connector_file(tmp_path), worker).config
    tasks: Any = lambda *_: Mock(catalog=None, counted=None)  # noqa: E731
    return Supervisor(worker, connector, cast("Any", ManualClock()), Observer(), tasks=tasks)


def test_a_connector_without_a_thread_is_failed_and_begins_once_there_is_one(supervisor: Supervisor) -> None:
    """The worker's own thread starts it, and ended with that."""
    context = RunContext(cast("Any", None), cast("Any", Mock()), once=True)
    for _ in range(2):
        with no_thread_named(NAME):
            supervisor.start(context)
        assert (supervisor.state, supervisor.status.state) == (RunState.INIT, ConnectorState.FAILED)
        assert supervisor.status.failures == 1
        assert "could start no thread" in (supervisor.status.error or "")
    supervisor.start(context)
    assert supervisor.join(TIMEOUT_S)
    assert (supervisor.error, supervisor.state) == (None, RunState.ENDED)


def test_a_connector_is_forgotten_once_its_lock_can_be_given_back(tmp_path: Path) -> None:
    """Until then it is as it was; the other connectors are started and stopped meanwhile."""
    herd = Herd(tmp_path)
    herder = herd.begin()
    put(herder, config("a"))
    herder.specs.delete("a")
    herd.made["a"][0].over = True
    with no_thread_named("owner-locks"):
        herder.reconcile()
        put(herder, config("b"))
    assert "release" not in herd.made["a"][0].said
    assert herd.said("b") == [["start"]]
    herder.reconcile()
    wait_until(lambda: "release" in herd.made["a"][0].said, "it gives its lock back", TIMEOUT_S)
    with no_thread_named("owner-locks"):
        herd.end()


def test_a_request_that_no_thread_answers_is_told_to_come_again(tmp_path: Path) -> None:
    """Some are answered on threads of the framework's: `/health` needs none."""
    with rest_worker(tmp_path) as worker:
        with no_thread_named("AnyIO"):
            refused = worker.ask("GET", "/connectors")
            assert worker.ask("GET", "/health").is_success
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
        assert "could start no thread" in message(refused)
        assert worker.ask("GET", "/connectors").json() == []


def test_what_cannot_be_started_says_what_to_do() -> None:
    """The error names the thread, and the limit to raise."""
    thread = CancellableThread("reading-orders", threading.Event.wait)
    with no_thread_named("reading"), pytest.raises(NoThreadError, match=r"\(reading-orders\): can't start") as raised:
        thread.start()
    assert "ulimit -u" in raised.value.action
