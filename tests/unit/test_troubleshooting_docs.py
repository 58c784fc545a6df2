"""docs/troubleshooting.md quotes what the code says: each message of its tables is a text of the product."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
ANY = "…"
HEAD = "| message |"
PLACE = re.compile(r"\{[^{}]*\}")
"""A place of a text that is filled in by `str.format`."""


def quotes(page: str) -> list[str]:
    """What stands in backticks in the first column of the tables of messages."""
    found: list[str] = []
    inside = False
    for line in page.splitlines():
        inside = line.startswith(HEAD) or (inside and line.startswith("|"))
        if inside and not line.startswith((HEAD, "|---")):
            found += re.findall("`([^`]+)`", line.split(" | ")[0])
    return found


def texts(source: str) -> Iterator[str]:
    """All texts of a module but docstrings, with "…" for what is filled in."""
    tree = ast.parse(source)
    bare = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else ANY for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in bare:
            yield PLACE.sub(ANY, node.value)


@cache
def said() -> str:
    """Returns all texts of the product, a line each."""
    return "\n".join(
        text.replace("\n", " ")
        for folder in ("compactor", "connectors")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for text in texts(path.read_text(encoding="utf-8"))
    )


def _is_said(quote: str, lines: str) -> bool:
    """Whether one of `lines` has `quote` in it: "…" is what the code fills in, and perhaps more."""
    return re.search(".*".join(map(re.escape, quote.split(ANY))), lines) is not None


@pytest.mark.parametrize("quote", sorted(set(quotes(PAGE.read_text(encoding="utf-8")))))
def test_every_message_is_one_of_the_product(quote: str) -> None:
    """Its words stand in the sources as they are quoted, in one text."""
    assert _is_said(quote, said())


@pytest.mark.parametrize(
    ("quote", "is_said"),
    [
        ("at offset … is full", True),
        ("…: it is", True),
        ("no such text", False),
        ("at offset 7", False),
        ("full … offset", False),
        ("is full.…: it is", False),
        ("Says nothing.", False),
    ],
)
def test_a_wrong_quote_is_found(quote: str, is_said: bool) -> None:
    """Of a text only what is filled in may be left out; two texts are not one, and a docstring is none."""
    source = 'def f(n):\n    """Says nothing."""\n    return f"{n} at offset {n}" " is full.", "{what}: it is"\n'
    assert _is_said(quote, "\n".join(texts(source))) is is_said


def test_the_page_is_read() -> None:
    """Quotes are taken from the first columns of tables of messages, and there are many."""
    page = "| message | why |\n|---|---|\n| `a`, `b …` | `c` |\n\n| other | x |\n|---|---|\n| `d` | e |\n"
    assert quotes(page) == ["a", "b …"]
    assert len(quotes(PAGE.read_text(encoding="utf-8"))) > 80
