"""A table without a key that is only appended to: configs/visits.json, and the program of docs/cdc.md that reads it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.support.cdc.page import ROOT, appended_rows
from tests.support.cdc.postgres import Postgres

NAME: Final = "visits"
_TABLE: Final = "shop.visits"
_CREATED: Final = f"""
CREATE TABLE {_TABLE} (visitor text, page text);
INSERT INTO {_TABLE} SELECT 'visitor ' || n % 10, '/page/' || n FROM generate_series(1, 50) n;
"""
_ROUND: Final = f"INSERT INTO {_TABLE} SELECT 'visitor ' || n % 3, '/' FROM generate_series(1, 40) n;"
"""Rows that are equal to one another, and to those of other rounds."""


class AppendTable:
    """The table, and what keyfold makes of its topic, which another connector's topics begin with `prefix` like."""

    def __init__(self, server: Postgres, folder: Path, prefix: str) -> None:
        self._server = server
        self._folder = folder
        self._topic = f"{prefix}.{_TABLE}"

    def create(self) -> None:
        """Makes the table with its first rows."""
        self._server.run(_CREATED)

    def change(self) -> None:
        """Appends the rows of a round."""
        self._server.run(_ROUND)

    def keyfold(self) -> dict[str, Any]:
        """Returns configs/visits.json for this topic, with snapshots in the folder."""
        settings = json.loads((ROOT / "configs" / "visits.json").read_text(encoding="utf-8"))
        return {**settings, "topics": self._topic, "snapshot.location": str(self._folder / "snapshots")}

    def in_database(self) -> Counter[tuple[str, str]]:
        """Returns how often each row is in the table."""
        lines = self._server.run(f"SELECT json_build_array(visitor, page) FROM {_TABLE}").splitlines()
        return Counter(tuple(json.loads(line)) for line in lines)

    def in_snapshot(self) -> Counter[tuple[str, str]]:
        """Returns how often the page's program finds each row in the newest snapshot."""
        rows = appended_rows(f"{self._folder}/snapshots/{NAME}/{self._topic}")
        return Counter((visitor, page) for _, visitor, page in rows)

    def records(self) -> int:
        """Returns how many records the newest snapshot has."""
        topic = self._folder / "snapshots" / NAME / self._topic
        manifest = topic / (topic / "LATEST").read_text().strip() / "_manifest.json"
        return int(json.loads(manifest.read_text(encoding="utf-8"))["records"])
