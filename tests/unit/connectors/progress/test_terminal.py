"""Tables for a person."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from connectors.progress.terminal import cell, table


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (True, "yes"), (False, "no"), (336776, "336,776"), (0.5, "0.50"), ("flights", "flights")],
)
def test_a_cell_reads_as_a_person_writes_it(value: object, text: str) -> None:
    """Numbers have thousands marked, ratios two places, nothing is a dash."""
    assert cell(value) == text


def _plain(text: str) -> list[str]:
    app = typer.Typer()
    app.command()(lambda: typer.echo(text))
    return CliRunner().invoke(app, []).stdout.splitlines()


def test_columns_align_and_numbers_are_on_the_right() -> None:
    """Texts begin in one column, numbers end in one, and no line has blanks at its end."""
    lines = _plain(table(("TOPIC", "RECORDS"), [("a", 1), ("flights", 336776), ("b", None)]))
    assert lines == ["TOPIC    RECORDS", "a              1", "flights  336,776", "b              -"]


def test_a_table_does_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wide table stays one line a row when the terminal is narrow."""
    monkeypatch.setenv("COLUMNS", "20")
    assert len(_plain(table(("A", "B"), [("x" * 100, "y" * 100)]))) == 2


def test_a_table_without_rows_is_its_head() -> None:
    """No rows: only the line of headers."""
    assert _plain(table(("A", "B"), [])) == ["A  B"]
