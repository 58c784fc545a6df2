"""The examples at the end of each command's help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from connectors.cli.docstrings import examples_in
from connectors.cli.groups import TakingGroup
from connectors.cli.main import app


def examples_by_command() -> dict[str, tuple[str, ...]]:
    """The examples of each command and group by the words that call it, such as `dlq list`; none of `keyfold` alone."""
    top: Any = get_command(app)
    return {" ".join(words): examples_in(command.epilog) for words, command in _below(top, ())}


def _below(group: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if not (isinstance(group, TakingGroup) and name == TakingGroup.default):
            yield (*words, name), command
            if hasattr(command, "commands"):
                yield from _below(command, (*words, name))
