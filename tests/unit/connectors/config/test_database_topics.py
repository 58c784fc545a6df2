"""configs/database-rows.json reads the tables of a database and nothing else, as docs/operating.md says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from connectors.config.connector import ConnectorConfig
from connectors.config.files import load_connector
from connectors.config.selection import select

ROOT: Final = Path(__file__).parents[4]
FILE: Final = ROOT / "configs" / "database-rows.json"
SECTION: Final = (
    (ROOT / "docs" / "operating.md").read_text(encoding="utf-8").partition("## The tables of a database\n")[2]
).partition("\n## ")[0]
READ: Final = ("shop.public.customers", "shop.public.events_2026_01")
LEFT: Final = (
    *("shop.public.customers.rows", "shop.audit.log.rows", "shop.dead", "shop.transaction", "shop.audit.log"),
    *("__debezium-heartbeat.shop", "shop.public.debezium_signal", "shop-signal", "shop", "other.public.customers"),
)


@pytest.fixture
def connector() -> ConnectorConfig:
    return load_connector(FILE).config


def test_tables_are_read_and_nothing_else_of_debezium_s_or_keyfold_s(connector: ConnectorConfig) -> None:
    """Outputs, letters, heartbeats, transactions, signals and schema changes are left."""
    assert select(connector, [*LEFT, *READ]) == READ


def test_the_page_says_so(connector: ConnectorConfig) -> None:
    """Its settings are the file's, and its table has these topics."""
    _, _, rest = SECTION.partition("```json\n")
    shown = json.loads(rest.partition("```")[0])
    assert shown == {name: connector.given[name] for name in shown}
    assert FILE.name in SECTION
    rows = [line.split(" | ") for line in SECTION.splitlines() if line.startswith("| `")]
    topics = {row[0].strip("| `"): row[2].startswith("yes") for row in rows}
    assert {topic for topic, is_read in topics.items() if is_read} == set(READ)
    left = {topic for topic, is_read in topics.items() if not is_read}
    assert left - {"shop.audit.…"} <= set(LEFT)
