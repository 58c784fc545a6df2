"""`keyfold top` on a terminal: rows that fit, keys, an outage of the worker; in a real pty."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from connectors.cli.views.top import TopRow, TopSample, TopState, rows
from connectors.cli.views.top_screen import TopSeen, after, fitting_rows, keys_in, moved, notice, screen
from connectors.progress.terminal import columns_of, cut, table
from tests.support.cli import command, environment
from tests.support.echo_server import echo_server
from tests.support.kafka import wait_until

MARKUP = re.compile(r"\x1b\[[01]m")
SEEN = TopSample(5_000, {"orders": TopState("RUNNING")}, {})


def _rows(count: int, failed: int = 0, name: str = "c") -> list[TopRow]:
    states = {
        f"{name}{n:03}": TopState("FAILED", "no disk") if n < failed else TopState("RUNNING") for n in range(count)
    }
    return rows(None, TopSample(0, states, {}))


@pytest.mark.parametrize(("count", "failed"), [(3, 0), (3, 3), (200, 0), (200, 50)])
@pytest.mark.parametrize("name", ["c", "顧客の変更履歴", "e\u0301"])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (120, 60)])
def test_all_fits_the_terminal(count: int, failed: int, name: str, width: int, height: int) -> None:
    """Columns count, not characters: most of East Asia's take two, an accent none. The keys are always there."""
    lines = MARKUP.sub("", screen(_rows(count, failed, name), width, height)).split("\n")
    assert max(map(columns_of, lines)) <= width
    assert len(lines) <= height
    assert lines[-1].startswith("sort: s state")
    assert (f"of {count}" in lines[-2]) == (count > fitting_rows(_rows(count, failed), height))


def test_every_row_can_be_reached() -> None:
    """Page Down goes on by what fits, and stops at the last row."""
    shown, seen, first = _rows(50), set[str](), 0
    for _ in range(10):
        seen |= set(re.findall(r"c\d{3}", screen(shown, 80, 24, first)))
        first = moved(first, "page down", fitting_rows(shown, 24), len(shown))
    assert len(seen) == 50


@pytest.mark.parametrize(
    ("key", "first"),
    [
        ("up", 9),
        ("k", 9),
        ("down", 11),
        ("j", 11),
        ("page up", 5),
        ("page down", 15),
        (" ", 15),
        ("home", 0),
        ("x", 10),
    ],
)
def test_keys_move_the_rows(key: str, first: int) -> None:
    """By one, by what fits, to either end; other keys move nothing."""
    assert moved(10, key, 5, 100) == first
    assert moved(0, "up", 5, 100) == moved(0, "page down", 5, 3) == 0
    assert moved(0, "end", 5, 100) == moved(95, "down", 5, 100) == 95


def test_keys_of_a_terminal_have_names() -> None:
    """Several may come at once, as over a slow line; what has no name is passed over."""
    assert keys_in(b"n\x1b[B\x1bOA\x1b[6~\x1b[5~q") == ["n", "down", "up", "page down", "page up", "q"]
    assert keys_in(b"\x1b[H\x1b[F") == ["home", "end"]
    assert keys_in(b"\x1b[15~") == []


def test_what_is_old_says_so() -> None:
    """While a worker does not answer the last sample stays, with its age; the next answer takes the words away."""
    away = after(after(TopSeen(SEEN), "No worker answers.\nmore", 8_000), "No worker answers.", 9_000)
    assert (away.now, away.failed_at_ms) == (SEEN, 8_000)
    assert notice(away, 17_000) == "STALE for 12 s, asking on: No worker answers."
    again = after(away, TopSample(20_000, {}, {}), 20_000)
    assert (again.before, notice(again, 20_000)) == (SEEN, None)


def test_tables_align_wide_characters() -> None:
    """Each column begins below its header, whatever the script of the cells above."""
    headers, *lines = MARKUP.sub("", table(("NAME", "STATE"), [("顧客", "a"), ("ab", "b"), ("e\u0301", "c")])).split(
        "\n"
    )
    assert headers == "NAME  STATE"
    assert [columns_of(line[:-1]) for line in lines] == [6, 6, 6]
    assert (cut("顧客の変更", 6), cut("abc", 3), cut("abcd", 3), cut("顧客", 0)) == ("顧客…", "abc", "ab…", "")


class _Terminal:
    """A process on a pty of its own."""

    def __init__(self, *arguments: object, columns: int = 80, lines: int = 24, **variables: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        kept = environment(**{"TERM": "xterm", **variables})
        env = {name: value for name, value in kept.items() if name not in ("COLUMNS", "LINES")}
        streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        self.process = subprocess.Popen(command(*arguments), env=env, start_new_session=True, **streams)  # type: ignore[call-overload]
        os.close(theirs)
        self.seen = b""

    def shows(self, text: str) -> bool:
        """Whether `text` has been written since the last `forget`."""
        while select.select([self._ours], [], [], 0.02)[0]:
            try:
                self.seen += os.read(self._ours, 65_536)
            except OSError:  # the process has ended
                break
        return text.encode() in self.seen

    def forget(self) -> None:
        self.seen = b""

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(30)
        os.close(self._ours)


class _Worker:
    """What `top` asks of a worker: with so many connectors, or away."""

    def __init__(self, count: int) -> None:
        self.is_away = False
        status = {"connector": {"state": "RUNNING", "worker_id": "w"}, "tasks": []}
        self._states = {f"c{n:03}": {"status": status} for n in range(count)}

    def answer(self, path: str, _: object) -> tuple[int, bytes]:
        if self.is_away:
            return 503, b'{"message": "It is being mended."}'
        return 200, b"" if path == "/metrics" else json.dumps(self._states).encode()


@contextmanager
def _top(worker: _Worker, **more: Any) -> Iterator[_Terminal]:
    with echo_server(worker.answer) as url:
        terminal = _Terminal("top", "--interval", "0.1", "--url", url, **more)
        try:
            yield terminal
        finally:
            terminal.close()


def test_an_outage_does_not_end_the_view() -> None:
    """It says since when nothing is new, goes on once the worker answers, and q ends it with 0."""
    worker = _Worker(2)
    with _top(worker) as terminal:
        wait_until(lambda: terminal.shows("q quit"), "the rows are there")
        worker.is_away = True
        wait_until(lambda: terminal.shows("STALE for 1 s, asking on: "), "the outage is told")
        worker.is_away = False
        terminal.forget()
        wait_until(lambda: terminal.shows("c001") and not terminal.shows("STALE"), "the view goes on")
        terminal.press(b"nq")
        assert terminal.process.wait(30) == 0


def test_more_connectors_than_rows_are_a_key_away() -> None:
    """80 columns and 24 lines, without colours: the last of a hundred is shown after the key End."""
    with _top(_Worker(100), NO_COLOR="1") as terminal:
        wait_until(lambda: terminal.shows("of 100: arrows"), "it says that there are more")
        assert not terminal.shows("c099")
        terminal.press(b"\x1b[F")
        wait_until(lambda: terminal.shows("c099"), "the last one is shown")
        assert re.search(rb"\x1b\[[0-9;]*3[0-7]", terminal.seen) is None
        os.kill(terminal.process.pid, signal.SIGINT)
        assert terminal.process.wait(30) == 0


def test_a_terminal_that_moves_no_cursor_gets_one_table() -> None:
    """With TERM=dumb nothing is erased: one table is printed, as in a pipe."""
    with _top(_Worker(1), TERM="dumb") as terminal:
        assert terminal.process.wait(30) == 0
        assert terminal.shows("c000")
        assert b"\x1b[" not in terminal.seen
