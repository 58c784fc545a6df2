"""docs/configuration.md says what the fields of the models say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from connectors.config.connector import ConnectorConfig
from connectors.config.definitions import Definition, definitions, documentation, families, paragraphs
from connectors.config.reference import page
from connectors.config.worker import WorkerConfig

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "configuration.md"
MODELS: tuple[type[BaseModel], ...] = (ConnectorConfig, WorkerConfig)
KEYS = [pytest.param(model, key, id=key.name) for model in MODELS for key in definitions(model).values()]

LEAST: dict[type[BaseModel], dict[str, str]] = {
    ConnectorConfig: {"name": "c", "connector.class": "CompactedTopic", "topics": "t"},
    WorkerConfig: {"bootstrap.servers": "h:1"},
}


def test_the_tables_are_up_to_date() -> None:
    """Every table is what `python -m connectors.config.reference docs/configuration.md` writes."""
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text
    assert text.count("<!-- table: ") == text.count("<!-- end -->") == 7


@pytest.mark.parametrize(("model", "key"), KEYS)
def test_every_key_has_its_row(model: type[BaseModel], key: Definition) -> None:
    """A key's row shows its default, or that it is required or not set, and says what it means; details stand below."""
    meaning, *details = paragraphs(model)[key.field]
    text = PAGE.read_text(encoding="utf-8")
    lines = text.splitlines()
    rows = [line for line in lines if line.startswith(f"| `{key.name}` | ") and f" | {key.type}: " in line]
    (row,) = [line for line in rows if meaning in line]  # the worker's may have the same name
    default = "**required**" if key.required else f"`{key.default}`" if key.default is not None else "none"
    assert row.split(" | ")[1] == default
    assert not details or f"- `{key.name}`: {' '.join(details)}" in " ".join(text.split())


def test_every_family_has_its_row() -> None:
    """Families of keys are in the page too."""
    text = PAGE.read_text(encoding="utf-8")
    for model in MODELS:
        for prefix, each in families(model).items():
            assert f"| `{prefix}*` | {paragraphs(model)[each.field][0]} |" in text


@pytest.mark.parametrize(("model", "key"), KEYS)
def test_a_declaration_says_all_that_is_to_be_known(model: type[BaseModel], key: Definition) -> None:
    """Connect's type and importance, what is allowed, a heading, the release that first had it, and what it means."""
    assert key.type in {"BOOLEAN", "STRING", "INT", "LONG", "DOUBLE", "LIST", "CLASS"}
    assert key.importance in {"high", "medium", "low"}
    assert key.valid_values
    assert key.group
    assert re.fullmatch(r"\d+\.\d+\.\d+", key.since)
    assert documentation(model)[key.field].endswith((".", "**"))
    assert key.unit == {"ms": "ms", "bytes": "bytes", "second": "bytes/s"}.get(key.name.rpartition(".")[2], key.unit)


@pytest.mark.parametrize(("model", "key"), KEYS)
def test_every_default_is_allowed(model: type[BaseModel], key: Definition) -> None:
    """A default is a text that the key's own rule takes: a file that writes it out means the same."""
    written = {} if key.default is None else {key.name: key.default}
    assert getattr(model(**LEAST[model] | written), key.field) == getattr(model(**LEAST[model]), key.field)


def test_the_worked_example_of_a_setting_is_the_code() -> None:
    """What CONTRIBUTING.md shows of a declaration and of its use stands so in the files that it names."""
    (section,) = re.findall(
        r"^## Adding a setting\n(.*?)^## ", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL | re.MULTILINE
    )
    blocks = re.findall(r"`((?:connectors|compactor)/[\w/]+\.py)`:\n\n((?:    .*\n)+)", section)
    assert [path for path, _ in blocks] == ["connectors/config/snapshots.py", "compactor/settings.py"]
    for path, block in blocks:
        assert all(line.strip() in (ROOT / path).read_text() for line in block.splitlines())
    named = re.findall(r"`((?:connectors|tests)/[\w/]+\.py)`", section)
    assert [path for path in named if not (ROOT / path).is_file()] == []
