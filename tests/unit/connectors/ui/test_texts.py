"""Numbers, times and texts as the page writes them."""

from __future__ import annotations

import pytest
from markupsafe import Markup

from connectors.ui import texts


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (None, "—"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (150 << 20, "150 MiB"),
        (3 << 40, "3.0 TiB"),
        (5 << 50, "5120 TiB"),
    ],
)
def test_bytes(number: int | None, shown: str) -> None:
    """Bytes are in the largest unit of which there is one."""
    assert texts.size(number) == shown


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (None, "—"),
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (61_000, "1 min 1 s"),
        (3_600_000, "1 h"),
        (5_400_000, "1 h 30 min"),
        (90_000_000_000, "1041 d 16 h"),
    ],
)
def test_durations(ms: int | None, shown: str) -> None:
    """A time is in its two largest units."""
    assert texts.duration(ms) == shown


def test_what_a_terminal_or_a_reader_would_obey_is_written_out() -> None:
    """Bidi and control characters are escapes, in any text; markup of our own stays."""
    assert texts.shown("a\u202eb\x1b[2J") == r"a\u202eb\x1b[2J"
    assert texts.shown("two\nlines") == "two\nlines"
    assert texts.shown(Markup("<b>")) == "<b>"
    assert texts.shown(None) == "—"


def test_no_text_is_longer_than_the_bound() -> None:
    """A text of a megabyte becomes one of some thousand characters."""
    assert len(str(texts.shown("x" * 1_000_000))) == texts.LONGEST
    assert texts.first_line("first\nsecond") == "first"
    assert texts.first_line("x" * 500, 10) == f"{'x' * 9}…"
    assert texts.first_line(None) is None


def test_a_long_error_keeps_what_to_do() -> None:
    """What it quotes is cut in the middle, and its end stays, from the begin of a sentence or of a word."""
    said = texts.brief_error(f"Topic t refuses {'x' * 500}. It is cordoned. Set output.check=false.\nMore.")
    assert said is not None
    assert said.startswith("Topic t refuses xxx")
    assert said.endswith("x … It is cordoned. Set output.check=false.")
    assert len(said) == 240
    assert texts.brief_error("a " * 500, 20) == "a a a a  … a a a a a"
    assert texts.brief_error("x" * 500, 10) == "xx … xxxxx"
    assert texts.brief_error("first\nsecond") == "first"
    assert texts.brief_error(None) is None


def test_a_meaning_keeps_its_code_and_the_words_of_its_links() -> None:
    """What is no code is escaped."""
    assert texts.prose("See [the page](page.md): `a<b` & c") == "See the page: <code>a&lt;b</code> &amp; c"
    assert texts.prose("A. **B `<c>`.**") == "A. <strong>B <code>&lt;c&gt;</code>.</strong>"


@pytest.mark.parametrize(("at_ms", "said"), [(0, "1 s ago"), (3_000, "in 2 s")])
def test_a_time_says_how_far_it_is_and_when(at_ms: int, said: str) -> None:
    """Both are there: the distance to read, the time to copy."""
    assert said in texts.time_tag(at_ms, 1_000)
    assert 'datetime="1970-01-01T00:00:0' in texts.time_tag(at_ms, 1_000)
