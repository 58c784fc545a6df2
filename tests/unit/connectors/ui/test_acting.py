"""What an admin does on the page, what a viewer may not, and forms of other pages."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from compactor.catalog import requests
from compactor.catalog.requests import Request
from compactor.storage.base import Storage
from connectors.clock import SystemClock
from connectors.config.files import load_connector, load_worker
from connectors.progress.log_lines import LOG_LINES
from connectors.runtime.status import ConnectorState, Status
from connectors.ui.asked_runs import END_MS, AskedRuns
from connectors.ui.deeds import MOST_DEEDS, SHOWN_DEEDS, Deeds
from tests.support.browser import browse, send, token, words
from tests.support.cli import NAME, connector_file, worker_file
from tests.support.kafka import wait_until
from tests.support.live_worker import live_worker
from tests.support.rest import RestWorker, rest_worker
from tests.unit.connectors.rest.test_security import users_file

ADMIN, VIEWER = ("ann", "one"), ("bob", "two")


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[RestWorker]:
    path = users_file(tmp_path, ann="admin", bob="viewer")
    with rest_worker(tmp_path, **{"rest.auth": "basic", "rest.auth.users.file": str(path)}) as made:
        settings = {"connector.class": "keyfold.CompactedTopic", "topics": "a"}
        assert made.ask("PUT", "/connectors/a/config", json=settings, auth=ADMIN).status_code == 201
        yield made


@pytest.mark.parametrize(
    ("path", "state", "said"),
    [
        ("pause", "PAUSED", "It holds"),
        ("stop", "STOPPED", "It has ended"),
        ("restart", "RUNNING", "It was started again"),
    ],
)
def test_a_deed_is_done_and_the_page_says_so(worker: RestWorker, path: str, state: str, said: str) -> None:
    """What was asked for and when, on the page that the browser is led to, and in the list of the connector."""
    worker.create("a")
    answer = send(worker, f"/ui/connectors/a/{path}")
    assert (answer.status_code, answer.history[0].status_code) == (200, 303)
    assert f"{path.capitalize()}: done" in words(answer.text)
    assert said in words(answer.text)
    assert worker.herder.connector("a").status.state is ConnectorState(state)
    resumed = send(worker, "/ui/connectors/a/resume")
    assert f"{path.capitalize()}: done" in words(resumed.text)
    assert worker.herder.connector("a").spec.target.value == "RUNNING"


def test_a_deed_is_done_once_the_state_is_reached(worker: RestWorker) -> None:
    """Until then the page says that it was asked for, as it does if the state is never reached."""
    worker.create("a")
    supervisor = worker.supervisor("a")
    supervisor.aim = lambda target: None  # type: ignore[method-assign]
    told = send(worker, "/ui/connectors/a/pause")
    assert "Pause: asked for It holds once" in words(told.text)
    supervisor.fail("Topic t is gone.")
    assert "Pause: asked for" in words(browse(worker, str(told.url)).text)
    supervisor.status = Status(ConnectorState.PAUSED)
    done = words(browse(worker, str(told.url)).text)
    assert "Pause: done It holds;" in done
    assert "asked for at" in done.partition("Pause: done")[2]
    supervisor.fail("Topic t is gone.")
    assert "Pause: done" in words(browse(worker, "/ui/connectors/a").text)


def test_the_deed_of_the_banner_is_not_repeated_below(worker: RestWorker) -> None:
    """Nor does the page of a connector name that with each deed; without the banner all are listed."""
    worker.create("a")
    told = send(worker, "/ui/connectors/a/pause")
    assert words(told.text).count("Pause: done") == 1
    assert "a, asked for" not in words(told.text)
    assert 'class="lately"' in browse(worker, "/ui/connectors/a").text


def test_what_is_refused_is_not_offered(worker: RestWorker, tmp_path: Path) -> None:
    """A FAILED connector takes a resync, with which it starts again, and neither a clean nor a snapshot."""
    worker.create("a", **{"snapshot.location": str(tmp_path / "snapshots")})
    offers = ("pause", "clean", "snapshot", "restart", "stop", "resync")
    assert _offered(worker) == set(offers)
    worker.supervisor("a").fail("Topic t is gone.")
    assert _offered(worker) == {"restart", "stop", "resync"}
    worker.supervisor("a").wait("No broker answers.", 1)
    assert _offered(worker) == {"restart", "stop", "resync"}


def _offered(worker: RestWorker) -> set[str]:
    return set(
        re.findall(
            r'(?:action|href)="/ui/connectors/a/(pause|clean|snapshot|restart|stop|resync)"',
            browse(worker, "/ui/connectors/a").text,
        )
    )


def test_a_failed_connector_takes_a_resync(worker: RestWorker) -> None:
    """It is what some errors ask for, and a new run begins with it."""
    worker.create("a")
    supervisor = worker.supervisor("a")
    supervisor.fail("Records were taken back.")
    supervisor.is_alive = lambda: False  # type: ignore[method-assign]
    assert "Nothing runs" not in words(send(worker, "/ui/connectors/a/resync", fields={"confirm": "yes"}).text)
    wait_until(lambda: len(_pending(worker.location.sub("a"))) == 1, "it is asked for")
    assert "Nothing runs" in words(send(worker, "/ui/connectors/a/clean").text)


def test_a_failed_connector_is_restarted_from_the_overview(worker: RestWorker) -> None:
    """With one click, which leads back there."""
    worker.create("a")
    worker.supervisor("a").fail("Topic t is gone.")
    button = 'action="/ui/connectors/a/restart"'
    wait_until(lambda: button in browse(worker, "/ui").text, "the rows are measured again")
    answer = send(worker, "/ui/connectors/a/restart", fields={"back": "overview"})
    assert answer.url.path == "/ui"
    assert worker.supervisor("a").restarts == 1


def test_a_deletion_takes_the_connectors_name(worker: RestWorker) -> None:
    """Its page says what stays; without the name nothing is done."""
    worker.create("a")
    assert "What it has kept and published stays" in words(browse(worker, "/ui/connectors/a/delete").text)
    for typed in ("", "b", "yes"):
        assert send(worker, "/ui/connectors/a/delete", fields={"confirm": typed}).status_code == 400
    assert worker.herder.names() == ["a"]
    answer = send(worker, "/ui/connectors/a/delete", fields={"confirm": "a"})
    assert (answer.url.path, worker.herder.names()) == ("/ui", [])
    assert "Delete: done" in words(answer.text)


def test_a_resync_is_confirmed_on_a_page_that_says_what_it_means(worker: RestWorker) -> None:
    """It reads everything again: a click is not enough."""
    worker.create("a")
    assert "gets a tombstone" in words(browse(worker, "/ui/connectors/a/resync").text)
    assert send(worker, "/ui/connectors/a/resync").status_code == 400


RESULTS: dict[str, dict[str, Any]] = {
    "clean": {"logs": []},
    "snapshot": {"snapshots": []},
    "resync": {"logs": [{"topic": "t", "partition": 0, "offset": 0, "generation": 2}]},
}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("clean", "Nothing had to be folded."),
        ("snapshot", "There is nothing to snapshot: of no topic that is read is anything published yet."),
        ("resync", "1 partition is read again from the start."),
    ],
)
def test_a_long_deed_is_asked_of_the_run(worker: RestWorker, tmp_path: Path, path: str, said: str) -> None:
    """The browser does not wait for it; what came of it is on the connector's page."""
    worker.create("a", **{"snapshot.location": str(tmp_path / "snapshots")})
    with live_worker(worker.location.sub("a"), RESULTS[path]) as asked:
        assert send(worker, f"/ui/connectors/a/{path}", fields={"confirm": "yes"}).status_code == 200
        wait_until(lambda: said in words(browse(worker, "/ui/connectors/a").text), "the page says what came of it")
    assert [each.kind for each in asked] == [path]


def test_what_is_not_begun_is_taken_back_when_the_worker_ends(tmp_path: Path) -> None:
    """The next worker would carry it out, and nobody would wait for it."""
    with rest_worker(tmp_path) as worker:
        worker.create("a")
        storage = worker.location.sub("a")
        assert send(worker, "/ui/connectors/a/resync", fields={"confirm": "yes"}).status_code == 200
        wait_until(lambda: len(_pending(storage)) == 1, "it is asked for")
    assert _pending(storage) == []


def _pending(storage: Storage) -> list[Request]:
    return [*requests.pending(storage, SystemClock().now_ms())]


def test_what_nothing_runs_is_not_asked(worker: RestWorker) -> None:
    """A request would wait for ever, or start a Spark of its own here."""
    worker.create("a")
    worker.ask("PUT", "/connectors/a/stop")
    assert "Nothing runs connector a." in words(send(worker, "/ui/connectors/a/clean").text)


def test_a_deed_that_is_broken_off_is_not_under_way() -> None:
    """Whatever broke it off, a defect or a client that has gone."""
    deeds = Deeds()
    deed = deeds.begin("a", "Stop", "ann", 1)
    with pytest.raises(ValueError, match="a defect"), deeds.ended_if_broken_off(deed, SystemClock()):
        raise ValueError("a defect")
    ended = deeds.named(deed.id)
    assert ended is not None
    assert (ended.ok, ended.ended_ms is None) == (False, False)


def test_a_stopped_connector_is_not_restarted(worker: RestWorker) -> None:
    """The page says so, instead of that it starts."""
    worker.create("a")
    worker.ask("PUT", "/connectors/a/stop")
    assert "Connector a is stopped." in words(send(worker, "/ui/connectors/a/restart").text)


def test_a_refusal_is_said_on_the_page(tmp_path: Path) -> None:
    """As REST words it: a connector of a file is deleted by its file."""
    file = load_connector(connector_file(tmp_path), load_worker(worker_file(tmp_path)))
    with rest_worker(tmp_path, file) as worker:
        assert f"/ui/connectors/{NAME}/delete" not in browse(worker, f"/ui/connectors/{NAME}").text
        page = browse(worker, f"/ui/connectors/{NAME}/delete")
        assert (page.status_code, "<form" in page.text) == (409, False)
        assert "It is changed and deleted there" in words(page.text)
        assert "it is changed and deleted there" in words(browse(worker, f"/ui/connectors/{NAME}").text)
        answer = send(worker, f"/ui/connectors/{NAME}/delete", fields={"confirm": NAME})
        assert "Delete: refused" in words(answer.text)
        assert str(file.path) in words(answer.text)
        assert worker.herder.names() == [NAME]


def test_a_viewer_sees_no_button_and_is_refused(secured: RestWorker) -> None:
    """By the server, whatever he sends."""
    own = token(secured, auth=ADMIN)
    for path in ("/ui", "/ui/connectors/a"):
        page = browse(secured, path, auth=VIEWER).text
        assert "<form" not in page
        assert "<button" not in page
        assert own not in page
    for path in ("/ui/connectors/a/pause", "/ui/new", "/ui/new/check", "/ui/connectors/a/delete"):
        assert send(secured, path, auth=VIEWER, form=own, fields={"confirm": "a"}).status_code == 403
    assert browse(secured, "/ui/connectors/a/delete", auth=VIEWER).status_code == 403
    assert secured.herder.connector("a").status.state is ConnectorState.RUNNING
    assert "by ann" in words(send(secured, "/ui/connectors/a/pause", auth=ADMIN).text)


@pytest.mark.parametrize(
    ("headers", "form"),
    [
        ({"Origin": "http://evil.example"}, None),
        ({"Origin": "null"}, None),
        ({"Sec-Fetch-Site": "cross-site"}, None),
        ({"Sec-Fetch-Site": "same-site"}, None),
        ({}, "0" * 64),
        ({}, "\u00e9"),
    ],
)
def test_forms_of_other_pages_are_refused(secured: RestWorker, headers: dict[str, str], form: str | None) -> None:
    """A browser sends the password along with any of them."""
    answer = send(secured, "/ui/connectors/a/pause", auth=ADMIN, headers=headers, form=form)
    assert answer.status_code == 403
    assert secured.herder.connector("a").status.state is ConnectorState.RUNNING


def test_an_origin_that_may_ask_rest_may_send_no_form(tmp_path: Path) -> None:
    """`access.control.allow.origin` is for REST: a page that reads answers could read the token, too."""
    with rest_worker(tmp_path, **{"access.control.allow.origin": "*"}) as worker:
        worker.create("a")
        answer = send(worker, "/ui/connectors/a/pause", headers={"Origin": "http://evil.example"})
        assert answer.status_code == 403


def test_a_form_without_a_token_is_refused(worker: RestWorker) -> None:
    """Also without a log-in, and if the browser says nothing of where it comes from."""
    worker.create("a")
    assert worker.ask("POST", "/ui/connectors/a/pause", data={"x": "y"}).status_code == 403
    assert worker.ask("POST", "/ui/connectors/a/pause", json={"form": token(worker)}).status_code == 415


def test_the_token_of_another_user_is_none(tmp_path: Path) -> None:
    """Each has his own, also among admins."""
    path = users_file(tmp_path, ann="admin", bob="admin")
    with rest_worker(tmp_path, **{"rest.auth": "basic", "rest.auth.users.file": str(path)}) as worker:
        settings = {"connector.class": "keyfold.CompactedTopic", "topics": "a"}
        assert worker.ask("PUT", "/connectors/a/config", json=settings, auth=ADMIN).status_code == 201
        own, other = token(worker, auth=ADMIN), token(worker, auth=("bob", "two"))
        assert send(worker, "/ui/connectors/a/pause", auth=ADMIN, form=other).status_code == 403
        assert worker.herder.connector("a").status.state is ConnectorState.RUNNING
        assert send(worker, "/ui/connectors/a/pause", auth=ADMIN, form=own).status_code == 200


def test_the_token_of_another_worker_is_none(secured: RestWorker) -> None:
    """Each process has a key of its own."""
    assert len(token(secured, auth=ADMIN)) == 64
    with rest_worker(Path(secured.location.location)) as other:
        assert send(secured, "/ui/connectors/a/pause", auth=ADMIN, form=token(other)).status_code == 403


@pytest.mark.parametrize("path", ["/ui/connectors/a/nope", "/ui/connectors/a%2Fpause", "/ui/connectors/a/pause%2F"])
def test_there_are_no_other_deeds(worker: RestWorker, path: str) -> None:
    """A slash within a name is none between parts of the path."""
    worker.create("a")
    assert send(worker, path).status_code in (404, 405)
    assert worker.herder.connector("a").status.state is ConnectorState.RUNNING


def test_deeds_are_bounded() -> None:
    """The newest stay."""
    deeds, clock = Deeds(), SystemClock()
    first = deeds.begin("a", "Pause", "", clock.now_ms())
    for _ in range(MOST_DEEDS):
        deeds.begin("a", "Pause", "", clock.now_ms())
    assert deeds.named(first.id) is None
    assert len(deeds.of("a")) == SHOWN_DEEDS
    assert deeds.end(first, "late", clock.now_ms()).said == "late"
    assert deeds.named(first.id) is None


def test_nothing_of_a_deleted_connector_is_shown_of_one_that_is_made_with_its_name(worker: RestWorker) -> None:
    """Neither its deeds nor its log lines; that it was made is its own, whoever asked for it."""
    worker.create("a")
    send(worker, "/ui/connectors/a/pause")
    LOG_LINES.keep(None, "", {"connector": "a", "event": "of the deleted one"})
    send(worker, "/ui/connectors/a/delete", fields={"confirm": "a"})
    text = '{"name": "a", "topics": "t", "connector.class": "keyfold.CompactedTopic"}'
    assert send(worker, "/ui/new", fields={"json": text}).status_code == 200
    LOG_LINES.keep(None, "", {"connector": "a", "event": "of its own"})
    page = words(browse(worker, "/ui/connectors/a").text)
    assert [f"{what}: done" in page for what in ("Create", "Pause", "Delete")] == [True, False, False]
    log = words(browse(worker, "/ui/connectors/a/log").text)
    assert ("of its own" in log, "of the deleted one" in log) == (True, False)


def test_a_connector_stays_the_same_through_changes(worker: RestWorker) -> None:
    """Of its config and its state: what was kept of it is its own on."""
    worker.create("a")
    since_ms = worker.herder.connector("a").spec.since_ms
    assert 0 < since_ms <= SystemClock().now_ms()
    send(worker, "/ui/connectors/a/pause")
    changed = {"connector.class": "keyfold.CompactedTopic", "topics": "a,b"}
    assert worker.ask("PUT", "/connectors/a/config", json=changed).status_code == 200
    assert worker.herder.connector("a").spec.since_ms == since_ms
    assert "Pause: done" in words(browse(worker, "/ui/connectors/a").text)


def test_a_restart_that_waits_holds_up_no_other_request(worker: RestWorker) -> None:
    """It waits for the herder on a thread of its own: probes are answered meanwhile."""
    worker.create("a")
    asked, release = threading.Event(), threading.Event()

    def restart(name: str) -> None:
        assert name == "a"
        asked.set()
        assert release.wait(20)

    worker.herder.restart = restart  # type: ignore[method-assign]
    form = token(worker)
    with ThreadPoolExecutor(1) as pool:
        restarted = pool.submit(send, worker, "/ui/connectors/a/restart", form=form)
        assert asked.wait(20)
        try:
            assert httpx.get(f"{worker.url}/health", timeout=5).status_code == 200
        finally:
            release.set()
        assert "Restart: done" in words(restarted.result(20).text)


def test_the_end_of_a_worker_waits_for_all_deeds_together(worker: RestWorker) -> None:
    """Not for each in turn: storages that hang may be as many as deeds."""
    context, hangs, begun = Mock(clock=SystemClock()), threading.Event(), threading.Semaphore(0)

    def hang(*_: object) -> dict[str, Any]:
        begun.release()
        hangs.wait(30)
        return {}

    deeds = Deeds()
    runs = AskedRuns(context, deeds, hang)
    for number in range(4):
        runs.begin("clean", deeds.begin(f"c{number}", "Clean now", "", 1))
        assert begun.acquire(timeout=20)
    began = time.monotonic()
    runs.stop()
    took = time.monotonic() - began
    hangs.set()
    assert took < 2 * END_MS / 1000


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("clean", "Folded 2 partitions; 1 record went."),
        ("snapshot", "Took 1 snapshot with 2 records."),
        ("resync", "2 partitions are read again from the start."),
    ],
)
def test_what_came_of_a_deed_is_counted_in_words(worker: RestWorker, tmp_path: Path, path: str, said: str) -> None:
    """One is one, and two are two."""
    log = {
        "topic": "t",
        "partition": 0,
        "records_before": 2,
        "records": 1,
        "bytes_before": 9,
        "bytes": 5,
        "end": 3,
        "tombstones": 0,
    }
    snapshot = {"topic": "t", "id": "1", "path": "", "created_ms": 1, "source_offsets": {}, "records": 2, "bytes": 1}
    moved = {"topic": "t", "partition": 0, "offset": 0, "generation": 2}
    same = {**log, "records": 2}
    results = {"clean": {"logs": [log, same]}, "snapshot": {"snapshots": [snapshot]}, "resync": {"logs": [moved] * 2}}
    worker.create("a", **{"snapshot.location": str(tmp_path / "snapshots")})
    with live_worker(worker.location.sub("a"), results[path]):
        send(worker, f"/ui/connectors/a/{path}", fields={"confirm": "yes"})
        wait_until(lambda: said in words(browse(worker, "/ui/connectors/a").text), "the page says what came of it")
