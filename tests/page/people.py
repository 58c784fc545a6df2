"""Persons before the page of a worker, and the ways in which they use it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.page.chromium import DESKTOP, PHONE, Look, Visit
from tests.page.hands import Hand
from tests.page.shop import Shop
from tests.support.kafka import wait_until

WAIT_S: Final = 60.0
TRIED: Final = "tried"
"""The connector that deeds are tried on."""


class Way(NamedTuple):
    """How deeds are done: how the page looks, by mouse or keyboard, and by which user of which worker."""

    hand: str
    look: Look
    user: str = ""

    def __str__(self) -> str:
        """Names it, for the ids of tests."""
        return f"{self.hand}-{self.look}{self.user and '-as-'}{self.user}"


WAYS = (
    Way("mouse", Look()),
    Way("keyboard", Look(DESKTOP, "dark")),
    Way("mouse", Look(PHONE, "light", scripts=False)),
    Way("keyboard", Look(DESKTOP, "light", scripts=False)),
    Way("mouse", Look(PHONE, "dark"), "admin"),
)
USUAL = WAYS[0]  # the others are further cases of the same
EACH_WAY = [pytest.param(way, marks=() if way is USUAL else pytest.mark.long, id=str(way)) for way in WAYS]


class Person:
    """Someone before the page of a worker."""

    def __init__(self, visit: Visit, shop: Shop, look: Look, hand: Hand) -> None:
        self.visit = visit
        self.look = look
        self.shop = shop
        self.hand = hand

    @property
    def page(self) -> Page:
        """What is open."""
        return self.visit.page

    def press(self, name: str | re.Pattern[str], role: str = "button") -> None:
        """Presses a button, or a link, of the main part of the page."""
        main = self.page.locator("main")
        found = main.get_by_role("link" if role == "link" else "button", name=name, exact=isinstance(name, str))
        self.hand.press(self.page, found)

    def notice(self) -> Locator:
        """Returns what the page says has come of a deed."""
        return self.page.locator(".notice")

    def is_told(self, *words: str | re.Pattern[str]) -> None:
        """Waits until the page says what has come of a deed; it is loaded again as long as it does not."""
        expect(self.notice()).to_contain_text(re.compile(r"asked for at 20\d\d-\d\d-\d\d \d\d:\d\d"))
        try:
            wait_until(lambda: self._says(words), f"the page says {words}", WAIT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; it says: {self.notice().inner_text()}") from None

    def _says(self, words: tuple[str | re.Pattern[str], ...]) -> bool:
        said = self.notice().inner_text()
        is_there = all(word in said if isinstance(word, str) else word.search(said) is not None for word in words)
        if not is_there:
            self.page.reload()
        return is_there
