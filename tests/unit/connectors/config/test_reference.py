"""docs/configuration.md says what the keys say."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.config.key import Key
from connectors.config.keys import CONNECTOR_KEYS, CONNECTOR_PREFIXES, WORKER_KEYS, WORKER_PREFIXES
from connectors.config.reference import page
from connectors.config.release import LATER

PAGE = Path(__file__).parents[4] / "docs" / "configuration.md"
KEYS = {**CONNECTOR_KEYS, **WORKER_KEYS}


def test_the_tables_are_up_to_date() -> None:
    """Every table is what `python -m connectors.config.reference docs/configuration.md` writes."""
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text
    assert text.count("<!-- table: ") == text.count("<!-- end -->") == 7


@pytest.mark.parametrize("key", KEYS.values(), ids=lambda key: key.name)
def test_every_key_has_its_row(key: Key) -> None:
    """A key's row shows its default, or that it is required or not set, and says what it means."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    (row,) = [line for line in lines if line.startswith(f"| `{key.name}` | ") and f" | {key.kind.type}: " in line]
    default = "**required**" if key.required else f"`{key.default}`" if key.default is not None else "none"
    assert row.split(" | ")[1] == default
    assert key.doc in row
    assert ("Not available yet" in row) == (key.name in LATER)


def test_every_family_has_its_row() -> None:
    """Families of keys are in the page too."""
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"| `{prefix.name}*` | {prefix.doc} |" in text for prefix in (*CONNECTOR_PREFIXES, *WORKER_PREFIXES))


@pytest.mark.parametrize("key", KEYS.values(), ids=lambda key: key.name)
def test_every_default_is_allowed(key: Key) -> None:
    """A default is a value that the key's own rule takes."""
    assert key.required or key.default is None or key.kind.parse(key.default) == key.default_value
