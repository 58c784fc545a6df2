"""docs/transforms.md and docs/converters.md are true: settings, examples, and which classes there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.chain.chain import Chain
from connectors.chain.reference import page
from connectors.chain.spec import chain_faults, chain_spec
from connectors.converters.names import CONVERTERS, HEADER_CONVERTERS
from connectors.transforms.names import PREDICATES, TRANSFORMS
from tests.unit.connectors.chain.test_chain import batch

DOCS = Path(__file__).parents[4] / "docs"
PLAIN = {
    "key.converter": "keyfold.Json",
    "key.converter.schemas.enable": "false",
    "value.converter": "keyfold.Json",
    "value.converter.schemas.enable": "false",
}
FENCE = re.compile(r"```json\n(.*?)```", re.DOTALL)
SECTION = re.compile(r"^### (\w+)\n(.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)


def _text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def _examples() -> Iterator[tuple[str, dict[str, str], list[str]]]:
    """Yields each row of an example: its class, its settings, and the cells."""
    for name, section in SECTION.findall(_text("transforms.md")):
        fences = FENCE.findall(section)
        rows = [line for line in section.splitlines() if line.startswith("| ") and line.count(" | ") == 3]
        for row in rows:
            cells = [cell.strip().strip("`") for cell in row.strip("| ").split(" | ")]
            if fences and cells[0] not in {"key", "---", "setting"} and not cells[0].startswith("setting"):
                is_example = cells[2] in {"dropped", "error"} or cells[2].startswith(('"', "{"))
                if is_example:
                    yield name, json.loads(fences[0]), cells


EXAMPLES = list(_examples())


@pytest.mark.parametrize("name", ["converters.md", "transforms.md"])
def test_the_tables_of_settings_are_up_to_date(name: str) -> None:
    """They are what `python -m connectors.chain.reference` writes."""
    assert page(_text(name)) == _text(name)
    assert "<!-- settings: " in _text(name)


PAGES = [("transforms.md", (TRANSFORMS, PREDICATES)), ("converters.md", (CONVERTERS, HEADER_CONVERTERS))]


@pytest.mark.parametrize(("name", "names"), PAGES, ids=["transforms", "converters"])
def test_every_class_has_a_section(name: str, names: Any) -> None:
    """One with settings has a table of them."""
    text = _text(name)
    for one in (one for kind in names for one in kind.known):
        assert f"### {one.simple}\n" in text, one.simple
        if one.load().OPTIONS:
            assert f"<!-- settings: {one.simple} -->" in text, one.simple


@pytest.mark.parametrize("name", ["converters.md", "transforms.md"])
def test_examples_of_settings_are_valid(name: str) -> None:
    """A connector file takes each of them."""
    found = [json.loads(text) for text in FENCE.findall(_text(name))]
    assert found
    for settings in found:
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in settings.items()}
        assert chain_faults(texts, lambda text: text) == (), settings


@pytest.mark.parametrize(("name", "settings", "cells"), EXAMPLES, ids=[name for name, _, _ in EXAMPLES])
def test_an_example_does_what_the_page_says(name: str, settings: dict[str, str], cells: list[str]) -> None:
    """Key and value become what stands there, are dropped, or are refused."""
    assert name in "".join(settings.values())
    chain = Chain(chain_spec({**PLAIN, **settings}), str)
    key, value, new_key, new_value = cells
    given = tuple(None if text == "null" else text.encode() for text in (key, value))
    found = chain.apply(batch(given))  # type: ignore[arg-type]  # a pair
    if new_key == "dropped":
        assert found.num_rows == 0
        return
    assert (found["rejected"][0].as_py() is not None) is (new_key == "error")
    if new_key != "error":
        read = [
            None if data is None else json.loads(data) for data in (found["key"][0].as_py(), found["value"][0].as_py())
        ]
        assert read == [json.loads(new_key), json.loads(new_value)]


def test_there_are_examples() -> None:
    """So that the test above has something to hold."""
    assert len(EXAMPLES) >= 20
