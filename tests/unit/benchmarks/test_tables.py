"""The row of tables, with few rows."""

from __future__ import annotations

from benchmarks.rows.tables import TABLE, table_commits


def test_every_commit_is_measured() -> None:
    """All rows, neighbouring keys and keys at random; each value that has a limit is there."""
    assert table_commits(rows=1_000).keys() > TABLE.limits.keys()
