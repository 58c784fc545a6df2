"""Gives the newest snapshot a name in DuckDB, and asks it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Final

from msgspec import Struct

from connectors.dev.demo.data import INSTALL
from connectors.errors import ConfigError

COUNT: Final = "SELECT carrier, count(*) AS aircraft FROM flights GROUP BY carrier"
"""What README.md shows first."""
CARRIERS: Final = """\
SELECT carrier, count(*) AS aircraft,
       strftime(max(_timestamp) AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%MZ') AS last_seen
FROM flights
GROUP BY carrier ORDER BY aircraft DESC, carrier LIMIT 5"""


class QueryAnswer(Struct, frozen=True):
    """What came back from a query: `CARRIERS`."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


def name_table(database: Path, current: Path) -> None:
    """Makes DuckDB's file `database`, in which the newest snapshot has the name `flights`.

    That is a view of the files in `current`, which leads to whatever snapshot is the newest. Raises ConfigError if
    DuckDB is not installed.
    """
    with TemporaryDirectory() as folder:  # DuckDB cannot write in one that has a ? in its name
        made = Path(folder, database.name)
        with _duckdb().connect() as connection:
            # Else only a DuckDB as new as this one opens the file.
            connection.execute(f"ATTACH '{made}' AS demo (STORAGE_VERSION 'v1.0.0')")
            connection.execute(f"CREATE VIEW demo.flights AS FROM '{_files(current)}'")
        shutil.move(made, database)


def carriers(database: Path) -> QueryAnswer:
    """Queries the carriers with the most aircraft, and when one of theirs last left."""
    with _duckdb().connect(database, read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        answer = connection.execute(CARRIERS)
        return QueryAnswer([column[0] for column in answer.description or ()], answer.fetchall())


def _duckdb() -> ModuleType:
    try:
        import duckdb
    except ImportError:
        raise ConfigError("The demo's duckdb is not installed.", INSTALL) from None
    return duckdb


def _files(folder: Path) -> str:
    """Returns the pattern of a snapshot's files for a text of SQL; DuckDB takes what stands in brackets literally."""
    return re.sub(r"[*?[]", r"[\g<0>]", str(folder)).replace("'", "''") + "/*.parquet"
