"""What of a page has changed."""

from __future__ import annotations

import json

import pytest

from connectors.ui.live.changes import RenewedText, change, everything, renewed


def page(*rows: tuple[str, str], head: str = "<h2>All</h2>") -> RenewedText:
    parts = "".join(f'<!--part--><p id="{name}">{text}</p><!--/part-->\n' for name, text in rows)
    return renewed(f"<html>12:01 <div><!--live-->{head}{parts}<!--/live--></div>")


def sent(event: bytes) -> tuple[str, object]:
    first, second, *rest = event.decode().split("\n")
    assert rest == ["", ""]
    return first.removeprefix("event: "), json.loads(second.removeprefix("data: "))


def test_only_the_parts_that_differ_are_sent() -> None:
    """Each as the element that it is; what is the same is not sent again."""
    before = page(("a", "1"), ("b", "2"), ("c", "3"))
    assert sent(change(before, page(("a", "1"), ("b", "4\n5"), ("c", "6")))) == (
        "parts",
        ['<p id="b">4\n5</p>', '<p id="c">6</p>'],
    )
    assert change(before, page(("a", "1"), ("b", "2"), ("c", "3"))) == b""


@pytest.mark.parametrize(
    "now",
    [
        page(("b", "2"), ("a", "1")),
        page(("a", "1")),
        page(("a", "1"), ("b", "2"), ("c", "3")),
        page(("a", "1"), ("b", "2"), head="<h2>Some</h2>"),
    ],
)
def test_all_is_sent_if_more_than_parts_differ(now: RenewedText) -> None:
    """Another order, other parts, or other text between them."""
    before = page(("a", "1"), ("b", "2"))
    assert change(before, now) == everything(now) == change(None, now)
    assert sent(everything(now)) == ("whole", now.whole)


def test_the_head_of_a_page_is_renewed_too() -> None:
    """By itself, and with all the rest."""
    text = '<!--part--><b id="health">%s</b><!--/part--><!--live--><h2>%s</h2><!--/live-->'
    before, ill, other = (renewed(text % each) for each in (("well", "All"), ("ill", "All"), ("ill", "Some")))
    assert sent(change(before, ill)) == ("parts", ['<b id="health">ill</b>'])
    head, whole, rest = change(ill, other).split(b"\n\n")
    assert (sent(head + b"\n\n"), sent(whole + b"\n\n"), rest) == (
        ("parts", ['<b id="health">ill</b>']),
        ("whole", "<!--live--><h2>Some</h2>"),
        b"",
    )


def test_a_page_that_does_not_say_what_is_renewed_is_none() -> None:
    """The template is to be mended, and the log says so."""
    with pytest.raises(ValueError, match="substring not found"):
        renewed("<html></html>")


@pytest.mark.parametrize("part", ['<!--part--><p id="a">1</p>', "<!--part--><p>1</p><!--/part-->"])
def test_a_part_has_an_id_and_an_end(part: str) -> None:
    """The browser finds by its id what is to be replaced."""
    with pytest.raises(ValueError, match="no id or no end"):
        renewed(f"<!--live-->{part}<!--/live-->")
