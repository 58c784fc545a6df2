"""docs/cdc.md is true as far as it can be seen without a database: `make cdc` runs its settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from connectors.config.files import load_connector, load_worker
from tests.support.cdc.page import (
    CONNECTOR,
    ENCODINGS,
    ROOT,
    connector,
    encoding_settings,
    source_settings,
    stated_results,
)
from tests.support.cdc.tables import TABLES

WORKER: Final = ROOT / "configs" / "worker.json"


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_keyfolds_settings_are_valid(encoding: str, tmp_path: Path) -> None:
    """configs/cdc.json with the settings of each encoding is accepted as `keyfold validate` reads it."""
    file = tmp_path / "cdc.json"
    file.write_text(json.dumps(connector(encoding)), encoding="utf-8")
    assert load_connector(file, load_worker(WORKER)).config.name == "cdc"


def test_the_example_is_json_with_schemas() -> None:
    """configs/cdc.json has what the page says of that encoding."""
    settings = json.loads(CONNECTOR.read_text(encoding="utf-8"))
    assert encoding_settings("json")[1].items() <= settings.items()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_both_connectors_use_the_same_encoding(encoding: str) -> None:
    """Of key and value, both sides name the converter of the same format."""
    source, keyfold = encoding_settings(encoding)
    for side in ("key", "value"):
        format_of = {settings[f"{side}.converter"].rpartition(".")[2] for settings in (source, keyfold)}
        assert len({name.removesuffix("Converter") for name in format_of}) == 1


def test_the_topics_are_those_of_the_source() -> None:
    """Keyfold's pattern begins with Debezium's prefix and schema."""
    source, settings = source_settings(), json.loads(CONNECTOR.read_text(encoding="utf-8"))
    prefix = rf"{source['topic.prefix']}\.{source['schema.include.list']}\."
    assert settings["topics.regex"].startswith(prefix)


def test_every_table_has_a_row() -> None:
    """The page says of each table and encoding whether it is equal; `make cdc` compares."""
    assert set(stated_results()) == {(table.name, encoding) for table in TABLES for encoding in ENCODINGS}
