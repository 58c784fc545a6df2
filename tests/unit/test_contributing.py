"""The worked examples of CONTRIBUTING.md are the code as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest

from compactor.failpoints import STEPS
from tests.unit.test_structure import ROOT

_FILE = re.compile(r"`([\w/]+\.py)`")


def _examples() -> Iterator[tuple[str, str]]:
    """Yields (file, code) of each block that follows a paragraph that ends with a file and a colon."""
    paragraphs = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n\n")
    for before, block in pairwise(paragraphs):
        files = _FILE.findall(before)
        if files and before.endswith(":") and block.startswith("    ") and not block.startswith("    .venv/"):
            yield files[-1], block


def _sources() -> str:
    return "\n".join(
        path.read_text() for folder in ("compactor", "connectors") for path in (ROOT / folder).rglob("*.py")
    )


@pytest.mark.parametrize(("file", "block"), list(_examples()))
def test_an_example_is_in_the_file_that_it_names(file: str, block: str) -> None:
    """Each line stands there, whatever it is indented by."""
    code = {line.strip() for line in (ROOT / file).read_text(encoding="utf-8").splitlines()}
    assert [line for line in map(str.strip, block.splitlines()) if line not in code] == []


def test_all_kinds_of_examples_are_found() -> None:
    """A setting, a command and a failpoint: declaration and use of each."""
    assert len(list(_examples())) >= 7


@pytest.mark.parametrize("name", STEPS)
def test_a_failpoint_is_declared_hit_and_documented(name: str) -> None:
    """Its name stands at one more place of the code than its declaration, its step in docs/protocol.md."""
    protocol, step = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8"), STEPS[name].split()[0]
    assert f"`{name}`" in protocol or f"{step}: " in protocol  # C1 and C2 stand in a sentence
    assert _sources().count(f'"{name}"') >= 2


def test_only_declared_failpoints_are_hit() -> None:
    """A name that is hit without a declaration could be set by no test."""
    assert set(re.findall(r'\bhit\("([^"]+)"\)', _sources())) <= set(STEPS)
