"""docs/commands.md has every command, and every exit code."""

from __future__ import annotations

import re
from pathlib import Path

from connectors import errors
from connectors.cli.main import COMMANDS

TEXT = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")


def _rows(text: str) -> list[str]:
    """Returns the first cell of each row of the page's tables."""
    return re.findall(r"^\| (.*?) \|", text, re.MULTILINE)


def test_every_command_stands_in_its_table() -> None:
    """What a command is for is read there first."""
    names = set(re.findall(r"`(\w+)`", " ".join(_rows(TEXT))))
    assert {"dlq", "connectors", "snapshot", *(command.__name__ for command in COMMANDS)} <= names


def test_every_exit_code_stands_in_its_table() -> None:
    """Scripts rely on them."""
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert {int(cell) for cell in _rows(TEXT) if cell.isdecimal()} == codes
