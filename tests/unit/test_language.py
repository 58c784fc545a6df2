"""Plain English, counted: what makes names, docstrings and pages hard to read is there no more often than it was.

A limit may only fall: lower it after a change that brings its count down.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.unit.test_structure import ROOT

VAGUE_NAMES = 0  # `found` and `one` say nothing of what they hold
ADVERBS = 16  # "where" for "if", "whose", "anew" and the like: a reader has to look twice
RITUAL = 0  # "on its own because": a sentence for a test's sake
LONG_LINES = 0  # of the pages, outside code and tables, over LINE columns
LONG_CELLS = 0  # of the pages' tables, over CELL words: a row is one fact
LONG_SENTENCES = 1  # of the pages, over SENTENCE words

LINE, CELL, SENTENCE = 120, 30, 35
ADVERB = re.compile(r"\b(?:where|whose|anew|beside|behind|whoever|nobody|thereof)\b", re.IGNORECASE)
BLOCK = re.compile(r"^\s*```.*?^\s*```$", re.DOTALL | re.MULTILINE)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def vague_names(source: str) -> int:
    """Counts the uses of `found` and `one` as names of variables and parameters."""
    nodes = _nodes(source)
    used = [node.id for node in nodes if isinstance(node, ast.Name)] + [n.arg for n in nodes if isinstance(n, ast.arg)]
    return sum(name in ("found", "one") for name in used)


def adverbs(source: str) -> int:
    """Counts the adverbs in docstrings and comments."""
    return sum(len(ADVERB.findall(text)) for text in _prose(source))


def ritual(source: str) -> int:
    """Counts the docstrings that give a reason for a module's existence because a rule asks for one."""
    return sum("n its own because" in " ".join(text.split()) for text in _prose(source))


@cache  # several counts are of the same files
def _nodes(source: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(source)))


@cache
def _prose(source: str) -> tuple[str, ...]:
    nodes = (node for node in _nodes(source) if isinstance(node, _DOCUMENTED))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = (token.string for token in tokens if token.type == tokenize.COMMENT)
    return (*(ast.get_docstring(node) or "" for node in nodes), *comments)


def long_lines(page: str) -> int:
    """Counts the lines over LINE columns, without code and tables."""
    return sum(len(line) > LINE for line in _text(page))


def long_cells(page: str) -> int:
    """Counts the cells of tables over CELL words."""
    rows = (line.strip("|").split("|") for line in BLOCK.sub("", page).splitlines() if line.startswith("|"))
    return sum(len(cell.split()) > CELL for row in rows for cell in row)


def long_sentences(page: str) -> int:
    """Counts the sentences over SENTENCE words, across lines, without code, tables and headings."""
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", "\n".join(_text(page)))
    sentences = (each for part in paragraphs for each in re.split(r"(?<=[.!?])\s", " ".join(part.split())))
    return sum(len(sentence.split()) > SENTENCE for sentence in sentences)


def _text(page: str) -> Iterator[str]:
    lines = BLOCK.sub("", page).splitlines()
    return ("" if line.startswith(("|", "    ", "#")) else line for line in lines)


def _sources() -> Iterator[str]:
    return _read(path for folder in ("compactor", "connectors") for path in (ROOT / folder).rglob("*.py"))


def _pages() -> Iterator[str]:
    return _read([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])


def _read(paths: Iterable[Path]) -> Iterator[str]:
    return (path.read_text(encoding="utf-8") for path in paths)


def test_names_say_what_they_hold() -> None:
    """`found` and `one` become fewer."""
    assert sum(map(vague_names, _sources())) <= VAGUE_NAMES


def test_docstrings_and_comments_are_plain() -> None:
    """Conditions say "if", places say "after" or "next to"."""
    assert sum(map(adverbs, _sources())) <= ADVERBS


def test_no_sentence_exists_for_a_test() -> None:
    """Rules are for readers."""
    assert sum(map(ritual, _sources())) <= RITUAL


def test_lines_of_the_pages_fit_a_screen() -> None:
    """A diff shows the sentence that has changed."""
    assert sum(map(long_lines, _pages())) <= LONG_LINES


def test_a_row_is_one_fact() -> None:
    """What does not fit in a cell has a row, or a sentence below the table."""
    assert sum(map(long_cells, _pages())) <= LONG_CELLS


def test_sentences_of_the_pages_are_short() -> None:
    """A reader understands one at the first reading."""
    assert sum(map(long_sentences, _pages())) <= LONG_SENTENCES


@pytest.mark.parametrize(
    ("count", "text", "number"),
    [
        (vague_names, "def f(one):\n    found = one\n", 3),
        (vague_names, 'x.found = {"one": 1}\n', 0),
        (adverbs, '"""None where there is none."""\nx = "where"  # whose\n', 2),
        (ritual, '"""Cuts. On its own\nbecause Spark imports it."""\n', 1),
        (long_lines, f"{'a ' * 61}\n", 1),
        (long_lines, f"```\n{'a ' * 61}\n```\n| {'a ' * 61} |\n", 0),
        (long_cells, f"| {'a ' * 31}| b |\n| {'a ' * 30}|\n", 1),
        (long_sentences, f"{'a ' * 20}\n{'a ' * 16}.\n", 1),
        (long_sentences, f"{'a ' * 20}.\n{'a ' * 16}.\n\n- {'a ' * 30}\n- {'a ' * 30}\n", 0),
    ],
)
def test_what_is_counted(count: object, text: str, number: int) -> None:
    """Each count knows code from prose, and a table from a line."""
    assert callable(count)
    assert count(text) == number
