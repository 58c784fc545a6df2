"""Reads the settings of docs/cdc.md: what the page says is what the test runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = ROOT / "docs" / "cdc.md"
CONNECTOR: Final = ROOT / "configs" / "cdc.json"
FIRST_TABLE: Final = "The first table"
APPENDED: Final = "Tables that are only appended to"
RESULTS: Final = "What is equal"
SETTINGS: Final = "What Debezium's settings do to you"
ENCODINGS: Final = {
    "json": "JSON with schemas",
    "plain": "Plain JSON",
    "avro": "Avro",
    "out": "JSON with schemas in, plain JSON out",
}
"""Name of an encoding → its heading."""


def _section(heading: str) -> str:
    text = PAGE.read_text(encoding="utf-8")
    (section,) = re.findall(rf"^##+ {re.escape(heading)}\n(.*?)(?=^##|\Z)", text, re.DOTALL | re.MULTILINE)
    return str(section)


def blocks(heading: str, language: str) -> list[str]:
    """Returns the code blocks in `language` below a heading, up to the next heading."""
    return re.findall(rf"^```{language}\n(.*?)^```", _section(heading), re.DOTALL | re.MULTILINE)


def source_settings() -> dict[str, str]:
    """Returns the settings of Debezium's connector, without those of an encoding."""
    (block,) = blocks(FIRST_TABLE, "json")
    return dict(json.loads(block))


def encoding_settings(name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Returns what Debezium's and keyfold's connectors are told of an encoding; `out` has the topics of `json`."""
    *source, keyfold = blocks(ENCODINGS[name], "json")
    return json.loads(source[0]) if source else encoding_settings("json")[0], json.loads(keyfold)


def appended_rows(place: str) -> list[tuple[Any, ...]]:
    """Runs the program for a table without a key on a topic's snapshots in the folder `place`; returns its rows."""
    (code,) = blocks(APPENDED, "python")
    theirs = "snapshots/visits/db.shop.visits"
    assert theirs in code
    names: dict[str, Any] = {}
    exec(code.replace(theirs, place), names)  # the page's own
    rows: list[tuple[Any, ...]] = names["visits"].fetchall()
    return rows


def connector(name: str) -> dict[str, Any]:
    """Returns configs/cdc.json with the settings of an encoding in place of its own."""
    settings = json.loads(CONNECTOR.read_text(encoding="utf-8"))
    own = encoding_settings("json")[1]
    return {key: value for key, value in settings.items() if key not in own} | encoding_settings(name)[1]


def described_settings() -> dict[str, str | None]:
    """Returns the settings of Debezium in the page's table, with their defaults; None if there is none."""
    rows = re.findall(r"^\| `([\w.]+)` \| (.*?) \|", _section(SETTINGS), re.MULTILINE)
    return {name: default.strip("`") if default.startswith("`") else None for name, default in rows}


def stated_results() -> dict[tuple[str, str], str]:
    """Returns what the page's table says of each table and encoding: `equal`, or why it is not."""
    rows = re.findall(
        r"^\| `([^`]+)` \| [^|]+ \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", _section(RESULTS), re.MULTILINE
    )
    return {(table, name): cell for table, *cells in rows for name, cell in zip(ENCODINGS, cells, strict=True)}
