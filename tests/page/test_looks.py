"""Every page of the worker in every look: axe-core finds nothing, nothing runs over, and nothing goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.page.chromium import DESKTOP, LOOKS, PHONE, Look, visiting
from tests.page.conftest import PASSWORD
from tests.page.hands import Keyboard
from tests.page.shop import HOSTILE, LONG_NAME, Shop, path_of

_USUAL: Final = LOOKS[-1:]  # the others are further cases of the same
EACH_LOOK: Final = [
    pytest.param(look, marks=() if look in _USUAL else pytest.mark.long, id=str(look)) for look in LOOKS
]
RULES: Final = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}

WAIT_MS: Final = 60_000

_RUNS_OVER: Final = """() => {
  const wide = Math.min(screen.width, document.documentElement.clientWidth) + 1;
  const scrolls = element => {
    for (let at = element.parentElement; at; at = at.parentElement)
      if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(at).overflowX) && at !== document.body) return true;
    return false;
  };
  return [...document.querySelectorAll('body *')]
    .filter(each => each.getBoundingClientRect().right > wide && !scrolls(each))
    .map(each => each.outerHTML.slice(0, 120));
}"""


class Shown(NamedTuple):
    """A page: its path, the code of its answer, and what is done on it before it is looked at."""

    path: str
    code: int = 200
    act: Callable[[Page], Any] | None = None


def _check_faults(page: Page) -> None:
    page.get_by_role("textbox").fill('{"name": "x", "tasks.max": "many"}')
    page.get_by_role("button", name="Check").click()
    page.locator(".faults").wait_for()


def _try_dry(page: Page) -> None:
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator("main")).to_contain_text("would go back", timeout=WAIT_MS)


def _count(page: Page) -> None:
    page.get_by_role("textbox", name="Tombstones stay for").fill("1 h")
    page.get_by_role("button", name="Count").click()
    expect(page.locator("#answer")).to_contain_text("With the changes", timeout=WAIT_MS)


PAGES: Final = {
    "overview": Shown("/ui"),
    "overview-failed": Shown("/ui?state=FAILED"),
    "overview-late": Shown("/ui?state=late"),
    "overview-none-such": Shown("/ui?state=RESTARTING"),
    "connector": Shown(path_of("orders")),
    "connector-failed": Shown(path_of("payments")),
    "connector-paused": Shown(path_of("audit-trail")),
    "connector-stopped": Shown(path_of("stock-2024")),
    "connector-with-dead-letters": Shown(path_of("clicks")),
    "connector-of-a-long-name": Shown(path_of(LONG_NAME)),
    "settings": Shown(path_of("orders", "settings")),
    "log": Shown(path_of("orders", "log")),
    "log-without-lines": Shown(path_of("stock-2024", "log")),
    "letters": Shown(path_of("clicks", "letters")),
    "letters-of-one-topic": Shown(f"{path_of('clicks', 'letters')}?topic=shop.clicks"),
    "letters-without-a-topic": Shown(path_of("orders", "letters")),
    "letter": Shown(path_of("clicks", "letters/at/0/0")),
    "letter-not-there": Shown(path_of("clicks", "letters/at/0/9999"), 404),
    "dry-run": Shown(path_of("clicks", "letters"), act=_try_dry),
    "what-if": Shown(path_of("orders", "what-if")),
    "what-if-counted": Shown(path_of("orders", "what-if"), act=_count),
    "what-if-refused": Shown(path_of("orders", "what-if?run=nothing")),
    "lookup": Shown(path_of("customers", "lookup")),
    "lookup-with-a-record": Shown(path_of("customers", "lookup?key=order-3")),
    "lookup-without-a-record": Shown(path_of("customers", "lookup?key=nobody")),
    "lookup-of-a-hostile-key": Shown(f"{path_of('customers', 'lookup')}?key={HOSTILE}"),
    "lookup-refused": Shown(path_of("stock-2024", "lookup?key=order-3"), 400),
    "resync": Shown(path_of("orders", "resync")),
    "delete": Shown(path_of("orders", "delete")),
    "delete-of-a-long-name": Shown(path_of(LONG_NAME, "delete")),
    "new": Shown("/ui/new"),
    "new-with-faults": Shown("/ui/new", 400, _check_faults),
    "not-there": Shown("/ui/connectors/nobody", 404),
}


@pytest.mark.timeout(300)  # two dozen pages
@pytest.mark.parametrize("look", EACH_LOOK)
def test_each_page_can_be_read_by_everyone(browser: Browser, shop: Shop, look: Look) -> None:
    """No page breaks a rule of axe-core, scrolls sideways, or has its parts run over its edge."""
    faults = list[str]()
    with visiting(browser, shop.url, look) as visit:
        for name, shown in PAGES.items():
            page = visit.go(shown.path)
            if shown.act is not None:
                shown.act(page)
            visit.expect_refusal(shown.code)
            faults += [f"{name}: {fault}" for fault in seen_faults(page)]
    assert faults == []


@pytest.mark.long  # it takes a second worker
@pytest.mark.parametrize("look", LOOKS, ids=str)
@pytest.mark.parametrize("user", ["admin", "viewer"])
def test_pages_of_a_worker_with_passwords_can_be_read_by_everyone(
    browser: Browser, guarded: Shop, user: str, look: Look
) -> None:
    """A worker without connectors, the refusals of a viewer and the frame with a user's name break no rule either."""
    faults = list[str]()
    refused = 200 if user == "admin" else 403
    with visiting(browser, guarded.url, look, user, PASSWORD) as visit:
        for path, code in (("/ui?state=FAILED", 200), ("/ui", 200), ("/ui/new", refused)):
            page = visit.go(path)
            visit.expect_refusal(code)
            faults += [f"{path}: {fault}" for fault in seen_faults(page)]
    assert faults == []


def seen_faults(page: Page) -> list[str]:
    """Returns what is wrong with a page: rules of axe-core with the elements that break them, and what runs over."""
    found = Axe().run(page, options=RULES).response["violations"]
    faults = [f"{each['id']}: {node['html'][:160]}" for each in found for node in each["nodes"]]
    faults += [f"runs over: {html}" for html in page.evaluate(_RUNS_OVER)]
    wide = page.viewport_size["width"] if page.viewport_size else 0  # a phone's own width grows with what runs over
    if page.evaluate("wide => document.documentElement.scrollWidth > wide", wide):
        faults.append("it scrolls sideways")
    return faults


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_the_forms_of_a_key_stand_one_below_another(browser: Browser, shop: Shop, width: int) -> None:
    """Each choice of the look-up has a line of its own, and no word stands alone because its column is narrow."""
    with visiting(browser, shop.url, Look(width)) as visit:
        page = visit.go(path_of("customers", "lookup"))
        choices = [each.bounding_box() for each in page.locator("fieldset label").all()]
        form = page.locator("form.sheet").bounding_box()
    assert form is not None
    boxes = [box for box in choices if box is not None]
    assert len({box["x"] for box in boxes}) == 1
    assert len({box["y"] for box in boxes}) == len(choices)
    assert min(box["width"] for box in boxes) > 0.7 * form["width"]


def test_the_lines_of_a_log_begin_at_the_left_on_a_phone(browser: Browser, shop: Shop) -> None:
    """What was logged reads as text: from the left edge, under its time and level."""
    with visiting(browser, shop.url, Look(PHONE)) as visit:
        page = visit.go(path_of("orders", "log"))
        said = page.locator(".log td")
        assert said.count() > 0
        assert {each.evaluate("element => getComputedStyle(element).textAlign") for each in said.all()} == {"left"}
        assert {each.evaluate("element => getComputedStyle(element).display") for each in said.all()} == {"block"}


def test_the_keyboard_skips_to_the_content(browser: Browser, shop: Shop) -> None:
    """The first press of Tab shows a link to the content; after it Tab goes on in the content, in reading order."""
    with visiting(browser, shop.url, Look()) as visit:
        page = visit.go(path_of("orders"))
        page.keyboard.press("Tab")
        skip = page.get_by_role("link", name="Skip to the content")
        assert skip.evaluate("element => document.activeElement === element")
        assert skip.bounding_box() is not None
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("() => document.activeElement.closest('main') !== null")
        places = list[tuple[float, float]]()
        for _ in range(12):
            box = page.evaluate("() => document.activeElement.getBoundingClientRect().toJSON()")
            places.append((round(box["y"] + box["height"] / 2 + page.evaluate("scrollY")), box["x"]))
            page.keyboard.press("Tab")
        assert places == sorted(places)


@pytest.mark.parametrize("width", [PHONE])
def test_the_focus_stays_while_the_page_renews_itself(browser: Browser, shop: Shop, width: int) -> None:
    """A part that is renewed every few seconds takes the focus from nobody."""
    with visiting(browser, shop.url, Look(width)) as visit:
        page = visit.go(path_of("orders"))
        pause = page.get_by_role("button", name="Pause")
        Keyboard().reach(page, pause)
        stamp = page.locator(".updated").inner_text()
        page.wait_for_function("stamp => document.querySelector('.updated').innerText !== stamp", arg=stamp)
        assert pause.evaluate("element => document.activeElement === element")
