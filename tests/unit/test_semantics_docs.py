"""docs/semantics.md names a test for everything that it says, and each of them is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "semantics.md"
NAMED = re.compile(r"`([a-z0-9_/]+/test_\w+\.py)::(test_\w+)`")
UNTESTABLE = "cannot be tested"


class Row(NamedTuple):
    """A row of a table, below its heading."""

    heading: str
    cells: tuple[str, ...]

    @property
    def tests(self) -> list[tuple[str, str]]:
        """File below tests/ and function of each test in the last column."""
        return NAMED.findall(self.cells[-1])


def rows(text: str) -> list[Row]:
    """All rows of all tables but heads and rules."""
    found: list[Row] = []
    heading, head = "", True
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if not line.startswith("|"):
            head = True
        elif head:
            head = False
        elif not line.startswith("|---"):
            found.append(Row(heading, tuple(cell.strip() for cell in line.strip("|").split("|"))))
    return found


ROWS = rows(PAGE.read_text(encoding="utf-8"))


@cache
def functions(path: Path) -> frozenset[str]:
    """The functions that a file defines at its top."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: re.sub(r"\W+", " ", row.cells[0])[:60])
def test_every_statement_names_tests_that_exist(row: Row) -> None:
    """Each row has a test, or says why there can be none; what looks like a test's name is one."""
    assert row.tests or UNTESTABLE in row.cells[-1]
    assert row.cells[-1].count("::") == len(row.tests)
    missing = [f"{file}::{test}" for file, test in row.tests if test not in functions(ROOT / "tests" / file)]
    assert missing == []


def test_tables_are_whole() -> None:
    """Guarantees stand beside Kafka's cleaner, in four columns; what is not guaranteed has its reason, in three."""
    assert {len(row.cells) for row in ROWS if row.heading != "Not guaranteed"} == {4}
    assert {len(row.cells) for row in ROWS if row.heading == "Not guaranteed"} == {3}
    assert all(row.cells[0] and row.cells[-1] for row in ROWS)
    assert all(row.cells[1] for row in ROWS if row.heading == "Not guaranteed")


@pytest.mark.parametrize("number", range(1, 26))
def test_every_scenario_has_its_test_and_its_place(number: int) -> None:
    """Each of the 25 acceptance scenarios is a test of tests/conformance, and proves something on the page."""
    name = f"test_scenario_{number:02}_"
    files = (ROOT / "tests" / "conformance").glob("test_scenarios_*.py")
    assert any(function.startswith(name) for file in files for function in functions(file))
    assert any(test.startswith(name) for row in ROWS for _, test in row.tests)


def test_the_lag_is_said_in_bold() -> None:
    """Nobody overlooks that the lag is also a record's wait: in the words above the tables and in the table."""
    text = PAGE.read_text(encoding="utf-8")
    assert text.replace("\n", " ").count("the lag is also the time that a record waits before it is published.**") == 1
    assert text.count("| **The lag is also the time that a record waits before it is published.** |") == 1
    assert "semantics.md" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "semantics.md" in (ROOT / "docs" / "design.md").read_text(encoding="utf-8")


def test_a_wrong_page_is_found() -> None:
    """The parser reads rows and not heads, and knows a test by its form."""
    found = rows("## A\n\n| what | proved by |\n|---|---|\n| x | `unit/test_a.py::test_b`, test_c |\n")
    assert [(row.heading, row.cells[0], row.tests) for row in found] == [("A", "x", [("unit/test_a.py", "test_b")])]
