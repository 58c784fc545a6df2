"""docs/reliability.md: its matrix has a place, every step of the protocol is argued, and the tests it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.faults.matrix import written

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
pytestmark = pytest.mark.selected


def test_the_matrix_has_a_place() -> None:
    """`make faults` can write into it."""
    assert written(PAGE, [])


def test_the_tests_it_names_exist() -> None:
    """Faults that are tried elsewhere are tried."""
    named = re.findall(r"`((?:unit|spark|kafka|e2e|conformance)/test_\w+\.py)(?:::(test_\w+))?`", PAGE)
    assert len(named) > 10
    for file, test in named:
        path = ROOT / "tests" / file
        assert path.is_file(), file
        assert f"def {test or 'test_'}" in path.read_text(encoding="utf-8"), f"{file}::{test}"


def test_every_step_is_argued() -> None:
    """For each step of the protocol the first table says what a death there leaves."""
    table = PAGE[PAGE.index("## Step by step: a process that dies") : PAGE.index("It makes no difference which")]
    first = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| "))
    changes = [*(f"G{number}" for number in range(1, 5)), *(f"R{number}" for number in range(1, 6))]
    steps = [
        "T1",
        "T4",
        *changes,
        "C1",
        "C2",
        *map(str, range(1, 13)),
        "13",
        "13a",
        "13b",
        "14a",
        "14b",
        "15",
        "16",
        "17",
        "18",
    ]
    assert [step for step in steps if not re.search(rf"\b{step}\b", first)] == []
