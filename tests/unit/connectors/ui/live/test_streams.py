"""Open pages over a real socket: what they are sent, who gets it, and what else the worker answers meanwhile."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.ui.live.feeds import MOST_STREAMS
from tests.support.browser import send, token
from tests.support.live_worker import live_worker
from tests.support.rest import RestWorker, rest_worker
from tests.unit.connectors.rest.test_security import users_file
from tests.unit.connectors.ui.test_acting import ADMIN, RESULTS, VIEWER

WITHIN_S = 20.0


class Viewer:
    """Who looks at a page: `until` reads on until an event has a text in it."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.iter_lines()

    def events(self) -> Iterator[tuple[str, str]]:
        kind = ""
        for line in self._lines:
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                data = json.loads(line.removeprefix("data: "))
                yield kind, data if isinstance(data, str) else "".join(data)

    def until(self, text: str) -> str:
        deadline = time.monotonic() + WITHIN_S
        for kind, data in self.events():
            if text in data or text == kind:
                return data
            assert time.monotonic() < deadline, f"waited in vain for {text}"
        raise AssertionError(f"the stream has ended before {text}")


@contextmanager
def look(worker: RestWorker, path: str, **more: Any) -> Iterator[Viewer]:
    headers = {"Accept": "text/event-stream"}
    with httpx.stream("GET", f"{worker.url}{path}", headers=headers, timeout=WITHIN_S, **more) as answer:
        yield Viewer(answer)


def test_a_change_is_seen_without_loading_the_page_again(worker: RestWorker) -> None:
    """On the overview, on the page of the connector, and in its log."""
    worker.create("a")
    with look(worker, "/ui") as overview, look(worker, "/ui/connectors/a") as page:
        assert overview.answer.headers["content-type"].startswith("text/event-stream")
        for viewer in (overview, page):
            viewer.until("whole")
        worker.supervisor("a").fail("Topic t is gone.")
        for viewer in (overview, page):
            assert "FAILED" in viewer.until("Topic t is gone.")


@pytest.mark.parametrize("path", ["/ui", "/ui/connectors/a", "/ui/connectors/a/log"])
def test_of_a_page_on_which_nothing_happens_the_time_alone_is_sent(worker: RestWorker, path: str) -> None:
    """Whatever else it shows is not sent again."""
    worker.create("a")
    with look(worker, path) as viewer:
        viewer.until("whole")
        # the worker's health comes with the first event again, and once it has changed
        own = (each for each in viewer.events() if 'id="health"' not in each[1])
        kind, data = next(each for each in own if each[0] == "parts")
        assert (kind, len(re.findall(r"<p id=|<tr|<section", data))) == ("parts", 1)
        assert data.startswith('<p id="as-of"')


def test_the_notice_of_a_deed_goes_on_by_itself(worker: RestWorker, tmp_path: Path) -> None:
    """From what was asked for to what came of it."""
    worker.create("a", **{"snapshot.location": str(tmp_path / "snapshots")})
    answer = send(worker, "/ui/connectors/a/clean")
    assert 'id="notice" class="notice warn"' in answer.text
    with look(worker, f"/ui/connectors/a?{answer.url.query.decode()}") as viewer:
        viewer.until("whole")
        with live_worker(worker.location.sub("a"), RESULTS["clean"]):
            assert "Nothing had to be folded." in viewer.until('id="notice" class="notice good"')


def test_the_page_of_a_connector_that_is_deleted_is_over(worker: RestWorker) -> None:
    """What the browser loads then says that there is none."""
    worker.create("a")
    with look(worker, "/ui/connectors/a") as viewer:
        viewer.until("whole")
        worker.ask("DELETE", "/connectors/a")
        viewer.until("over")
        assert [*viewer.events()] == []
    with look(worker, "/ui/connectors/a") as viewer:
        assert viewer.answer.status_code == 200
        viewer.until("over")


def test_who_looks_gets_what_he_may_see(tmp_path: Path) -> None:
    """A viewer no form, an admin his own, and who does not log in nothing."""
    path = users_file(tmp_path, ann="admin", bob="viewer")
    with rest_worker(tmp_path, **{"rest.auth": "basic", "rest.auth.users.file": str(path)}) as worker:
        settings = {"connector.class": "keyfold.CompactedTopic", "topics": "a"}
        assert worker.ask("PUT", "/connectors/a/config", json=settings, auth=ADMIN).status_code == 201
        with look(worker, "/ui/connectors/a", auth=VIEWER) as bob, look(worker, "/ui/connectors/a", auth=ADMIN) as ann:
            assert "<form" not in bob.until("whole")
            assert set(re.findall(r'name="form" value="(\w+)"', ann.until("whole"))) == {token(worker, auth=ADMIN)}
        with look(worker, "/ui/connectors/a") as nobody:
            assert nobody.answer.status_code == 401


def test_as_many_pages_as_may_be_open_keep_nobody_out(worker: RestWorker) -> None:
    """One more is told when to ask again; probes, metrics and pages are answered."""
    worker.create("a")
    with ExitStack() as stack:
        for _ in range(MOST_STREAMS):
            assert stack.enter_context(look(worker, "/ui")).answer.status_code == 200
        with look(worker, "/ui") as one_more:
            assert (one_more.answer.status_code, "retry-after" in one_more.answer.headers) == (503, True)
        for path in ("/health", "/metrics", "/connectors", "/connectors/a/status", "/ui"):
            assert worker.ask("GET", path).status_code == 200


def test_a_worker_that_ends_does_not_wait_for_open_pages(tmp_path: Path) -> None:
    """Each stream ends by itself: none is cut off, as a request is that takes longer than server.STOP_S."""
    with ExitStack() as stack:
        with rest_worker(tmp_path) as worker:
            viewers = [stack.enter_context(look(worker, "/ui")) for _ in range(10)]
            for viewer in viewers:
                viewer.until("whole")
        # What is cut off has no last chunk, which httpx raises for.
        assert [{kind for kind, _ in viewer.events()} <= {"parts"} for viewer in viewers] == [True] * 10


@pytest.mark.parametrize("path", ["/ui/new", "/ui/connectors/a/settings", "/"])
def test_other_pages_are_not_renewed(worker: RestWorker, path: str) -> None:
    """They are pages for whoever asks, and `/` is REST's for all but those who ask for HTML."""
    worker.create("a")
    answer = worker.ask("GET", path, headers={"Accept": "text/event-stream"})
    assert "event-stream" not in answer.headers["content-type"]


def test_a_page_asks_for_its_own_address(worker: RestWorker) -> None:
    """What it shows is what it is sent."""
    worker.create("a")
    for path in ("/ui", "/ui/connectors/a", "/ui/connectors/a/log"):
        page = worker.ask("GET", path, headers={"Accept": "text/html"}).text
        assert f'<div id="live" data-stream="{path}">' in page
        assert "hx-trigger" not in page
