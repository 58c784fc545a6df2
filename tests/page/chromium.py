"""Opens the worker's page in Chromium, and notes what a page must not do there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, HttpCredentials, Page, Playwright, Request, ViewportSize, expect

DESKTOP: Final = 1440
PHONE: Final = 390
_HEIGHTS: Final = {DESKTOP: 900, PHONE: 844}
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
TIMEOUT_MS: Final = 20_000
"""For an answer of a worker whose two cores other tests have as well."""

expect.set_options(timeout=TIMEOUT_MS)


class Look(NamedTuple):
    """How a person looks at the page: width of the window (px), colours, and whether scripts run."""

    width: int = DESKTOP
    scheme: str = "light"
    scripts: bool = True

    def __str__(self) -> str:
        """Names it, for the ids of tests."""
        return f"{self.width}-{self.scheme}{'' if self.scripts else '-no-scripts'}"


LOOKS: Final = tuple(Look(width, scheme) for width in (DESKTOP, PHONE) for scheme in ("light", "dark"))


def executable(playwright: Playwright) -> str:
    """Returns the path of Chromium; skips the test if this machine has none."""
    known = [path for path in map(shutil.which, _NAMES) if path]
    fetched = playwright.chromium.executable_path
    if not known and not Path(fetched).exists():
        pytest.skip("no Chromium here: apt-get install chromium, or .venv/bin/playwright install chromium")
    return known[0] if known else fetched


class Visit:
    """A page that is open in Chromium, on the worker at `url`, and what went wrong in it so far."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        # What the console says as an error, violations of the policy among it; errors of scripts; other hosts asked.
        self.troubles = list[str]()
        page.on("console", lambda said: self._note(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self._note(str(error)))
        page.on("request", self._look_at)

    def go(self, path: str) -> Page:
        """Loads a page of the worker, and returns it."""
        self.page.goto(f"{self.url}{path}")
        return self.page

    def expect_refusal(self, code: int = HTTPStatus.BAD_REQUEST) -> None:
        """Forgets that Chromium's console tells of answers with `code`, as it does of each that refuses."""
        self.troubles = [said for said in self.troubles if f"responded with a status of {code:d}" not in said]

    def _note(self, trouble: str) -> None:
        self.troubles.append(f"{self.page.url}: {trouble}")

    def _look_at(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc and not request.url.startswith("data:"):
            self._note(f"asked {request.url}")


@contextmanager
def visiting(browser: Browser, url: str, look: Look, user: str = "", password: str = "") -> Iterator[Visit]:
    """Opens a window as `look` says, logged in if there is a user; checks at the end that nothing went wrong in it."""
    login = HttpCredentials(username=user, password=password) if user else None
    context = browser.new_context(
        viewport=ViewportSize(width=look.width, height=_HEIGHTS[look.width]),
        color_scheme="dark" if look.scheme == "dark" else "light",
        java_script_enabled=look.scripts,
        http_credentials=login,
        reduced_motion="reduce",
        is_mobile=look.width == PHONE,
        locale="en-GB",
        timezone_id="UTC",
    )
    context.set_default_timeout(TIMEOUT_MS)
    try:
        visit = Visit(context.new_page(), url)
        yield visit
        assert visit.troubles == []
    finally:
        context.close()
