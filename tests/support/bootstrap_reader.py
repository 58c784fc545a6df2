"""A reader that keeps a bootstrapped table in SQLite, with its position in the same transaction: it may be killed.

python -m tests.support.bootstrap_reader DATABASE LOCATION BOOTSTRAP
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from connectors.bootstrap import Change, ReaderPosition, open_table, resume

_TABLES = """
CREATE TABLE IF NOT EXISTS living (partition INTEGER, key BLOB, value BLOB, PRIMARY KEY (partition, key));
CREATE TABLE IF NOT EXISTS seen (partition INTEGER, at INTEGER, PRIMARY KEY (partition, at));
CREATE TABLE IF NOT EXISTS positions (name TEXT PRIMARY KEY, position TEXT);
"""


class Stored:
    """What the reader has stored so far. A change that comes twice breaks a primary key, and ends the reader."""

    def __init__(self, file: Path) -> None:
        self.file = file
        with closing(self.connect()) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.executescript(_TABLES)

    def connect(self) -> sqlite3.Connection:
        """Opens the database."""
        return sqlite3.connect(self.file, timeout=60, isolation_level=None)

    def table(self) -> dict[tuple[int, bytes], bytes]:
        """Returns the records by partition and key."""
        return {(partition, key): value for partition, key, value in self._rows("SELECT * FROM living")}

    def seen(self) -> list[tuple[int, int]]:
        """Lists partition and offset of each change."""
        return self._rows("SELECT partition, at FROM seen ORDER BY 1, 2")

    def position(self, name: str = "now") -> ReaderPosition | None:
        """Returns a stored position: `now`, or the one that it has `begun` with."""
        rows = self._rows("SELECT position FROM positions WHERE name = ?", name)
        return ReaderPosition.decode(rows[0][0]) if rows else None

    def begin(self, rows: Iterable[tuple[Any, ...]], position: ReaderPosition) -> None:
        """Stores the records of a snapshot, and the position at its end."""
        places = [(name, position.encode()) for name in ("begun", "now")]
        with closing(self.connect()) as connection:
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO living VALUES (?, ?, ?)", rows)
            connection.executemany("INSERT INTO positions VALUES (?, ?)", places)
            connection.execute("COMMIT")

    def apply(self, changes: Iterable[Change], position: ReaderPosition) -> None:
        """Stores changes, and the position after them."""
        with closing(self.connect()) as connection:
            connection.execute("BEGIN")
            for change in changes:
                place = (change.partition, change.key)
                connection.execute("INSERT INTO seen VALUES (?, ?)", (change.partition, change.offset))
                connection.execute("DELETE FROM living WHERE partition = ? AND key = ?", place)
                if change.value is not None:
                    connection.execute("INSERT INTO living VALUES (?, ?, ?)", (*place, change.value))
            connection.execute("UPDATE positions SET position = ? WHERE name = 'now'", (position.encode(),))
            connection.execute("COMMIT")

    def _rows(self, query: str, *values: str) -> list[Any]:
        with closing(self.connect()) as connection:
            return connection.execute(query, values).fetchall()


def main(file: str, location: str, bootstrap: str) -> None:
    """Reads for ever: begins with the newest snapshot, or goes on from what is stored."""
    kafka, stored = {"bootstrap.servers": bootstrap}, Stored(Path(file))
    position = stored.position()
    if position is None:
        opened = open_table(location, kafka)
        rows = [(record.partition, record.key, record.value) for record in opened.records()]
        stored.begin(rows, opened.position)
        changes = opened.changes()
    else:
        changes = resume(position, kafka)
    while True:
        polled = changes.poll()
        if polled:
            stored.apply(polled, changes.position)


if __name__ == "__main__":
    main(*sys.argv[1:])
