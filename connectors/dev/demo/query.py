"""The demo's snapshot as any reader of Parquet sees it: DuckDB over its files, nothing of keyfold in between."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from connectors.dev.demo.data import INSTALL
from connectors.errors import ConfigError

_SQL = """\
SELECT decode(value) ->> 'carrier' AS carrier, count(*) AS aircraft,
       strftime(max(timestamp), '%Y-%m-%d %H:%M') AS last_seen
FROM '{data}'
GROUP BY carrier ORDER BY aircraft DESC, carrier LIMIT 5"""


class Snapshot(Struct, frozen=True):
    """A finished snapshot: its folder, and how many records its manifest promises."""

    path: Path
    records: int
    files: int


class Answer(Struct, frozen=True):
    """A query and what came back."""

    sql: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


def newest_snapshot(location: Path, connector: str, topic: str) -> Snapshot:
    """The snapshot that LATEST names."""
    folder = location / connector / topic
    path = folder / (folder / "LATEST").read_text(encoding="utf-8").strip()
    manifest = msgspec.json.decode((path / "_manifest.json").read_bytes())
    return Snapshot(path, manifest["records"], len(manifest["files"]))


def carriers(snapshot: Path, as_shown: str) -> Answer:
    """The carriers with the most aircraft, and when one of theirs last left; `as_shown` names the folder in the text.

    Raises ConfigError where DuckDB is not installed.
    """
    try:
        import duckdb
    except ImportError:
        raise ConfigError("The demo's duckdb is not installed.", INSTALL) from None
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute(_SQL.format(data=f"{snapshot}/data/*.parquet"))
        columns = [column[0] for column in found.description or ()]
        return Answer(_SQL.format(data=f"{as_shown}/data/*.parquet"), columns, found.fetchall())
