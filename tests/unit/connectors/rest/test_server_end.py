"""How the server of REST waits: for its end and for the next second, not by looking around."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from starlette.responses import PlainTextResponse

from connectors.config.files import load_worker
from connectors.rest.listeners import LIMITS, bind
from connectors.rest.server import DATE_S, RestServer
from tests.support.cli import worker_file
from tests.support.kafka import wait_until


@contextmanager
def serving(folder: Path, date_s: float = DATE_S) -> Iterator[tuple[RestServer, str]]:
    """Serves one answer; yields the server and its URL."""
    (bound,) = bind(config := load_worker(worker_file(folder, listeners="http://127.0.0.1:0")))
    server = RestServer(config, [(bound, PlainTextResponse("well"))], LIMITS, date_s)
    server.start()
    try:
        yield server, f"http://127.0.0.1:{bound.port}"
    finally:
        server.stop()


def test_a_server_that_waits_ends_at_once(tmp_path: Path) -> None:
    """A stop of the worker wakes it, however long it would wait."""
    with serving(tmp_path, date_s=3_600) as (server, _):
        server.stop()
        assert "rest" not in [thread.name for thread in threading.enumerate()]


def test_answers_have_the_date_of_their_time(tmp_path: Path) -> None:
    """The date in the head of an answer goes on."""
    with serving(tmp_path) as (_, url):
        first = httpx.get(url).headers["date"]
        wait_until(lambda: httpx.get(url).headers["date"] != first, "the next second")
