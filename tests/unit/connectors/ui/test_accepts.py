"""Who is given the page at `/`, and who JSON."""

from __future__ import annotations

import pytest

from connectors.ui.accepts import prefers_html
from tests.support.browser import ACCEPT, browse
from tests.support.rest import RestWorker


@pytest.mark.parametrize(
    ("accept", "is_person"),
    [
        (ACCEPT, True),
        ("text/html", True),
        ("TEXT/HTML; charset=utf-8", True),
        ("application/json;q=0.5, text/html", True),
        ("text/html;q=0.5, application/json", False),
        ("text/html, application/json", False),
        ("text/html;q=0", False),
        ("text/html;q=x", True),
        ("*/*", False),
        ("text/*", False),
        ("text/plain", False),
        ("application/json", False),
        ("", False),
    ],
)
def test_a_browser_is_told_from_a_program(accept: str, is_person: bool) -> None:
    """HTML is named, and is wanted more than JSON."""
    assert prefers_html(accept) is is_person


@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "application/json, text/html;q=0.9"])
def test_clients_of_connect_get_json_at_the_root(worker: RestWorker, accept: str | None) -> None:
    """They send `*/*`, JSON, or nothing."""
    headers = {} if accept is None else {"Accept": accept}
    if accept is None:
        del worker.client.headers["Accept"]
    answer = worker.ask("GET", "/", headers=headers)
    assert (answer.status_code, set(answer.json())) == (200, {"version", "commit", "kafka_cluster_id"})


def test_a_browser_gets_the_page_at_the_root(worker: RestWorker) -> None:
    """The address that the worker prints is all that a person needs."""
    answer = browse(worker, "/")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "<h1>Connectors</h1>" in answer.text
    assert worker.ask("HEAD", "/", headers={"Accept": ACCEPT}).content == b""
    assert browse(worker, "/connectors").json() == []
