from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest
from rich.console import Console

from connectors.progress.live import Display, widths
from connectors.progress.observer import LiveObserver
from connectors.progress.terminal import is_coloured, is_terminal
from tests.support.cli import environment
from tests.support.clocks import ManualClock
from tests.support.screen import Screen

# What a worker does with its terminal: a display, its own log lines, and children that know nothing of either.
WORKER = """
import subprocess, sys, time
import structlog
from connectors import logging_setup
from connectors.clock import SystemClock
from connectors.progress.observer import observing

logging_setup.configure("info")
with observing(SystemClock()) as observer:
    observer.stage("orders", "starting Spark")
    time.sleep(0.3)
    subprocess.run(["sh", "-c", "echo from a child >&2"], check=True)
    observer.progress("orders", "reading", 5, 10, "records")
    time.sleep(0.3)
    structlog.get_logger().info("taken over")
    subprocess.run(["sh", "-c", "printf 'without an end' >&2"], check=True)
    observer.counts("orders", {"records_read": 10})
    observer.counts("orders", {"records_read": 20})
print("result", file=sys.stderr)
"""


def _in_a_terminal(script: str, columns: int, **more: str) -> tuple[str, int]:
    """What `script` wrote to its terminal, and its exit code."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    settings = {"TERM": "xterm-256color", **more}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(**settings)) as process:
        os.close(theirs)
        written = bytearray()
        while chunk := _read(ours):
            written += chunk
        os.close(ours)
        return written.decode(), process.wait(30)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # Linux' way to say that nobody writes any more
        return b""


def test_everything_else_passes_above_the_display() -> None:
    """Log lines and what children write stand whole, each on lines of its own; the display leaves nothing behind."""
    written, code = _in_a_terminal(WORKER, 80)
    screen = Screen(80)
    screen.feed(written)
    assert code == 0, written
    assert "starting Spark" in written
    assert "5 of 10 records" in written
    child, taken_over, *_, counts, unfinished, result = [line.split("Z ", 1)[-1] for line in screen.lines]
    assert (child, unfinished, result) == ("from a child", "without an end", "result")
    assert taken_over.startswith("[info     ] taken over")
    assert "records_read=20" in counts
    assert screen.cursor_shown


def test_a_terminal_that_cannot_move_its_cursor_gets_lines() -> None:
    """TERM=dumb is an editor's window or a serial line: no sequence of control characters goes there."""
    written, code = _in_a_terminal(WORKER, 80, TERM="dumb")
    assert (code, "\x1b" in written) == (0, False)
    assert "from a child" in written


def test_colours_can_be_switched_off() -> None:
    """NO_COLOR leaves the display without colours, and the log."""
    written, _ = _in_a_terminal(WORKER, 80, NO_COLOR="1")
    assert not [number for number in range(30, 38) if f"\x1b[{number}m" in written]
    assert "5 of 10 records" in written


@pytest.mark.parametrize(
    ("terminal", "environ", "cursor", "colours"),
    [
        (True, {"TERM": "xterm"}, True, True),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        (True, {"TERM": "xterm", "NO_COLOR": ""}, True, True),
        (True, {"TERM": "dumb"}, False, False),
        (True, {}, False, False),
        (False, {"TERM": "xterm"}, False, False),
    ],
)
def test_what_a_stream_can_show(terminal: bool, environ: dict[str, str], cursor: bool, colours: bool) -> None:
    """A file has neither, a dumb terminal has neither, NO_COLOR counts when it is not empty."""
    stream = io.StringIO()
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    assert (is_terminal(stream, environ), is_coloured(stream, environ)) == (cursor, colours)


def _display(columns: int) -> tuple[Display, io.StringIO]:
    out = io.StringIO()
    display = Display(Console(file=out, force_terminal=True, width=columns, height=30, _environ={"TERM": "xterm"}))
    display.live.auto_refresh = False
    return display, out


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
@pytest.mark.parametrize("name", ["c", "a-connector-with-quite-a-long-name-" * 3])
def test_a_line_is_never_wider_than_the_terminal(columns: int, name: str) -> None:
    """The bar goes first, then names are cut; what is done, as far as there is room, and the time stay."""
    display, out = _display(columns)
    LiveObserver(ManualClock(), display).progress(name, "publishing, folding", 336_776, 336_776, "offsets")
    display.console.print(display.get_renderable())
    screen = Screen(columns)
    screen.feed(out.getvalue())
    (line,) = screen.lines
    assert line.endswith("0:00:00")
    assert ("336,776 of 336,776 offsets" in line) == (columns > 40)
    assert ("━" in line) == (name == "c" and columns >= 80)


@pytest.mark.parametrize(
    ("columns", "wanted", "expected"),
    [
        (120, (7, 7, 26), (7, 7, 26, 30)),
        (80, (7, 7, 26), (7, 7, 26, 27)),
        (80, (7, 19, 26), (7, 19, 26, 15)),
        (60, (7, 7, 26), (7, 7, 26, 0)),
        (60, (100, 19, 26), (8, 14, 26, 0)),
        (40, (100, 19, 26), (8, 8, 12, 0)),
        (20, (7, 7, 26), (7, 7, 0, 0)),
        (5, (0, 0, 0), (0, 0, 0, 0)),
    ],
)
def test_what_is_cut_first(columns: int, wanted: tuple[int, int, int], expected: tuple[int, int, int, int]) -> None:
    """Name, stage, amount as wide as wanted while there is room, and the bar in what is left."""
    assert widths(columns, *wanted) == expected


def test_a_terminal_that_became_narrower_is_wiped_clean() -> None:
    """What it has wrapped into two rows are two rows to erase."""
    display, out = _display(110)
    with display:
        LiveObserver(ManualClock(), display).progress("c", "reading", 1, 336_776, "offsets")
        display.refresh()
        before = len(out.getvalue())
        display.console.width = 50
        display.refresh()
        erased = out.getvalue()[before:].count("\x1b[1A\x1b[2K")
    assert erased == 1


def test_the_screen_of_these_tests_would_show_a_torn_line() -> None:
    """A line that is written where the display stands, as a child would write it, is seen in the middle of it."""
    screen = Screen(20)
    screen.feed("\rreading 5 of 10")
    screen.feed("WARNING: x\r\n")
    assert screen.lines == ["reading 5 of 10WARNI", "NG: x"]
