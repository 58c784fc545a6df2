"""Open pages in a real browser: what changes comes by itself, and takes nothing from who uses the page."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.rest import RestWorker

CHROMIUM = shutil.which("chromium")
sync_api = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_api.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A small window; whatever the console or an error says fails the test."""
    opened, said = browser.new_page(viewport={"width": 1_000, "height": 400}), list[str]()
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    yield opened
    opened.close()
    assert said == []


def test_focus_and_scroll_stay_while_the_rows_change(worker: RestWorker, page: Page) -> None:
    """Also if the row that has the focus moves up, as it fails; the page is not loaded again."""
    for number in range(30):
        worker.create(f"c{number:02}")
    page.goto(f"{worker.url}/")
    page.wait_for_selector("#row-c29")
    page.evaluate("window.isSame = true; window.scrollTo(0, 300); document.querySelector('#row-c20 a').focus()")
    scrolled = page.evaluate("window.scrollY")
    worker.supervisor("c20").fail("Topic t is gone.")
    page.wait_for_selector("#note-c20")
    assert page.evaluate("[window.isSame, document.activeElement.textContent]") == [True, "c20"]
    worker.supervisor("c25").fail("Topic u is gone.")
    page.wait_for_selector("#note-c25")
    page.focus("#restart-c25")
    worker.supervisor("c07").fail("Topic v is gone.")
    page.wait_for_selector("#note-c07")
    assert page.evaluate("document.activeElement.id") == "restart-c25"
    assert scrolled > 0
    rows = page.evaluate("[...document.querySelectorAll('tbody tr')].slice(0, 7).map(each => each.id)")
    assert rows == ["row-c07", "note-c07", "row-c20", "note-c20", "row-c25", "note-c25", "row-c00"]


def test_the_keyboard_goes_on_from_a_button_that_is_gone(worker: RestWorker, page: Page) -> None:
    """From the content, not from the top of the page."""
    worker.create("a")
    page.goto(f"{worker.url}/ui/connectors/a")
    page.focus("#do-pause")
    worker.ask("PUT", "/connectors/a/pause")
    page.wait_for_selector("#do-resume")
    assert page.evaluate("document.activeElement.id") == "main"


FIRST = (
    '<details id="d"><summary>More</summary>one</details><form><input type="hidden" id="h" value="1">'
    '<input id="i"><textarea id="t"></textarea></form><pre id="p">one</pre>'
)


def test_what_is_typed_and_folded_open_stays(worker: RestWorker, page: Page) -> None:
    """What was typed is his who has typed it, also in a field without the focus; a hidden field is the worker's."""
    texts = [FIRST, FIRST.replace("one", "two").replace('value="1"', 'value="2"')]

    def answer(route: Route) -> None:
        data = json.dumps(texts[0] if len(texts) == 1 else texts.pop(0))
        body = f"retry: 500\nevent: whole\ndata: {data}\n\n"
        route.fulfill(headers={"Content-Type": "text/event-stream"}, body=body)

    _streams(page, answer)
    page.goto(f"{worker.url}/ui")
    page.wait_for_selector("#p")
    page.click("summary")
    page.fill("#i", "mine")
    page.fill("#t", "my own")
    page.wait_for_selector("#p:text-is('two')")
    said = page.evaluate("['i', 't', 'h'].map(id => document.getElementById(id).value)")
    assert said == ["mine", "my own", "2"]
    assert page.evaluate("[document.getElementById('d').open, document.activeElement.id]") == [True, "t"]


def test_a_page_that_nobody_sees_asks_for_nothing(worker: RestWorker, page: Page) -> None:
    """It goes on, up to date, once it is seen."""
    worker.create("a")
    worker.create("b")
    page.goto(f"{worker.url}/ui/connectors/a")
    page.wait_for_selector("#as-of")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
    told = "document.dispatchEvent(new Event('visibilitychange'))"
    page.evaluate(hide % "true" + told)
    worker.supervisor("a").fail("Topic t is gone.")
    page.evaluate(hide % "false" + told)
    page.wait_for_selector("text=Topic t is gone.")
    assert asked == [f"{worker.url}/ui/connectors/a"]


def test_a_page_that_is_not_renewed_says_so(worker: RestWorker, browser: Browser) -> None:
    """It stays as it was loaded; that it is tried again is said, too."""
    page = browser.new_page()
    _streams(page, lambda route: route.fulfill(status=503))
    page.goto(f"{worker.url}/ui")
    page.wait_for_selector("text=The worker does not renew this page now.")
    assert "No connector yet" in page.inner_text("#live")
    page.close()


def test_a_page_that_is_over_each_time_is_not_loaded_in_a_loop(worker: RestWorker, page: Page) -> None:
    """Every few seconds at most, however soon its stream says so; and it is loaded again."""
    loaded: list[float] = []
    page.on("load", lambda _: loaded.append(time.monotonic()))
    over = 'event: over\ndata: ""\n\n'
    _streams(page, lambda route: route.fulfill(headers={"Content-Type": "text/event-stream"}, body=over))
    page.goto(f"{worker.url}/ui")
    with page.expect_event("load"):
        pass
    assert loaded[1] - loaded[0] > 4  # live.js: RELOAD_MS, less what loading took


def test_a_page_says_that_its_worker_is_gone(worker: RestWorker, browser: Browser) -> None:
    """However often the browser has asked again; the word goes once the worker answers."""
    page, asked, gone = browser.new_page(), list[float](), True

    def answer(route: Route) -> None:
        asked.append(time.monotonic())
        if gone:
            route.abort("connectionrefused")
        else:
            route.continue_()

    page.goto(f"{worker.url}/ui")
    page.wait_for_selector("#health:text-is('worker healthy')")
    _streams(page, answer)
    page.reload()
    page.wait_for_selector("#health:text-is('worker does not answer')")
    page.wait_for_selector("#still:has-text('What you see is as it was')")
    assert len(asked) > 1
    gone = False
    page.wait_for_selector("#health:text-is('worker healthy')")
    page.wait_for_selector("#still", state="hidden")
    page.close()


def _streams(page: Page, answer: Callable[[Route], object]) -> None:
    """Has a page's streams answered by a test."""

    def choose(route: Route) -> None:
        if "event-stream" in (route.request.header_value("accept") or ""):
            answer(route)
        else:
            route.continue_()

    page.route("**/ui*", choose)
