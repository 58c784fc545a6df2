"""Ends a command: with which exit code, and what a person reads on stderr.

On its own because main.py is the list of commands.

0 done or clean SIGTERM · 1 a connector FAILED · 2 usage · 3 configuration · 4 broker or storage unreachable
5 fenced by a newer owner · 130 interrupted by Ctrl-C
"""

from __future__ import annotations

import os
import sys
import textwrap
import traceback

import structlog
import typer

from compactor.errors import KeyfoldError
from compactor.spark.errors import briefly
from connectors.config.secrets import logged_text
from connectors.errors import EXIT_INTERRUPTED, EXIT_OK, exit_code

log = structlog.get_logger(__name__)


def exit_of(error: Exception) -> typer.Exit:
    """Writes to stderr what happened and what to do; returns the exit that `error` ends a command with."""
    if isinstance(error, BrokenPipeError):
        return _leave_quietly()
    log.debug("command failed", traceback="".join(traceback.format_exception(error)))
    typer.echo(logged_text(message_of(error)), err=True)
    return typer.Exit(exit_code(error))


def interrupted() -> typer.Exit:
    """Returns the exit of a command that Ctrl-C ended."""
    typer.echo("interrupted", err=True)
    return typer.Exit(EXIT_INTERRUPTED)


def message_of(error: Exception) -> str:
    """Returns `error: …` and, on a line of its own, `next: …`; no traceback."""
    if isinstance(error, KeyfoldError):
        parts = (("error", error.message), ("next", error.action))
        return "\n".join(_paragraph(name, text) for name, text in parts if text)
    kind, said = type(error).__name__, briefly(error) if str(error).strip() else "no message"
    advice = (
        "Please report it: keyfold should have said what it means. KEYFOLD_LOG_LEVEL=debug shows where it came from."
    )
    return f"{_paragraph('error', f'{kind}: {said}')}\n{_paragraph('next', advice)}"


def _paragraph(name: str, text: str) -> str:
    """Returns `name: text`; further lines of `text` are indented below the first."""
    first, *rest = text.strip().splitlines()
    return "\n".join([f"{name}: {first}", *(textwrap.indent(line, "  ") for line in rest)])


def _leave_quietly() -> typer.Exit:
    """Returns the exit after the reader of stdout has gone (`keyfold dump … | head`), which is no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return typer.Exit(EXIT_OK)
