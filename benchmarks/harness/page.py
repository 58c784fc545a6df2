"""Puts the table of the results into the page that shows them, between two comments."""

from __future__ import annotations

from pathlib import Path
from typing import Final

BEGIN: Final = "<!-- results: python -m benchmarks --docs -->"
END: Final = "<!-- end of the results -->"


def fill(file: Path, table: str, code: str) -> None:
    """Replaces what stands between the two comments of `file` with the commit that was measured and its table."""
    file.write_text(filled(file.read_text(encoding="utf-8"), table, code), encoding="utf-8")


def filled(text: str, table: str, code: str) -> str:
    """Returns the page with another table in place of its own.

    Raises:
        ValueError: the page has no two comments for a table, in this order.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no place for a table: it needs the lines {BEGIN} and {END}")
    return f"{before}{begin}\n\nMeasured at {code}.\n\n{table}\n\n{end}{after}"
