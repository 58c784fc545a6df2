"""Pictures of the running worker in every look: all in build/page; `make page` renews those of the documents."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.page.chromium import DESKTOP, LOOKS, PHONE, Look, visiting
from tests.page.shop import NAMES, Shop, path_of
from tests.support.kafka import wait_until

ROOT: Final = Path(__file__).parents[2]
MADE: Final = ROOT / "build" / "page"
SHOWN: Final = ROOT / "docs" / "pictures"
MOST_BYTES: Final = 150_000
"""Of a picture in the documents: what a page of them loads at once."""

PICTURES: Final = {
    "overview": "/ui",
    "overview-failed": "/ui?state=FAILED",
    "connector": path_of("orders"),
    "connector-failed": path_of("payments"),
    "settings": path_of("orders", "settings"),
    "log": path_of("customers", "log"),
    "lookup": path_of("customers", "lookup?key=order-3"),
    "letters": path_of("clicks", "letters"),
    "resync": path_of("orders", "resync"),
    "delete": path_of("orders", "delete"),
    "new": "/ui/new",
    "what-if": path_of("orders", "what-if"),
    "not-there": "/ui/nothing",
}
IN_DOCUMENTS: Final = ("overview", "connector", "what-if")
HEIGHT: Final = 1000
"""What the documents show of a page (px): its beginning, as much as a screen has."""

_SAMPLES_MS: Final = 90_000
"""For how long the worker has to have published before its lines say anything: they have a point each ten seconds."""


@pytest.fixture(scope="module")
def tidy(browser: Browser, shop: Shop) -> Shop:
    """The shop's connectors alone, with a snapshot, and some minutes of traffic."""
    for name in shop.worker.ask("GET", "/connectors").json():
        if name not in NAMES:
            shop.worker.ask("DELETE", f"/connectors/{name}")
    with visiting(browser, shop.url, Look()) as visit:
        page = visit.go(path_of("orders"))
        page.get_by_role("button", name="Snapshot now").click()
        expect(page.locator(".notice")).to_contain_text("Snapshot now")
        wait_until(lambda: _has_said(page, "Snapshot now: done"), "a snapshot is there", 60)
        wait_until(lambda: _points(visit.go(path_of("orders"))) >= _SAMPLES_MS // 10_000, "there are samples", 120)
    return shop


def _has_said(page: Page, words: str) -> bool:
    page.reload()
    return words in page.locator("main").inner_text()


def _points(page: Page) -> int:
    lines = page.locator(".spark polyline")
    return len((lines.first.get_attribute("points") or "").split()) if lines.count() else 0


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_pictures_are_taken_of_the_running_worker(browser: Browser, tidy: Shop, look: Look) -> None:
    """Each page has a picture in each look; the ones of the documents are small enough to be loaded at once."""
    MADE.mkdir(parents=True, exist_ok=True)
    with visiting(browser, tidy.url, look) as visit:
        for name, path in PICTURES.items():
            page = visit.go(path)
            visit.expect_refusal(404)
            if name == "what-if":
                _count(page)
            file = MADE / f"{name}-{look.width}-{look.scheme}.png"
            page.screenshot(path=file, full_page=True)
            if name in IN_DOCUMENTS and "PICTURES" in os.environ:
                _publish(file, look, name)


def _count(page: Page) -> None:
    """Asks what would be if tombstones went after an hour and records rested as long."""
    for label, text in (("Tombstones stay for", "1 h"), ("Least lag", "1 h")):
        page.get_by_role("textbox", name=label).fill(text)
    page.get_by_role("button", name="Count").click()
    expect(page.locator("#answer")).to_contain_text("With the changes", timeout=90_000)


def _publish(file: Path, look: Look, name: str) -> None:
    """Puts the beginning of a picture into the documents, with as few colours as it needs."""
    SHOWN.mkdir(parents=True, exist_ok=True)
    shown = SHOWN / f"{name}{'-phone' if look.width == PHONE else ''}-{look.scheme}.png"
    with Image.open(file) as whole:
        part = whole.convert("RGB").crop((0, 0, whole.width, min(whole.height, HEIGHT)))
        part.quantize(256, dither=Image.Dither.NONE).save(shown, optimize=True)
    assert look.width in (DESKTOP, PHONE)
    assert shown.stat().st_size < MOST_BYTES
