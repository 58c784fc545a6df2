"""Results on stdout: text, JSON, and one JSON object a line; and what is said besides on stderr.

It is the one place that prints: much of it was written by others, and a terminal must obey none of that.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
import typer

from connectors.progress.terminal import is_terminal
from connectors.terminal_text import printable, printable_json, printable_with_styles


def say(text: str = "") -> None:
    """Writes `text` and a newline to stdout, bold headers only if that is a terminal; control characters as escapes."""
    _end_moving_line()
    typer.echo(printable_with_styles(text), color=is_terminal(sys.stdout))


def note(text: str) -> None:
    """Writes `text` and a newline to stderr, control characters as escapes."""
    _end_moving_line()
    typer.echo(printable(text), err=True)


def say_json(value: Any) -> None:
    """Writes `value` to stdout as indented JSON; msgspec structs as objects."""
    _end_moving_line()
    typer.echo(printable_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()))


def show(value: Any, text: Callable[[], str], *, as_json: bool) -> None:
    """Writes the result of a command: `value` as JSON, or its `text`."""
    if as_json:
        say_json(value)
    else:
        say(text())


class Steps:
    """Says on stderr how much of long work is done, in a line that moves; nothing if stderr is no terminal.

    `text` makes the sentence of it, whenever a further `step` is done. `is_shown`: whether stderr is taken for one.
    """

    def __init__(self, step: int, text: Callable[[int], str], *, is_shown: bool | None = None) -> None:
        self._step = step
        self._text = text
        self._said = 0
        self._is_shown = is_terminal(sys.stderr) if is_shown is None else is_shown

    def __call__(self, done: int) -> None:
        """Takes how much is done so far."""
        if self._is_shown and done // self._step > self._said:
            self._said = done // self._step
            _end_moving_line()
            typer.echo(printable(self._text(done)), err=True, nl=False)
            _moving.append(self)


_moving: Final[list[Steps]] = []
"""Who has written the line that stands on stderr without an end; none, or one."""
_ERASE: Final = "\r\x1b[K"


def _end_moving_line() -> None:
    """Erases the line of `Steps`, before something else is written."""
    if _moving:
        _moving.clear()
        typer.echo(_ERASE, err=True, nl=False, color=True)


class JsonLines:
    """Writes one JSON object a line to stdout; bytes as base64, fields in the order that they have."""

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder()
        self._out = sys.stdout.buffer
        # A program reads bytes faster than they are looked through; a person sees some of them only.
        self._is_terminal = sys.stdout.isatty()

    def write(self, values: Iterable[Any]) -> None:
        """Writes `values`, buffered; `flush` at the end. With PYTHONUNBUFFERED one write may take only a part."""
        _end_moving_line()
        encoded = self._encoder.encode_lines(values)
        left = memoryview(printable_json(encoded.decode()).encode() if self._is_terminal else encoded)
        while left:
            left = left[self._out.write(left) :]

    def flush(self) -> None:
        """Hands everything on to the reader of stdout."""
        self._out.flush()

    @property
    def read_on(self) -> bool:
        """Whether stdout still has a reader: False once that of a pipe has gone, also while nothing is written."""
        try:
            watched = select.poll()
            watched.register(self._out.fileno(), 0)
            return not watched.poll(0)
        except OSError:  # it has no file, as in a test
            return True
