"""docs/cdc.md is true as far as it can be seen without a database: `make cdc` runs its settings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.config.files import load_connector, load_worker
from connectors.operations.validate import validate
from tests.support.cdc.page import (
    CONNECTOR,
    ENCODINGS,
    FIRST_TABLE,
    PAGE,
    ROOT,
    blocks,
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


@pytest.mark.parametrize("encoding", ["json", "plain"])
def test_the_program_of_the_first_table_reads_both_forms_of_json(encoding: str, tmp_path: Path) -> None:
    """With what the page says of plain JSON in place of its own words."""
    (program,) = blocks(FIRST_TABLE, "python")
    own, place = "decode(value)::JSON -> 'payload' AS row", "snapshots/cdc/db.shop.customers/current"
    (plain,) = re.findall(r"`(decode\(value\).*?)`", PAGE.read_text(encoding="utf-8"))
    assert own in program
    assert place in program
    rows = [{"id": number, "name": f"customer {number}"} for number in (2, 1)]
    values = [json.dumps({"schema": None, "payload": row} if encoding == "json" else row).encode() for row in rows]
    pq.write_table(pa.table({"value": values}), tmp_path / "0.parquet")
    names: dict[str, Any] = {}
    exec(program.replace(place, str(tmp_path)).replace(own, own if encoding == "json" else plain), names)
    assert names["rows"].fetchall() == [(1, "customer 1"), (2, "customer 2")]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_each_encoding_may_have_typed_snapshots(encoding: str, tmp_path: Path) -> None:
    """As the page says of Avro: nothing is said against them, and nothing warns of them."""
    file = tmp_path / "cdc.json"
    typed = {"snapshot.key.format": "typed", "snapshot.value.format": "typed"}
    file.write_text(json.dumps(connector(encoding) | typed), encoding="utf-8")
    (verdict,) = validate([file], WORKER, None, alone=True)
    assert (verdict.errors, verdict.warnings) == ([], [])


def test_every_table_has_a_row() -> None:
    """The page says of each table and encoding whether it is equal; `make cdc` compares."""
    assert set(stated_results()) == {(table.name, encoding) for table in TABLES for encoding in ENCODINGS}
