"""Shows a live display on a terminal; what else is written to stderr meanwhile passes above it.

Spark's JVM, its Python processes and C libraries write to file descriptor 2 itself, and their lines would tear the
display's. So the descriptor leads into a pipe meanwhile, which is read line by line.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType, RenderResult
from rich.control import Control
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.segment import ControlType, Segment, SegmentLines
from rich.table import Column, Table
from rich.text import Text

_STDERR: Final = 2
# Columns of the bar: a wider one says no more, and a narrower one than the next is left out as it hardly moves.
_WIDEST_BAR: Final = 30
_NARROWEST_BAR: Final = 10
_LEAST: Final = 8
"""The columns that name and stage have at least, if they need them."""
_FIXED: Final = 12
"""Columns of the spinner, the time and the gaps."""
_END: Final = "\0"
# How long (s) the end of the display waits until the last lines in the pipe are printed.
_DRAINED_S: Final = 1.0


class Display(Progress):
    """One line a task, never wider than the terminal is at that moment; tasks have the fields `stage` and `amount`."""

    def __init__(self, console: Console) -> None:
        self._terminal = console  # `self.console` is there only once Rich has asked what to show
        # The terminal's width (columns) when the display was shown last; a smaller one now has wrapped its lines.
        self._width = console.width
        self._shown = _Shown()
        self._spinner = SpinnerColumn()
        # What is printed on stdout is a result, and belongs on the display only if both are the terminal.
        super().__init__(console=console, transient=True, redirect_stdout=sys.stdout.isatty())

    def get_renderable(self) -> RenderableType:
        """Returns what is shown next; Rich calls it before it erases what is shown now."""
        width, self._width = self._width, self._terminal.width
        if self._width < width:
            self._erase_wrapped(self._width)
        self._shown.content = super().get_renderable()
        return self._shown

    def _erase_wrapped(self, width: int) -> None:
        """Erases the rows into which a terminal that became narrower has wrapped our lines: Rich counts the lines."""
        columns, lines = self._shown.shape
        for _ in range(lines * (-(-columns // width) - 1)):
            up = (ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)
            self._terminal.control(Control(*up))

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        """Returns the lines, in columns that fit."""
        shown = list(tasks)
        texts = [(task.description, task.fields["stage"], task.fields["amount"]) for task in shown]
        wanted = (max(map(len, column), default=0) for column in zip(*texts, strict=True)) if texts else (0, 0, 0)
        self.columns = tuple(self._columns(widths(self._terminal.width, *wanted)))
        return super().make_tasks_table(shown)

    def _columns(self, fit: Widths) -> Iterator[ProgressColumn]:
        yield self._spinner
        yield _text("{task.description}", fit.name, "bold")
        yield _text("{task.fields[stage]}", fit.stage)
        if fit.bar:
            yield BarColumn(bar_width=fit.bar)
        yield _text("{task.fields[amount]}", fit.amount)
        yield TimeElapsedColumn(table_column=Column(no_wrap=True))


class _Shown:
    """Renders `content`, and remembers in `shape` how many columns and lines that took."""

    def __init__(self) -> None:
        self.content: RenderableType = ""
        self.shape = (0, 0)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self.content, options, pad=False)
        self.shape = Segment.get_shape(lines[: options.size.height])  # Rich cuts off what is higher than the terminal
        yield SegmentLines(lines, new_lines=True)


class Widths(NamedTuple):
    """How wide each part of a line is, in columns; a bar of 0 is left out."""

    name: int
    stage: int
    amount: int
    bar: int


def widths(columns: int, name: int, stage: int, amount: int) -> Widths:
    """Returns what fits into `columns` next to spinner and time, given the columns that each would need.

    The name is cut first, then the stage, then the amount; the bar gets what is left.
    """
    left = max(0, columns - _FIXED)
    name = min(name, max(_LEAST, left - stage - amount))
    stage = min(stage, max(_LEAST, left - name - amount))
    amount = min(amount, max(0, left - name - stage))
    bar = min(_WIDEST_BAR, left - name - stage - amount - 1)
    return Widths(name, stage, amount, bar if bar >= _NARROWEST_BAR else 0)


def _text(template: str, width: int, style: str = "none") -> TextColumn:
    column = Column(no_wrap=True, overflow="ellipsis", max_width=max(1, width))
    return TextColumn(template, style, markup=False, table_column=column)


@contextmanager
def live_display() -> Iterator[Display]:
    """Shows a display on stderr, which is a terminal, until the block ends."""
    sys.stderr.flush()
    over = threading.Event()
    terminal = os.fdopen(os.dup(_STDERR), "w", encoding="utf-8", errors="replace")
    console = _Console(file=terminal)
    try:
        with Display(console) as display, _redirected_stderr(console, over):
            yield display
    finally:
        over.set()


class _Console(Console):
    """A console that is as wide as its own terminal; Rich asks stdin, stdout and stderr, which may lead elsewhere."""

    @property  # type: ignore[misc]  # Rich's can be set, this one is not
    def size(self) -> ConsoleDimensions:
        """Columns and lines."""
        try:
            columns, lines = os.get_terminal_size(self.file.fileno())
        except OSError:
            return super().size
        return ConsoleDimensions(columns or 80, lines or 25)


@contextmanager
def _redirected_stderr(console: Console, over: threading.Event) -> Iterator[None]:
    """Leads descriptor 2 into a pipe, and prints its lines on `console`, until the block ends.

    A process that has inherited the pipe keeps it.
    """
    real = os.dup(_STDERR)
    source, sink = os.pipe()
    os.dup2(sink, _STDERR)
    drained = threading.Event()
    threading.Thread(target=_print_lines, args=(source, console, drained, over), name="stderr", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(real, _STDERR)
        os.close(real)
        os.write(sink, f"{_END}\n".encode())
        os.close(sink)
        drained.wait(_DRAINED_S)


def _print_lines(source: int, console: Console, drained: threading.Event, over: threading.Event) -> None:
    """Prints lines until the pipe has no writer; Spark's JVM is one until this process ends.

    A terminal that went away does not end this: writers would wait for ever once the pipe is full.
    """
    with os.fdopen(source, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            text, end, _ = line.rstrip("\n").partition(_END)
            if text or not end:
                with suppress(OSError):
                    console.print(Text.from_ansi(text))
            if end:
                drained.set()
    over.wait()
    with suppress(OSError):
        console.file.close()
