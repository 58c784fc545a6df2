"""Results on stdout: tables that align whatever the terminal's width, JSON, and one JSON object a line."""

from __future__ import annotations

import select
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import typer

from connectors.progress.terminal import is_terminal

_GAP: Final = "  "
NOTHING: Final = "-"


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Lines of aligned columns under `headers`; a column of numbers is right-aligned, None reads `-`."""
    body = list(rows)
    numeric = [all(isinstance(row[at], int | float | None) for row in body) for at in range(len(headers))]
    texts = [list(headers), *([cell(value) for value in row] for row in body)]
    widths = [max(len(row[at]) for row in texts) for at in range(len(headers))]
    lines = [_line(row, widths, numeric) for row in texts]
    return "\n".join([typer.style(lines[0], bold=True), *lines[1:]])


def _line(row: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    columns = zip(row, widths, numeric, strict=True)
    return _GAP.join(text.rjust(width) if right else text.ljust(width) for text, width, right in columns).rstrip()


def cell(value: object) -> str:
    """A value as a person reads it: 336,776; 0.50; - for None."""
    match value:
        case None:
            return NOTHING
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.2f}"
        case _:
            return str(value)


def say(text: str = "") -> None:
    """`text` and a newline on stdout; bold headers only where stdout is a terminal that has them."""
    typer.echo(text, color=is_terminal(sys.stdout))


def say_json(value: Any) -> None:
    """`value` as indented JSON on stdout; msgspec structs as objects."""
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))


class JsonLines:
    """One JSON object a line on stdout; bytes appear as base64, fields in the order of their struct."""

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder()
        self._out = sys.stdout.buffer

    def write(self, values: Iterable[msgspec.Struct]) -> None:
        """Writes `values`, buffered; `flush` at the end. With PYTHONUNBUFFERED one write may take only a part."""
        left = memoryview(self._encoder.encode_lines(values))
        while left:
            left = left[self._out.write(left) :]

    def flush(self) -> None:
        """Hands everything on to whoever reads stdout."""
        self._out.flush()

    @property
    def read_on(self) -> bool:
        """False once the reader of a pipe has gone, which who has nothing to write would not learn otherwise."""
        try:
            watched = select.poll()
            watched.register(self._out.fileno(), 0)
            return not watched.poll(0)
        except OSError:  # no file behind it, as in a test
            return True
