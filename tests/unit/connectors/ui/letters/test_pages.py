"""The page of dead letters: what it lists, one letter, a dry run, and the way back."""

from __future__ import annotations

import html
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from connectors.config.connector import ConnectorConfig
from connectors.ui.letters.limits import SHOWN_KINDS
from connectors.ui.letters.runs import MOST_KEPT
from connectors.ui.letters.shown import HEADERS
from tests.support.browser import browse, send, token, words
from tests.support.dead_letters import DEAD, DeadTopic, letter, worker_of
from tests.support.kafka import wait_until
from tests.support.rest import RestWorker
from tests.unit.connectors.rest.test_security import users_file
from tests.unit.connectors.ui.letters.conftest import SETTINGS
from tests.unit.connectors.ui.test_acting import ADMIN, VIEWER

PLACE = "/ui/connectors/a/letters"
GOOD, BAD = b'{"id": 1}', b"{bad"


def dry_run(worker: RestWorker, **fields: str) -> httpx.Response:
    """The page that a dry run leads to, once it has ended."""
    return ended(worker, send(worker, f"{PLACE}/dry-run", fields=fields))


def ended(worker: RestWorker, page: httpx.Response) -> httpx.Response:
    """The page of a run once that has ended."""
    pages = [page]
    wait_until(lambda: "under way" not in words(_again(worker, pages).text), "the run ends")
    return pages[-1]


def _again(worker: RestWorker, pages: list[httpx.Response]) -> httpx.Response:
    if "under way" in words(pages[-1].text):
        pages.append(browse(worker, pages[-1].url.path))
    return pages[-1]


def redrive(worker: RestWorker, page: httpx.Response, **fields: str) -> httpx.Response:
    """The page that a redrive leads to, after the dry run with `page`."""
    return ended(worker, send(worker, f"{page.url.path}/redrive", fields={"confirm": "yes", **fields}))


def test_a_connector_without_dead_letters_says_how_to_keep_them(worker: RestWorker) -> None:
    """With settings that a single broker takes as well, and no form."""
    worker.create("b")
    page = browse(worker, "/ui/connectors/b/letters")
    assert page.status_code == 200
    assert "<form" not in page.text
    recipe = page.text.partition("<code>")[2].partition("</code>")[0]
    settings = json.loads("{" + html.unescape(recipe) + "}")
    config = ConnectorConfig.model_validate(
        {"name": "b", "connector.class": "CompactedTopic", "topics": "t", **settings}
    )
    assert config.dead_letter_topic == "b.dead"
    assert config.dead_letter_replication_factor == -1


def test_the_connectors_page_leads_to_its_letters(worker: RestWorker) -> None:
    """By the count of those since its start."""
    worker.supervisor("a").counters["dead_letters"] = 1_234
    wait_until(lambda: f'<a href="{PLACE}">1,234</a>' in browse(worker, "/ui/connectors/a").text, "it is measured")


def test_letters_are_counted_by_what_they_say_and_the_newest_are_first(worker: RestWorker, topic: DeadTopic) -> None:
    """As `keyfold dlq list` counts them, with how many of how many were looked at."""
    topic.letters = [letter(0), letter(2), letter(4, stage="TRANSFORMATION", class_name="ValueToKey")]
    page = browse(worker, PLACE).text
    shown = words(page)
    assert "3 letters were looked at, the newest of dead, which has 5 offsets" in shown
    assert "t VALUE_CONVERTER keyfold.Json DataError 2 2" in shown
    assert "t TRANSFORMATION ValueToKey DataError 1 1" in shown
    assert re.findall(r"letters/at/0/(\d)", page) == ["4", "2", "0"]


def test_letters_of_a_kind_are_listed_alone(worker: RestWorker, topic: DeadTopic) -> None:
    """By the address that its row leads to; the counts are of all."""
    topic.letters = [letter(0), letter(1, stage="TRANSFORMATION")]
    page = browse(worker, f"{PLACE}?topic=t&stage=TRANSFORMATION&class=keyfold.Json").text
    assert re.findall(r"letters/at/0/(\d)", page) == ["1"]
    assert "VALUE_CONVERTER keyfold.Json DataError 1" in words(page)
    assert "There is no stage X." in words(browse(worker, f"{PLACE}?stage=X").text)


def test_a_letter_is_shown_whole(worker: RestWorker, topic: DeadTopic) -> None:
    """Key, value, headers, where it came from and the whole error; bytes that are no text in base64."""
    own = (("h", b"one"), ("n", None))
    topic.letters = [
        replace(letter(7, b"\xff\x00", exception_stacktrace="DataError: x\n\tat y (t-0 at offset 7)"), headers=own)
    ]
    shown = words(browse(worker, f"{PLACE}/at/0/7").text)
    assert "Key k7" in shown
    assert "Value /wA= base64" in shown
    assert "h one n null" in shown
    assert "Source topic t Partition 0 Offset 7" in shown
    assert "connectors.errors.DataError It is no JSON." in shown
    assert "at y (t-0 at offset 7)" in shown


@pytest.mark.parametrize("path", ["0/8", "1/7", "0/x", "x/0", "0/99999999999999999999"])
def test_a_letter_that_is_not_there_is_said_not_to_be(worker: RestWorker, topic: DeadTopic, path: str) -> None:
    """Whatever the address names."""
    topic.letters = [letter(7)]
    assert browse(worker, f"{PLACE}/at/{path}").status_code == 404


HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e"


def test_what_a_letter_says_is_text(worker: RestWorker, topic: DeadTopic) -> None:
    """Escaped, printable and bounded, wherever it stands: others may have written all of it."""
    said = dict.fromkeys(("topic", "stage", "class_name", "exception_class_name", "exception_message"), HOSTILE * 900)
    said |= dict.fromkeys(("offset", "partition", "exception_stacktrace", "connector_name"), HOSTILE * 900)
    hostile = HOSTILE.encode() * 90_000
    many = tuple((HOSTILE * 90, hostile) for _ in range(300))
    topic.letters = [replace(letter(0, hostile, **said), key=hostile, headers=many)]
    for path in (PLACE, f"{PLACE}/at/0/0"):
        page = browse(worker, path)
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert not {"\x1b", "\u202e"} & set(page.text)
        assert len(page.text) < 1 << 20
    assert ("and 200 more" in words(page.text), page.text.count('data-label="Value"')) == (True, HEADERS)


def test_a_redrive_begins_with_a_dry_run(worker: RestWorker, topic: DeadTopic) -> None:
    """It says what would go and what would come back, and sends nothing; then that goes, once."""
    topic.letters = [letter(0, GOOD), letter(1, BAD), letter(2, b"[1]"), letter(3, connector_name="other")]
    dry = dry_run(worker)
    assert "Dry run of a redrive: done" in words(dry.text)
    assert "would go back to t 3" in words(dry.text)
    assert "would be left: of another connector 1" in words(dry.text)
    assert "3 1 2 0" in words(dry.text)
    assert re.findall(r"letters/at/0/(\d)", dry.text) == ["1", "2"]
    assert "TRANSFORMATION ValueToKey" in words(dry.text)
    assert topic.sent == []
    done = redrive(worker, dry)
    assert "Redrive: done" in words(done.text)
    assert "3 letters went back to their topics." in words(done.text)
    assert topic.sent == [0, 1, 2]
    assert "Redrive: done" in words(browse(worker, "/ui/connectors/a").text)
    assert "DataError 4 0" in words(browse(worker, PLACE).text)
    assert "There is nothing to send back" in words(
        send(worker, f"{dry.url.path}/redrive", fields={"confirm": "yes"}).text
    )
    assert topic.sent == [0, 1, 2]


def test_no_more_goes_than_the_dry_run_has_counted(worker: RestWorker, topic: DeadTopic) -> None:
    """What has come meanwhile stays for another run."""
    topic.letters = [letter(0), letter(1)]
    dry = dry_run(worker)
    topic.letters.append(letter(2))
    assert "2 letters went back" in words(redrive(worker, dry).text)
    assert topic.sent == [0, 1]


def test_what_the_dry_run_has_not_come_to_stays_in_each_partition(worker: RestWorker, topic: DeadTopic) -> None:
    """A letter that came meanwhile takes the place of none in a later partition."""
    topic.topics[DEAD] = 2
    topic.letters = [letter(0), letter(7, b"v", 1)]
    dry = dry_run(worker)
    topic.letters.append(letter(1))
    assert "2 letters went back" in words(redrive(worker, dry).text)
    assert topic.sent == [0, 7]
    redrive(worker, dry_run(worker))
    assert topic.sent == [0, 7, 1]


def test_a_run_under_way_keeps_its_page(worker: RestWorker, topic: DeadTopic) -> None:
    """However many runs of other connectors came after it; and it says what came of it."""
    topic.letters = [letter(0)]
    worker.create("b", **SETTINGS)
    dry = dry_run(worker)
    held = threading.Event()

    def hold() -> None:
        held.wait(60)

    topic.before_transaction = hold  # type: ignore[method-assign]
    page = send(worker, f"{dry.url.path}/redrive", fields={"confirm": "yes"})
    for _ in range(MOST_KEPT + 1):
        send(worker, "/ui/connectors/b/letters/dry-run")
    assert "Redrive: under way" in words(browse(worker, page.url.path).text)
    held.set()
    assert "1 letter went back to their topics." in words(ended(worker, page).text)


def test_a_connector_has_no_run_of_another_one_that_had_its_name(worker: RestWorker, topic: DeadTopic) -> None:
    """Its address leads nowhere, and no page leads to it."""
    topic.letters = [letter(0)]
    dry = dry_run(worker)
    assert "The last dry run" in words(browse(worker, PLACE).text)
    assert worker.ask("DELETE", "/connectors/a").status_code == 204
    assert worker.create("a", **SETTINGS).status_code == 201
    assert browse(worker, dry.url.path).status_code == 404
    assert "The last dry run" not in words(browse(worker, PLACE).text)


def test_kinds_of_a_dry_run_are_few(worker: RestWorker, topic: DeadTopic) -> None:
    """Whoever writes letters may give each a class of its own; those that are left out are counted."""
    topic.letters = [letter(at, BAD, class_name=f"c{at}") for at in range(SHOWN_KINDS + 7)]
    shown = words(dry_run(worker).text)
    assert "and 7 more kinds" in shown
    assert f"{SHOWN_KINDS + 7} of them would be let go again" in shown


def test_a_redrive_is_confirmed(worker: RestWorker, topic: DeadTopic) -> None:
    """A click is not enough, nor is a dry run of before the config was changed."""
    topic.letters = [letter(0)]
    dry = dry_run(worker)
    assert send(worker, f"{dry.url.path}/redrive").status_code == 400
    settings = {"connector.class": "keyfold.CompactedTopic", **SETTINGS, "transforms.id.fields": "x"}
    assert worker.ask("PUT", "/connectors/a/config", json=settings).status_code == 200
    assert "has changed since the dry run" in words(
        send(worker, f"{dry.url.path}/redrive", fields={"confirm": "yes"}).text
    )
    assert topic.sent == []


def test_a_form_chooses_letters(worker: RestWorker, topic: DeadTopic) -> None:
    """By topic, stage, class and number; a choice that is none is refused."""
    topic.letters = [letter(0), letter(1, stage="TRANSFORMATION"), letter(2, stage="TRANSFORMATION")]
    dry = dry_run(worker, stage="TRANSFORMATION", limit="1")
    assert "would go back to t 1" in words(dry.text)
    redrive(worker, dry)
    assert topic.sent == [1]
    for fields in ({"limit": "0"}, {"limit": "x"}, {"limit": "10001"}, {"redrives": "-1"}, {"stage": "X"}):
        assert send(worker, f"{PLACE}/dry-run", fields=fields).status_code == 400
    wrong = words(send(worker, f"{PLACE}/dry-run", fields={"redrives": "-1"}).text)
    assert '"-1" does not say how often a record may come back.' in wrong
    assert "is no source topic" in words(dry_run(worker, topic="nope").text)


def test_a_run_is_cancelled_between_two_transactions(worker: RestWorker, topic: DeadTopic) -> None:
    """What has gone is said, and another run sends the rest."""
    topic.letters = [letter(at) for at in range(1_200)]
    dry = dry_run(worker)
    held, going = threading.Event(), threading.Event()

    def hold() -> None:
        going.set()
        held.wait(20)

    topic.before_transaction = hold  # type: ignore[method-assign]
    page = send(worker, f"{dry.url.path}/redrive", fields={"confirm": "yes"})
    assert going.wait(20)
    assert "Redrive: under way" in words(page.text)
    assert "is under way" in words(send(worker, f"{PLACE}/dry-run").text)
    assert "button>Cancel" in browse(worker, page.url.path).text
    with ThreadPoolExecutor(1) as people:
        cancelled = people.submit(send, worker, f"{page.url.path}/cancel")
        wait_until(lambda: "It is being cancelled" in words(browse(worker, page.url.path).text), "it is cancelled")
        held.set()
        after = ended(worker, cancelled.result(20))
    assert "it was cancelled. 500 letters went back before." in words(after.text)
    assert topic.sent == list(range(500))
    redrive(worker, dry_run(worker))
    assert topic.sent == list(range(1_200))


def test_a_worker_that_ends_ends_a_run(tmp_path: Path) -> None:
    """Between two transactions."""
    topic = DeadTopic(*(letter(at) for at in range(1_200)))
    with worker_of(tmp_path, topic) as worker:
        assert worker.create("a", **SETTINGS).status_code == 201
        dry = dry_run(worker)
        going, held = threading.Event(), threading.Event()

        def hold() -> None:
            going.set()
            held.wait(20)

        topic.before_transaction = hold  # type: ignore[method-assign]
        send(worker, f"{dry.url.path}/redrive", fields={"confirm": "yes"})
        assert going.wait(20)
    held.set()
    wait_until(lambda: "page-redrive" not in {each.name for each in threading.enumerate()}, "the run ends")
    assert topic.sent == list(range(500))


def test_a_viewer_sees_letters_and_sends_none(tmp_path: Path) -> None:
    """As REST shows records to a viewer; a form is an admin's, and one of the page's own."""
    topic = DeadTopic(letter(0, GOOD))
    users = users_file(tmp_path, ann="admin", bob="viewer")
    more = {"rest.auth": "basic", "rest.auth.users.file": str(users)}
    with worker_of(tmp_path, topic, **more) as worker:
        settings = {"connector.class": "keyfold.CompactedTopic", **SETTINGS}
        assert worker.ask("PUT", "/connectors/a/config", json=settings, auth=ADMIN).status_code == 201
        assert 'Value {"id": 1}' in words(browse(worker, f"{PLACE}/at/0/0", auth=VIEWER).text)
        page = browse(worker, PLACE, auth=VIEWER).text
        assert "1 letter was looked at" in words(page)
        assert "<form" not in page
        own = token(worker, auth=ADMIN)
        assert send(worker, f"{PLACE}/dry-run", auth=VIEWER, form=own).status_code == 403
        dry = send(worker, f"{PLACE}/dry-run", auth=ADMIN)
        assert "Redrive</button>" in dry.text
        seen = browse(worker, dry.url.path, auth=VIEWER)
        assert (seen.status_code, "<form" in seen.text) == (200, False)
        for path in (f"{dry.url.path}/redrive", f"{dry.url.path}/cancel"):
            assert send(worker, path, auth=VIEWER, form=own, fields={"confirm": "yes"}).status_code == 403
            assert send(worker, path, auth=ADMIN, form="0" * 64, fields={"confirm": "yes"}).status_code == 403
            evil = {"Origin": "http://evil.example"}
            assert send(worker, path, auth=ADMIN, headers=evil, fields={"confirm": "yes"}).status_code == 403
    assert topic.sent == []


def test_runs_are_their_connectors_own(worker: RestWorker, topic: DeadTopic) -> None:
    """No other connector's address leads to one, and none to what is not kept."""
    topic.letters = [letter(0)]
    worker.create("b", **{**SETTINGS, "topics": "u"})
    dry = dry_run(worker)
    other = dry.url.path.replace("/a/", "/b/")
    assert browse(worker, other).status_code == 404
    assert send(worker, f"{other}/redrive", fields={"confirm": "yes"}).status_code == 404
    assert browse(worker, f"{PLACE}/runs/nope").status_code == 404
    assert "no dead letter topic" in words(_refused_of_none(worker))


def _refused_of_none(worker: RestWorker) -> str:
    worker.create("c")
    return send(worker, "/ui/connectors/c/letters/dry-run").text


def test_a_topic_that_is_not_there_yet_is_said_to_be_none(worker: RestWorker, topic: DeadTopic) -> None:
    """It is told from one that is empty."""
    assert "There are no letters in dead." in words(browse(worker, PLACE).text)
    del topic.topics[DEAD]
    assert "Topic dead does not exist" in words(browse(worker, PLACE).text)
    assert "There are no letters to send back" in words(dry_run(worker).text)
