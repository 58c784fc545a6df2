"""Each deed of the page on a running worker, pressed in Chromium in each way that a person may; REST confirms it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from tests.page.chromium import Look, visiting
from tests.page.conftest import PASSWORD
from tests.page.people import TRIED, WAIT_S, Person
from tests.page.shop import Shop, failing, path_of, tried
from tests.support.kafka import wait_until


class Deed(NamedTuple):
    """A deed of one button: the state that it begins and ends in, and what the page says."""

    button: str
    before: str
    after: str
    said: str


SIMPLE = (
    Deed("Pause", "RUNNING", "PAUSED", "It holds"),
    Deed("Resume", "PAUSED", "RUNNING", "It runs again"),
    Deed("Stop", "RUNNING", "STOPPED", "It has ended"),
    Deed("Restart", "RUNNING", "RUNNING", "It was started again"),
    Deed("Clean now", "RUNNING", "RUNNING", "old"),
    Deed("Snapshot now", "RUNNING", "RUNNING", "Took 1 snapshot with"),
)


@pytest.mark.parametrize("deed", SIMPLE, ids=lambda deed: deed.button)
def test_a_button_does_what_it_says(person: Person, deed: Deed) -> None:
    """The button is pressed, the page says what was done and when, and REST says the same."""
    name, worker = tried(person.shop, TRIED), person.shop.worker
    person.shop.aim(name, deed.before)
    before = starts(person.shop, name)
    person.visit.go(path_of(name))
    person.press(deed.button)
    person.is_told(f"{deed.button}: done", deed.said)
    worker.until_state(name, deed.after)
    if deed.button == "Restart":
        wait_until(lambda: starts(person.shop, name) > before, "it was started again", WAIT_S)
    if deed.button == "Snapshot now":
        expect(person.page.get_by_role("table", name=re.compile("Snapshots"))).to_contain_text("newest")
    person.visit.go(path_of(name))
    expect(person.page.locator(".lately")).to_contain_text(deed.button)


def starts(shop: Shop, name: str) -> int:
    """Returns how often the worker has logged that it took a connector over, as it does at each start."""
    lines = shop.worker.printed().splitlines()
    return sum("taken over" in line and name in line for line in lines)


def test_a_resync_is_confirmed_first(person: Person) -> None:
    """What a resync means is said on a page; ticked and pressed, it is done, as the page says."""
    name = tried(person.shop, TRIED)
    person.visit.go(path_of(name))
    person.press("Resync…", "link")
    expect(person.page.locator("main")).to_contain_text("Reads every source topic again from its start")
    person.hand.tick(person.page, person.page.get_by_role("checkbox"))
    person.press("Resync")
    person.is_told("Resync: done", "2 partitions are read again from the start")
    person.shop.worker.until_state(name, "RUNNING")


def test_a_connector_is_deleted_by_its_name(person: Person) -> None:
    """Under another name nothing is deleted, and the page says so; under its own the connector is gone."""
    name = "short-lived"
    person.shop.make(name, "nothing-comes", "STOPPED")
    for typed, is_gone in (("other", False), (name, True)):
        person.visit.go(path_of(name))
        person.press("Delete…", "link")
        person.hand.write(person.page, person.page.get_by_role("textbox"), typed)
        person.press("Delete")
        expect(person.page.locator("main")).to_contain_text(
            "Its config is forgotten" if is_gone else "nothing was done"
        )
        assert (person.shop.worker.ask("GET", f"/connectors/{name}").status_code == 404) is is_gone
        person.visit.expect_refusal()


def test_a_connector_is_made_of_json(person: Person) -> None:
    """Faults are named while JSON is typed, or by Check without scripts; what is valid is made."""
    name = "made-here"
    field = "JSON"
    person.visit.go("/ui")
    person.press("New connector", "link")
    person.page.wait_for_load_state()  # what is typed before the scripts are there is checked with the next key
    config = {"name": name, "connector.class": "keyfold.CompactedTopic", "topics": "nothing-comes"}
    typed: list[tuple[Callable[[], str], str]] = [
        (lambda: json.dumps({**config, "tasks.max": "many"}), "tasks.max"),
        (lambda: '{"name": ', "JSON"),
        (lambda: json.dumps(config), "can be created"),
    ]
    for text, said in typed:
        person.hand.write(person.page, person.page.get_by_label(re.compile(field)), text())
        if not person.look.scripts:
            person.press("Check")
        expect(person.page.locator("#verdict")).to_contain_text(said)
        person.visit.expect_refusal()
    person.hand.tick(person.page, person.page.get_by_role("radio", name="stopped"))
    person.press("Create")
    person.is_told("Create: done", "It was made")
    assert person.shop.worker.state(name) == "STOPPED"
    person.shop.worker.ask("DELETE", f"/connectors/{name}")


def test_a_fault_is_shown_by_create_too(person: Person) -> None:
    """A config with a fault is not made; the form comes again with the fault and with what was typed."""
    text = json.dumps({"name": "faulty", "connector.class": "keyfold.CompactedTopic", "topics": "a", "nonsense": "1"})
    person.visit.go("/ui/new")
    person.hand.write(person.page, person.page.get_by_label(re.compile("JSON")), text)
    person.press("Create")
    expect(person.page.locator(".faults")).to_contain_text("nonsense")
    expect(person.page.get_by_label(re.compile("JSON"))).to_have_value(text)
    assert person.shop.worker.ask("GET", "/connectors/faulty").status_code == 404
    person.visit.expect_refusal()


def test_a_key_is_looked_up(person: Person) -> None:
    """The latest record of a key is shown as REST answers it; of one that is not there, that none is kept."""
    name = tried(person.shop, TRIED)
    looked_up = f"/keyfold/connectors/{quote(name)}/records?key=key-3&text=true"
    wait_until(lambda: person.shop.worker.ask("GET", looked_up).status_code == 200, "a key is kept", WAIT_S)
    record = person.shop.worker.ask("GET", looked_up).json()["records"][0]
    person.visit.go(path_of(name))
    person.press("Look up a key", "link")
    for key, said in (("key-3", record["value"]), ("no-such-key", "Nothing is kept of this key")):
        person.hand.write(person.page, person.page.get_by_role("textbox"), key)
        person.press("Look it up")
        expect(person.page.locator("main")).to_contain_text(said)


def test_a_failed_connector_is_restarted_from_the_overview(person: Person) -> None:
    """The overview has a button beside what failed; it comes back to the overview, and says what was done."""
    name = failing(person.shop, "broken")
    before = starts(person.shop, name)
    button = person.visit.go("/ui").get_by_role("button", name=f"Restart {name}", exact=True)
    # while it is started again by itself it is not FAILED, and without scripts a page stays as it was loaded
    wait_until(
        lambda: button.count() > 0 or person.visit.go("/ui") is None, "the overview offers to restart it", WAIT_S
    )
    person.press(f"Restart {name}")
    expect(person.notice()).to_contain_text(re.compile("Restart: (asked for|done)"))
    assert person.page.url.partition("?")[0].endswith("/ui")
    wait_until(lambda: starts(person.shop, name) > before, "it was started again", WAIT_S)


@pytest.mark.long  # it takes a second worker
def test_a_viewer_is_offered_nothing_and_refused_everything(browser: Browser, guarded: Shop) -> None:
    """A viewer sees each page of a connector without a form that changes anything; a form sent anyway is refused."""
    name = tried(guarded, TRIED)
    with visiting(browser, guarded.url, Look(), "viewer", PASSWORD) as visit:
        for path in ("/ui", *(path_of(name, page) for page in ("", "settings", "log", "lookup", "letters", "what-if"))):
            page = visit.go(path)
            assert page.locator("form[method=post], a[href$='/resync'], a[href$='/delete']").count() == 0
        for deed in ("pause", "stop", "restart", "clean", "snapshot", "resync", "delete", "letters/dry-run", "what-if"):
            sent = visit.page.request.post(f"{guarded.url}{path_of(name, deed)}", form={"form": "", "confirm": "yes"})
            assert (deed, sent.status) == (deed, 403)
    assert guarded.worker.state(name) == "RUNNING"
