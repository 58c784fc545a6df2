"""A key that is looked up on the page."""

from __future__ import annotations

from tests.support.browser import browse, words
from tests.support.rest import RestWorker
from tests.unit.connectors.rest.test_record_requests import keep


def test_a_key_that_is_not_kept_is_said_to_be_none(worker: RestWorker) -> None:
    """The form has what was typed, as text."""
    worker.create("a")
    page = browse(worker, "/ui/connectors/a/lookup?key=%3Cb%3E")
    assert page.status_code == 200
    assert "0 kept of this key" in words(page.text)
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
