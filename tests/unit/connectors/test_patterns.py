"""No pattern holds a thread for long, whatever text it is given: `re` lets no other thread run meanwhile."""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[3]
LIMIT_S: Final = 0.5
"""The most that a call may take for the longest text (s of this thread); for a shorter one, as much less."""
LENGTHS: Final = (25, 2_500, 20_000)
"""Characters of a text. The short ones come first, so that a pattern of the wrong kind fails within seconds."""
ENDS: Final = ("x", "\n!")
MOST_BEGUN: Final = 6
"""Literals of one pattern that are tried: more take seconds, and no pattern has yet been of two kinds."""
METHODS: Final = frozenset({"match", "fullmatch", "search", "sub", "subn", "finditer", "findall", "split"})


class Used(NamedTuple):
    """A pattern, where it stands, and the methods of it that are called anywhere."""

    where: str
    pattern: re.Pattern[str]
    methods: frozenset[str]


def patterns() -> Iterator[Used]:
    """Yields each pattern that a module of the packages holds at its top level, also within a dict or a tuple."""
    for path in sorted(path for package in ("compactor", "connectors") for path in (ROOT / package).rglob("*.py")):
        text = path.read_text()
        if "re.compile(" not in text:
            continue
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        called = methods_called(ast.parse(text))
        for name, value in vars(module).items():
            for pattern in held(value):
                yield Used(f"{module.__name__}.{name}", pattern, called.get(name, METHODS))


def methods_called(tree: ast.Module) -> dict[str, frozenset[str]]:
    """Returns, by the name of a constant, the methods that its module calls: `_NUMBER.fullmatch(…)`."""
    called: dict[str, frozenset[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in METHODS:
            called[node.value.id] = called.get(node.value.id, frozenset()) | {node.attr}
    return called


def held(value: Any) -> list[re.Pattern[str]]:
    """Returns the patterns of text that a constant is, or holds."""
    if isinstance(value, re.Pattern):
        return [value] if isinstance(value.pattern, str) else []
    inner = value.values() if type(value) is dict else value if type(value) in {tuple, list} else ()
    return [pattern for each in inner for pattern in held(each)]


def begun(pattern: str) -> list[str]:
    """Returns what texts begin with: nothing, and each literal of the pattern, which brings it past its beginning."""
    literals = re.findall(
        r"[A-Za-z$:/_'\"<-]{2,}|[\[({'\"$:]", re.sub(r"\(\?[:=!<P]*|\\[A-Za-z]|\[[^\]]*\]", " ", pattern)
    )
    return ["", *list(dict.fromkeys(literals))[:MOST_BEGUN]]


def texts(pattern: str, length: int) -> Iterator[str]:
    """Yields long runs of what patterns repeat, and of what this one says itself, with each of the ends."""
    starts = begun(pattern)
    for run in dict.fromkeys(["1", "a", " ", "1.", "-", "a.", "\\", "a b ", *starts[1:]]):
        body = (run * (length // len(run) + 1))[:length]
        yield from (body + end for end in ENDS)
        yield from (start + body for start in starts if len(run) == 1)


PATTERNS: Final = list(patterns())


@pytest.mark.parametrize("used", PATTERNS, ids=[f"{each.where} {number}" for number, each in enumerate(PATTERNS)])
def test_a_pattern_takes_a_time_that_grows_with_the_text_alone(used: Used) -> None:
    """A long run of what it repeats, and then an end that fits nothing, is where another kind of pattern is seen."""
    calls: dict[str, Callable[[str], object]] = {
        name: getattr(used.pattern, name) for name in used.methods if name in {"match", "fullmatch", "search", "split"}
    }
    if used.methods & {"sub", "subn", "finditer", "findall"}:
        calls["finditer"] = lambda text: sum(1 for _ in used.pattern.finditer(text))
    for length in LENGTHS:
        for text in texts(used.pattern.pattern, length):
            for name, call in calls.items():
                began = time.thread_time()
                call(text)
                took = time.thread_time() - began
                assert took < LIMIT_S * max(2_500, length) / LENGTHS[-1], (
                    f"{used.where}.{name}, {text[:20]!r}…{text[-5:]!r} of {length}: {took:.1f} s"
                )


def test_the_patterns_are_found() -> None:
    """Among them those of numbers that a record or a request may send, and those in a dict."""
    found = {each.where for each in PATTERNS}
    assert {"connectors.transforms.cast._FLOAT", "connectors.config.fields._NUMBER"} <= found
    assert len(found) > 60
