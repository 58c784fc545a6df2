"""A key that is looked up on the page."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from tests.support.browser import browse, words
from tests.support.rest import RestWorker
from tests.unit.connectors.rest.test_record_requests import OF_JSON, keep


def test_a_key_that_is_not_kept_is_said_to_be_none(worker: RestWorker) -> None:
    """The form has what was typed, as text; below it stands how keys are compared, and what shows how they are kept."""
    worker.create("a")
    page = browse(worker, "/ui/connectors/a/lookup?key=%3Cb%3E")
    assert page.status_code == 200
    shown = words(page.text)
    assert "Nothing is kept of this key" in shown
    assert "Keys are compared by their bytes" in shown
    assert "keyfold dump CONNECTOR.json --partition 0" in shown
    assert 'value="&lt;b&gt;"' in page.text


def test_the_form_alone_looks_nothing_up(worker: RestWorker) -> None:
    """Without a key there is only the form."""
    worker.create("a")
    assert "kept of this key" not in browse(worker, "/ui/connectors/a/lookup").text
    assert browse(worker, "/ui/connectors/b/lookup?key=x").status_code == 404


def test_what_is_kept_of_a_key_is_shown(worker: RestWorker) -> None:
    """Of each partition: text as it is, other bytes in base64, and a tombstone with its end."""
    keep(worker, [(b"k", b"<i>one</i>")], [(b"k", b"\xff")], [(b"k", None)], [(b"other", b"two")])
    page = browse(worker, "/ui/connectors/a/lookup?key=k").text
    shown = words(page)
    assert "3 kept of this key" in shown
    assert [f"t / {number}" in shown for number in range(4)] == [True, True, True, False]
    assert "Value <i>one</i>" in shown
    assert "<i>" not in page
    assert "Value /w== (base64)" in shown
    assert "Value none" in shown
    assert shown.count("Tombstone, kept until") == 1
    assert "two" not in shown


@pytest.mark.parametrize(
    ("key", "form", "offset"),
    [("AP8=", "base64", 0), (" 00ff ", "hex", 0), ("k", "text", 1), ("k", "nope", 1), ('{"id": 7}', "value", 2)],
)
def test_a_key_is_given_in_any_form(worker: RestWorker, key: str, form: str, offset: int) -> None:
    """Bytes that no keyboard has, and values whose spelling only a converter knows; the form stays chosen."""
    kept = [(b"\x00\xff", b"one"), (b"k", b"two"), (b'{"id":7}', b"three"), (b"last", b"four")]
    keep(worker, kept, settings=OF_JSON)
    page = browse(worker, "/ui/connectors/a/lookup?" + urlencode({"key": key, "form": form})).text
    assert "1 kept of this key" in words(page)
    assert f"Value {kept[offset][1].decode()}" in words(page)
    chosen = form if form != "nope" else "text"
    assert f'value="{chosen}" checked' in page


def test_a_key_that_is_not_in_its_form_is_refused(worker: RestWorker) -> None:
    """With what to write instead."""
    worker.create("a")
    for key, form, said in (
        ("A", "base64", "not base64"),
        ("AP8=*", "base64", "not base64"),
        ("\u00e9", "base64", "not base64"),
        ("xy", "hex", "digits"),
    ):
        answer = browse(worker, "/ui/connectors/a/lookup?" + urlencode({"key": key, "form": form}))
        assert (answer.status_code, said in words(answer.text)) == (400, True)
