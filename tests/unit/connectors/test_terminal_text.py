"""No text of others moves, colours or deletes what a terminal shows, or looks like a line of ours."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Final

import pytest

from connectors.progress.terminal import table
from connectors.terminal_text import one_line, printable, printable_json, printable_with_styles
from tests.support.cli import ROOT

HOSTILE: Final = "a\x1b[2J\x9b1mb\r\x7f\u202ec\u2028d\ud800\U000e0041e\nf\tg"
"""Escape sequences of both kinds, a return, a deletion, another direction, ends of lines, and what is no character."""


def test_what_a_terminal_obeys_is_shown_as_python_writes_it() -> None:
    """Lines and tabs stay, or are shown too if the text belongs into one line; letters of all languages stay."""
    shown = r"a\x1b[2J\x9b1mb\r\x7f\u202ec\u2028d\ud800\U000e0041e"
    assert printable(HOSTILE) == shown + "\nf\tg"
    assert one_line(HOSTILE) == shown + r"\nf\tg"
    assert one_line("Zürich 東京 🙂") == printable("Zürich 東京 🙂") == "Zürich 東京 🙂"


def test_json_keeps_its_values() -> None:
    """Its own ends of lines stay; programs read what they did."""
    value = {"key": HOSTILE.replace("\ud800", ""), "more": ["ü", 1]}
    shown = printable_json(json.dumps(value, ensure_ascii=False, indent=2))
    assert json.loads(shown) == value
    assert shown.replace("\n", "").isprintable()
    assert r"\u009b" in shown


def test_a_cell_is_one_line_without_styles() -> None:
    """Headers alone are bold."""
    shown = printable_with_styles(table(("NAME",), [(HOSTILE,), ("\x1b[1mbold",)]))
    header, first, second = shown.splitlines()
    assert (header, first, second) == ("\x1b[1mNAME\x1b[0m", one_line(HOSTILE), r"\x1b[1mbold")


@pytest.mark.parametrize("path", sorted((ROOT / "connectors/cli").rglob("*.py")), ids=lambda path: path.stem)
def test_commands_print_in_one_place(path: Path) -> None:
    """Only constants of our own are printed elsewhere."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    printing = [call for call in calls if ast.unparse(call.func) in ("typer.echo", "print", "sys.stdout.write")]
    others = [ast.unparse(call) for call in printing if not isinstance(call.args[0], ast.Constant)]
    assert path.name == "output.py" or others == []
