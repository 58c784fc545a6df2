"""Words the command that opens a snapshot in DuckDB, for people to copy."""

from __future__ import annotations

import re
import shlex
from typing import Final

_SPECIAL: Final = re.compile(r'["$`\\!]')
"""What means something to a shell within double quotes."""


def opening(path: str) -> str:
    """Returns the command by which DuckDB shows the snapshot in the folder `path`, with partitions or without."""
    files = f"{path}/data/**/*.parquet".replace("'", "''")
    sql = f"SELECT * FROM '{files}' LIMIT 10"  # noqa: S608  # printed for a person, not run here
    return f"duckdb -c {shlex.quote(sql)}" if _SPECIAL.search(sql) else f'duckdb -c "{sql}"'
