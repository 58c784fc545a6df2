"""Does on a page what a person does: with a mouse, or with the keyboard alone, looking where the focus is."""

from __future__ import annotations

from typing import Final, Protocol

from playwright.sync_api import Locator, Page

MOST_TABS: Final = 80
"""Presses of Tab until anything on these pages is reached."""

_FOCUS_SHOWS: Final = """element => {
  const style = getComputedStyle(element);
  return document.activeElement === element && style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
}"""


class Hand(Protocol):
    """Presses a button or link, ticks a box, and writes into a field."""

    def press(self, page: Page, target: Locator) -> None:
        """Presses a button, or follows a link."""

    def tick(self, page: Page, target: Locator) -> None:
        """Ticks a box."""

    def write(self, page: Page, target: Locator, text: str) -> None:
        """Replaces what a field has by `text`."""


class Mouse:
    """A person with a mouse, or with a finger."""

    def press(self, page: Page, target: Locator) -> None:
        """Clicks on it."""
        target.click()

    def tick(self, page: Page, target: Locator) -> None:
        """Clicks on it."""
        target.check()

    def write(self, page: Page, target: Locator, text: str) -> None:
        """Fills it."""
        target.fill(text)


class Keyboard:
    """A person with a keyboard alone."""

    def press(self, page: Page, target: Locator) -> None:
        """Tabs to it, and presses Enter."""
        self.reach(page, target)
        page.keyboard.press("Enter")

    def tick(self, page: Page, target: Locator) -> None:
        """Tabs to it, and presses Space; of radio buttons, to the chosen one, and goes on from there with arrows."""
        if target.get_attribute("type") == "radio":
            group = f"input[type=radio][name={target.get_attribute('name')}]"
            self.reach(page, page.locator(f"{group}:checked"))
            for _ in range(page.locator(group).count()):
                if not target.is_checked():
                    page.keyboard.press("ArrowDown")
        else:
            self.reach(page, target)
            page.keyboard.press("Space")
        assert target.is_checked()

    def write(self, page: Page, target: Locator, text: str) -> None:
        """Tabs to it, and writes over what is there."""
        self.reach(page, target)
        page.keyboard.press("Control+A")
        page.keyboard.insert_text(text)

    def reach(self, page: Page, target: Locator) -> None:
        """Presses Tab until the focus is there, and checks that a person sees it."""
        for _ in range(MOST_TABS):
            if target.evaluate("element => document.activeElement === element"):
                assert target.evaluate(_FOCUS_SHOWS), "the focus does not show"
                return
            page.keyboard.press("Tab")
        raise AssertionError(f"{MOST_TABS} presses of Tab do not lead to {target}")


HANDS: Final[dict[str, Hand]] = {"mouse": Mouse(), "keyboard": Keyboard()}
