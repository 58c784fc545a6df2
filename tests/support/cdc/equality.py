"""Compares a table with what keyfold made of it: the output topic, or a snapshot's files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.cdc.encodings import Encoding, Row
from tests.support.cdc.meaning import UNAVAILABLE, in_sql, of_field, same
from tests.support.cdc.postgres import Postgres
from tests.support.cdc.tables import Table

_COLUMNS: Final = """
SELECT json_build_array(
  a.attname,
  CASE WHEN t.typname = 'timestamp' AND a.atttypmod BETWEEN 0 AND 3 THEN 'timestamp_ms' ELSE t.typname END,
  t.typcategory = 'A')
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = '{0}'::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
Meaning = tuple[str | None, ...]


@dataclass(frozen=True)
class Column:
    """A column as it is at the end; `type_name` is pg_type's (`_text` for an array of texts), or `timestamp_ms`."""

    name: str
    type_name: str
    is_array: bool


@dataclass(frozen=True)
class Expected:
    """What `SELECT *` gives: meanings in the order of the columns, by the values of the table's key columns."""

    table: Table
    columns: tuple[Column, ...]
    rows: Mapping[Meaning, list[Meaning]]

    @property
    def count(self) -> int:
        """How many rows the table has."""
        return sum(map(len, self.rows.values()))


@dataclass
class Difference:
    """How a topic or a snapshot differs from the table; equal if nothing is counted."""

    rows: int = 0
    null_values: int = 0
    ghosts: int = 0
    twice: int = 0
    missing: int = 0
    unavailable: int = 0
    columns: Counter[str] = field(default_factory=Counter)
    example: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return not (self.null_values or self.ghosts or self.twice or self.missing or self.columns)

    def __str__(self) -> str:
        counts = {
            "keys of deleted rows with the value null": self.null_values,
            "rows that are not in the table": self.ghosts,
            "rows twice, by two keys": self.twice,
            "rows missing": self.missing,
            "values unavailable (TOAST)": self.unavailable,
        }
        parts = [f"{number} {what}" for what, number in counts.items() if number]
        parts += [f"{name} differs in {number} rows" for name, number in self.columns.items()]
        return "equal" if self.is_equal else "; ".join(parts) + (f" ({self.example})" if self.example else "")


def expected(server: Postgres, table: Table) -> Expected:
    """Reads the table."""
    columns = tuple(Column(*each) for each in server.rows(_COLUMNS.format(table.quoted.replace("'", "''"))))
    parts = ", ".join(in_sql(_quoted(each.name), each.type_name, is_array=each.is_array) for each in columns)
    rows: dict[Meaning, list[Meaning]] = {}
    for values in server.rows(f"SELECT json_build_array({parts}) FROM {table.quoted}"):
        rows.setdefault(_key(table, columns, values), []).append(tuple(values))
    return Expected(table, columns, rows)


def difference(wanted: Expected, encoding: Encoding, values: Iterable[bytes | Row | None]) -> Difference:
    """Compares the living values, one of each key, with the table; a value is as it was sent, or was read already."""
    result, seen = Difference(), Counter[Meaning]()
    for data in values:
        result.rows += 1
        row = encoding.read(data) if isinstance(data, bytes) else data
        if row is None:
            result.null_values += 1
            continue
        meanings = [_meaning(row, encoding, column) for column in wanted.columns]
        key = _key(wanted.table, wanted.columns, meanings)
        seen[key] += 1
        if key not in wanted.rows:
            result.ghosts += 1
        else:
            result.twice += seen[key] > len(wanted.rows[key])
            _compare(result, wanted, key, meanings)
    result.missing = sum(max(len(rows) - seen[key], 0) for key, rows in wanted.rows.items())
    return result


def _compare(result: Difference, wanted: Expected, key: Meaning, meanings: list[str | None]) -> None:
    for column, theirs, ours in zip(wanted.columns, wanted.rows[key][0], meanings, strict=True):
        if not same(theirs, ours, column.type_name, is_array=column.is_array):
            result.columns[column.name] += 1
            result.unavailable += ours is not None and UNAVAILABLE in ours
            result.example = result.example or f"{column.name}: {str(theirs)[:40]!r} is {str(ours)[:40]!r}"


def _meaning(row: Mapping[str, Any], encoding: Encoding, column: Column) -> str | None:
    """A field that is not there stands for null: the row was written before the column was added."""
    return of_field(row.get(encoding.field(column.name)), column.type_name, is_array=column.is_array)


def _key(table: Table, columns: Iterable[Column], values: Iterable[str | None]) -> Meaning:
    by_name = dict(zip((column.name for column in columns), values, strict=True))
    return tuple(by_name[name] for name in table.key)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
