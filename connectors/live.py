"""The live display on a terminal, and whatever else is written to stderr while it is shown: that passes above it.

Spark's JVM, its Python processes and C libraries write to file descriptor 2 itself, where their lines would tear the
display's. So the descriptor leads into a pipe meanwhile, which is read line by line.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console, ConsoleDimensions, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

_STDERR: Final = 2
_WIDEST_BAR: Final = 30
_NARROWEST_BAR: Final = 10
_BESIDE_THE_BAR: Final = 66
"""Columns that a usual line takes without its bar."""
_END: Final = "\0"
_DRAINED_S: Final = 1.0
_NOISE: Final = ("WARNING: Using incubator modules",)
"""What every start of Spark's JVM says, and nobody can act on."""


class Display(Progress):
    """One line a task, never wider than the terminal is at that moment; tasks have the fields `stage` and `amount`."""

    def __init__(self, console: Console) -> None:
        self._terminal = console
        self._width = console.width
        self._spinner = SpinnerColumn()
        # What is printed on stdout is a result, and belongs on the display only where both are the terminal.
        super().__init__(console=console, transient=True, redirect_stdout=sys.stdout.isatty())

    def get_renderable(self) -> RenderableType:
        """What is shown next; called before what is shown now is erased."""
        width, self._width = self._width, self._terminal.width
        if self._width < width:
            self._wrapped(self._width)
        return super().get_renderable()

    def _wrapped(self, width: int) -> None:
        """A terminal that became narrower has wrapped the lines that stand there: there are more to erase."""
        shown = self.live._live_render  # Rich keeps no count that a terminal's new width changes
        if shown._shape is not None:
            columns, lines = shown._shape
            shown._shape = columns, lines * -(-columns // width)

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        """The lines, in columns that fit."""
        self.columns = tuple(self._fitting(self._terminal.width))
        return super().make_tasks_table(tasks)

    def _fitting(self, width: int) -> Iterator[ProgressColumn]:
        bar = min(_WIDEST_BAR, width - _BESIDE_THE_BAR)
        yield self._spinner
        yield _text("{task.description}", width // 3, "bold")
        yield _text("{task.fields[stage]}", width // 3)
        if bar >= _NARROWEST_BAR:
            yield BarColumn(bar_width=bar)
        yield _text("{task.fields[amount]}", width // 2)
        yield TimeElapsedColumn(table_column=Column(no_wrap=True))


def _text(template: str, most: int, style: str = "none") -> TextColumn:
    column = Column(no_wrap=True, overflow="ellipsis", max_width=most)
    return TextColumn(template, style, markup=False, table_column=column)


@contextmanager
def live_display() -> Iterator[Display]:
    """A display on stderr, which is a terminal, until the block ends."""
    sys.stderr.flush()
    over = threading.Event()
    terminal = os.fdopen(os.dup(_STDERR), "w", encoding="utf-8", errors="replace")
    console = _Console(file=terminal)
    try:
        with Display(console) as display, _aside(console, over):
            yield display
    finally:
        over.set()


class _Console(Console):
    """A console that is as wide as its own terminal; Rich asks stdin, stdout and stderr, which may lead elsewhere."""

    @property  # type: ignore[misc]  # nobody sets ours
    def size(self) -> ConsoleDimensions:
        """Columns and lines."""
        try:
            columns, lines = os.get_terminal_size(self.file.fileno())
        except OSError:
            return super().size
        return ConsoleDimensions(columns or 80, lines or 25)


@contextmanager
def _aside(console: Console, over: threading.Event) -> Iterator[None]:
    """Descriptor 2 leads into a pipe, whose lines are printed on `console`; what a process has inherited stays so."""
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
    """Prints until nobody can write into the pipe any more; Spark's JVM can until this process ends."""
    with os.fdopen(source, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith(_END):
                drained.set()
            elif not line.startswith(_NOISE):
                console.print(Text.from_ansi(line.rstrip("\n")))
    over.wait()
    console.file.close()
