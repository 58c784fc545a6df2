"""What is asked for on the page and takes a while: letters are sent back, and other settings are counted."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.page.people import TRIED, WAIT_S, Person
from tests.page.shop import Shop, path_of, rejecting, tried
from tests.support.kafka import end_offsets, produce, wait_until

REJECTING = "rejecting"


def sent(shop: Shop, name: str) -> int:
    """Returns how many records have come to the source of a connector."""
    return sum(end_offsets(shop.bootstrap, f"{name}.in").values())


def test_dead_letters_go_back_after_a_dry_run(person: Person) -> None:
    """A dry run says how many letters would go; confirmed, they are in their source topic again."""
    name = rejecting(person.shop, REJECTING)
    letters = sum(end_offsets(person.shop.bootstrap, f"{name}.dead").values())
    produce(person.shop.bootstrap, f"{name}.in", [(0, b"key", b"{broken")])
    dead = f"{name}.dead"
    wait_until(lambda: sum(end_offsets(person.shop.bootstrap, dead).values()) > letters, "a letter is there", WAIT_S)
    before = sent(person.shop, name)
    person.visit.go(path_of(name))
    person.press("Dead letters", "link")
    person.press("Dry run")
    person.is_told(re.compile("Dry run.*: done"))
    expect(person.page.locator("main")).to_contain_text(f"would go back to {name}.in")
    assert sent(person.shop, name) == before
    person.hand.tick(person.page, person.page.get_by_role("checkbox"))
    person.press("Redrive")
    person.is_told("Redrive: done")
    expect(person.page.locator("main")).to_contain_text(f"went back to {name}.in")
    wait_until(lambda: sent(person.shop, name) > before, "the record is there again", WAIT_S)


def test_other_settings_are_counted(person: Person) -> None:
    """What a fold would do is counted as the connector is set, and with a setting that is typed; nothing changes."""
    name = tried(person.shop, TRIED)
    config = person.shop.worker.ask("GET", f"/connectors/{name}/config").json()
    person.visit.go(path_of(name))
    person.press("What if", "link")
    person.press("Count")
    answered = person.page.locator("#answer")
    wait_until(lambda: has_counted(person, "Counted at"), "it is counted", WAIT_S)
    expect(answered).to_contain_text("What goes, by which rule, and what stays")
    field = person.page.get_by_role("textbox", name=re.compile("^Tombstones")).first
    person.hand.write(person.page, field, "1 h")
    field.blur()
    person.press("Count")
    wait_until(lambda: has_counted(person, "With the changes"), "the change is counted", WAIT_S)
    assert person.shop.worker.ask("GET", f"/connectors/{name}/config").json() == config


def has_counted(person: Person, words: str) -> bool:
    """Whether the answer says `words`; without scripts the link to look again is followed first."""
    answer = person.page.locator("#answer")
    look_again = answer.get_by_role("link", name="Look again")
    if not person.look.scripts and look_again.count():
        person.hand.press(person.page, look_again)
    return words in answer.inner_text()
