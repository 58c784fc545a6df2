"""The pages over a real socket: what a person reads, and what no page may hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from connectors.clock import SystemClock
from connectors.progress.log_lines import LOG_LINES
from connectors.runtime.status import ConnectorState, Status
from connectors.ui.protection import HEADERS, POLICY
from connectors.ui.static_files import FOLDER, static_files
from connectors.ui.templates import FOLDER as TEMPLATES
from tests.support.browser import browse, send, words
from tests.support.kafka import wait_until
from tests.support.rest import RestWorker, rest_worker

SECRET = "geheim-4711"
PAGES = ("/", "/ui", "/ui/connectors/a", "/ui/connectors/a/settings", "/ui/connectors/a/log", "/ui/new", "/ui/nope")


def test_the_overview_says_how_each_connector_is(worker: RestWorker) -> None:
    """States as words, the error's first line, and a link to each."""
    for name in ("a", "b"):
        worker.create(name)
    worker.supervisor("b").fail("Topic t is gone.\nMake it again.")
    failed = "/ui?state=FAILED"
    wait_until(lambda: 'href="/ui/connectors/b"' in browse(worker, failed).text, "the rows are measured again")
    page = browse(worker, failed).text
    assert 'href="/ui/connectors/a"' not in page
    assert "FAILED" in words(page)
    assert "Topic t is gone." in words(page)


def test_an_empty_worker_says_what_to_do(worker: RestWorker) -> None:
    """The first page that a person sees names the next step."""
    assert "No connector yet" in browse(worker, "/ui").text


def test_the_page_of_a_connector(worker: RestWorker) -> None:
    """Its state, its whole error, and a page of its settings."""
    worker.create("a", **{"min.compaction.lag.ms": "60000"})
    worker.supervisor("a").fail("Topic t is gone.\nMake it again.")
    read = words(browse(worker, "/ui/connectors/a").text)
    assert "FAILED" in read
    assert "What has failed Topic t is gone. Make it again." in read
    settings = words(browse(worker, "/ui/connectors/a/settings/").text)
    assert "min.compaction.lag.ms 60000" in settings
    assert "How long" in settings


def test_what_has_failed_stands_directly_below_the_state(worker: RestWorker) -> None:
    """In front of figures, and with the next try and the way to other settings, each said once."""
    worker.create("a")
    supervisor = worker.supervisor("a")
    supervisor.status = Status(ConnectorState.FAILED, "Topic t is gone.", 5, SystemClock().now_ms() + 11_900)
    page = words(browse(worker, "/ui/connectors/a").text)
    failed = page.index("What has failed Topic t is gone. Next try by itself within 1")
    assert "(failed 5 times in a row)" in page
    assert "Started again" not in page
    assert failed < page.index("Oldest waits —")
    assert "keyfold connectors update FILE , or PUT /connectors/a/config" in page
    supervisor.wait("No broker answers.", SystemClock().now_ms() - 61_000)
    page = words(browse(worker, "/ui/connectors/a").text)
    assert "What to know No broker answers. It waits for an outage to end, since 1 min" in page
    assert "connectors update" not in page


def test_the_log_of_a_connector(worker: RestWorker) -> None:
    """Its own lines alone; the newest first, each with its fields."""
    worker.create("a")
    for name, event in (("a", "first"), ("b", "of another"), ("a", "then <b>")):
        LOG_LINES.keep(None, "", {"connector": name, "event": event, "level": "info", "timestamp": "2026", "n": 1})
    page = browse(worker, "/ui/connectors/a/log").text
    assert "then <b> n=1 2026 info first n=1" in words(page)
    assert "<b>" not in page
    assert "of another" not in page


def test_errors_are_pages_too(worker: RestWorker) -> None:
    """With the code that REST has for them."""
    missing = browse(worker, "/ui/connectors/nope")
    assert (missing.status_code, "Connector nope not found" in words(missing.text)) == (404, True)
    assert browse(worker, "/ui/nope").status_code == 404
    assert browse(worker, "/ui/static/nope").status_code == 404
    assert browse(worker, "/ui/static/..%2Fapp.py").status_code == 404
    assert worker.ask("DELETE", "/ui").status_code == 405


@pytest.mark.parametrize("path", PAGES)
def test_pages_are_kept_by_nobody_and_run_nothing_of_others(worker: RestWorker, path: str) -> None:
    """The policy allows the page's own files alone, and is on every answer."""
    worker.create("a")
    answer = browse(worker, path)
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert answer.headers["cache-control"] == "no-store"
    assert "unsafe" not in POLICY
    assert (
        re.search(r"(?i)<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:|https?://(?!127)", answer.text)
        is None
    )


def test_no_template_has_a_script_or_style_inside() -> None:
    """Browsers would refuse it: the policy allows files alone."""
    for path in TEMPLATES.glob("*.html"):
        text = path.read_text()
        assert (
            re.search(r"(?i)<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|hx-on|hx-vals=.js|\|\s*safe", text) is None
        )


def test_files_of_the_page_are_kept_for_as_long_as_they_are_current(worker: RestWorker) -> None:
    """Their address has their version; another version is asked for again."""
    page = browse(worker, "/ui").text
    named = re.findall(r'(?:href|src)="(/ui/static/[^"]+)"', page)
    assert len(named) >= 4
    for path in named:
        answer = worker.ask("GET", path)
        assert (answer.status_code, "immutable" in answer.headers["cache-control"]) == (200, True)
        assert worker.ask("GET", path.partition("?")[0]).headers["cache-control"] == "no-store"


def test_scripts_of_others_are_kept_with_their_licence() -> None:
    """Each one file, as its package has it, and the words under which it may be passed on."""
    script = next(FOLDER.glob("htmx-*.min.js"))
    assert f'version:"{script.name.split("-")[1].removesuffix(".min.js")}"' in script.read_text()
    assert "Zero-Clause BSD" in (FOLDER / "htmx.LICENSE.txt").read_text()
    assert script.name in static_files()
    morph = next(FOLDER.glob("idiomorph-*.min.js"))
    assert "Zero-Clause BSD" in (FOLDER / "idiomorph.LICENSE.txt").read_text()
    assert morph.read_text().startswith("var Idiomorph=")


HOSTILE = "<script>alert(1)</script>\u202e\x1b[2J\"'&{{7*7}}"


def test_hostile_texts_are_only_text(worker: RestWorker) -> None:
    """Whatever an error quotes, it is escaped, printable and bounded."""
    worker.create("a")
    worker.supervisor("a").fail(HOSTILE + "x" * 90_000)
    for path in ("/ui", "/ui/connectors/a"):
        page = browse(worker, path).text
        assert "<script>alert" not in page
        assert "\u202e" not in page
        assert "\x1b" not in page
        assert "49" not in re.findall(r"&amp;(\S+?)xxx", page)
        assert len(page) < 100_000
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize("name", ["%3Cscript%3E", "a%00b", "%E2%80%AE", "..", "%2e%2e%2f"])
def test_hostile_names_are_no_connectors(worker: RestWorker, name: str) -> None:
    """A name in a path is looked up, never rendered as it is."""
    answer = browse(worker, f"/ui/connectors/{name}/settings")
    assert answer.status_code in (200, 404)
    assert "<script>" not in answer.text.replace("<script src", "")


def test_no_page_has_a_secret(tmp_path: Path) -> None:
    """Neither of the worker, nor of a connector: in settings, nor in what failed."""
    own = {"listeners": "http://127.0.0.1:0", "producer.sasl.password": SECRET}
    with rest_worker(tmp_path, **own) as worker:
        worker.create("a", **{"consumer.override.sasl.password": SECRET, "producer.override.ssl.key.password": SECRET})
        worker.supervisor("a").fail(f"sasl.password={SECRET} was refused by http://ann:{SECRET}@registry/")
        for path in PAGES:
            page = browse(worker, path).text
            assert SECRET not in page
        assert "[hidden]" in browse(worker, "/ui/connectors/a/settings").text


def test_the_page_may_be_switched_off(tmp_path: Path) -> None:
    """`ui.enable=false` leaves REST alone, as it was."""
    with rest_worker(tmp_path, **{"ui.enable": "false"}) as worker:
        assert browse(worker, "/ui").status_code == 404
        assert set(browse(worker, "/").json()) == {"version", "commit", "kafka_cluster_id"}


def test_the_page_is_not_where_only_admin_is(tmp_path: Path) -> None:
    """`admin.listeners` answers `/admin` alone."""
    with rest_worker(tmp_path, **{"admin.listeners": "http://127.0.0.1:0"}) as worker:
        assert browse(worker, "/ui").status_code == 200
        worker.client.base_url = worker.admin_url
        assert browse(worker, "/ui").status_code == 404


def test_a_defect_is_a_page_that_tells_nothing(worker: RestWorker) -> None:
    """What went wrong is in the log."""

    def broken() -> list[str]:
        raise ZeroDivisionError(SECRET)

    worker.herder.answer = broken
    answer = send(worker, "/ui/new/check", fields={"json": '{"name": "a", "topics": "t"}'})
    assert (answer.status_code, SECRET in answer.text) == (500, False)
    assert "keyfold has a defect here" in answer.text


@pytest.mark.parametrize("state", list(ConnectorState))
def test_a_state_is_a_word(worker: RestWorker, state: ConnectorState) -> None:
    """Connect's own, whatever its colour."""
    worker.create("a")
    worker.supervisor("a").status = Status(state)
    shown = "UNASSIGNED" if state is ConnectorState.STOPPED else state.value  # it is to run: it will be started again
    assert shown in words(browse(worker, "/ui/connectors/a").text)
