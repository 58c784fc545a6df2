from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from connectors import logging_setup
from connectors.clock import SystemClock
from connectors.progress import observer as progress
from connectors.progress.observer import Interval, LineObserver, LiveObserver, Observer
from tests.support.cli import own_logging
from tests.support.clocks import ManualClock


@pytest.fixture(autouse=True)
def _json_lines() -> Iterator[None]:
    with own_logging():
        logging_setup.configure("info", "json")
        yield


def _lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_throttle_lets_one_of_each_kind_through_in_its_time() -> None:
    """The first at once, the next when the time is over; kinds do not hold each other up."""
    clock = ManualClock()
    throttle = Interval(clock, 5_000)
    assert [throttle.ready("a"), throttle.ready("a"), throttle.ready("b")] == [True, False, True]
    clock.advance(4_999)
    assert not throttle.ready("a")
    clock.advance(1)
    assert throttle.ready("a")


def test_progress_is_a_line_soon_and_then_one_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    """However often a task reports: a long stage does not fill the log, and a short one is seen to get on."""
    clock = ManualClock()
    observer = LineObserver(clock)
    for done in range(2_600):
        observer.progress("c", "reading", done, 5_200, "records")
        clock.advance(100)
    shown = [(line["done"], line["total"], line["percent"], line["unit"]) for line in _lines(capsys)]
    assert shown[:3] == [(0, 5_200, 0, "records"), (50, 5_200, 0, "records"), (150, 5_200, 2, "records")]
    assert [done / 10 for done, *_ in shown] == [0, 5, 15, 35, 75, 135, 195, 255]


def test_a_stage_that_begins_again_has_its_first_line_soon(capsys: pytest.CaptureFixture[str]) -> None:
    """A connector that was started again reads from another place."""
    clock = ManualClock()
    observer = LineObserver(clock)
    for done in (1, 2):
        observer.stage("c", "taking over")
        observer.stage("c", "reading")
        observer.progress("c", "reading", done, None, "records")
    assert [line["done"] for line in _lines(capsys)] == [1, 2]


def test_progress_without_a_total_has_no_percent(capsys: pytest.CaptureFixture[str]) -> None:
    """An endless stream has no share that is done."""
    LineObserver(ManualClock()).progress("c", "reading", 5, None, "records")
    (line,) = _lines(capsys)
    assert {"percent", "total"}.isdisjoint(line)


@pytest.mark.parametrize("live", [False, True])
def test_counts_are_a_line_a_minute(capsys: pytest.CaptureFixture[str], live: bool) -> None:
    """On a terminal as elsewhere, for each connector."""
    clock = ManualClock()
    display = Progress(console=Console(file=io.StringIO()))
    observer: Observer = LiveObserver(clock, display) if live else LineObserver(clock)
    for _ in range(61):
        observer.counts("c", {"records_read": 1})
        clock.advance(1_000)
    observer.counts("other", {"records_read": 1})
    assert [line["connector"] for line in _lines(capsys)] == ["c", "c", "other"]


@pytest.mark.parametrize("live", [False, True])
def test_the_last_counts_are_logged_at_the_end(capsys: pytest.CaptureFixture[str], live: bool) -> None:
    """What was counted since the last line is not lost, and nothing is said twice, or where nothing was counted."""
    display = Progress(console=Console(file=io.StringIO()))
    observer = LiveObserver(ManualClock(), display) if live else LineObserver(ManualClock())
    for records in (0, 1, 2, 3):
        observer.counts("c", {"records_read": records})
        observer.counts("idle", {"records_read": 0})
    observer.counts("same", {"records_read": 5})
    observer.counts("same", {"records_read": 5})
    observer.close()
    assert [(line["connector"], line["records_read"]) for line in _lines(capsys)] == [("c", 1), ("same", 5), ("c", 3)]


def test_counts_that_are_0_are_left_out_of_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Most of two dozen are, and hide the others."""
    LineObserver(ManualClock()).counts("c", {"records_read": 3, "dead_letters": 0})
    (line,) = _lines(capsys)
    assert "dead_letters" not in line


def test_nothing_to_do_is_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    """A connector that has read nothing, and knows of nothing to read, has no line."""
    LineObserver(ManualClock()).progress("c", "reading", 0, None, "records")
    LineObserver(ManualClock()).progress("c", "reading", 0, 0, "offsets")
    assert _lines(capsys) == []


def test_the_live_display_shows_stage_and_amount() -> None:
    """One line a connector, with what it is at and how far."""
    out = io.StringIO()
    columns = TextColumn("{task.description}|{task.fields[stage]}|{task.fields[amount]}")
    display = Progress(columns, console=Console(file=out, width=100))
    observer = LiveObserver(ManualClock(), display)
    observer.stage("c", "reading")
    observer.progress("c", "reading", 1_200, 336_776, "records")
    observer.progress("d", "publishing", 5, None, "records")
    assert [(task.description, task.completed, task.total) for task in display.tasks] == [
        ("c", 1_200, 336_776),
        ("d", 5, None),
    ]
    display.console.print(display.get_renderable())
    assert "c|reading|1,200 of 336,776 records" in out.getvalue()
    assert "d|publishing|5 records" in out.getvalue()


def test_another_stage_begins_with_an_empty_bar() -> None:
    """What was done of the stage before is not shown as done of this one."""
    display = Progress(console=Console(file=io.StringIO()))
    observer = LiveObserver(ManualClock(), display)
    observer.progress("c", "reading", 10, 10, "records")
    observer.stage("c", "folding")
    (task,) = display.tasks
    assert (task.completed, task.total, task.fields["stage"]) == (0, None, "folding")


def test_a_bar_that_has_not_begun_shows_life() -> None:
    """As long as nothing is done there is no share to show, but the amount is there."""
    display = Progress(console=Console(file=io.StringIO()))
    observer = LiveObserver(ManualClock(), display)
    observer.progress("c", "reading", 0, 10, "records")
    (task,) = display.tasks
    assert (task.total, task.fields["amount"]) == (None, "0 of 10 records")
    observer.progress("c", "reading", 5, 10, "records")
    assert (task.total, task.completed) == (10, 5)


def test_without_a_terminal_there_are_lines() -> None:
    """Stderr of a test is no terminal."""
    with progress.observing(SystemClock()) as observer:
        assert isinstance(observer, LineObserver)


def test_reports_from_many_threads_do_not_disturb_each_other() -> None:
    """Tasks report from their own threads."""
    display = Progress(console=Console(file=io.StringIO()))
    observer = LiveObserver(ManualClock(), display)

    def work_of(name: str) -> None:
        for done in range(51):
            observer.progress(name, "reading", done, 50, "records")

    work = [threading.Thread(target=work_of, args=(str(n),)) for n in range(8)]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert sorted(task.description for task in display.tasks) == [str(n) for n in range(8)]
    assert all(task.finished for task in display.tasks)


def test_nothing_is_an_observer_too(capsys: pytest.CaptureFixture[str]) -> None:
    """For tests: it takes everything and shows nothing."""
    observer: Observer = Observer()
    observer.stage("c", "s")
    observer.progress("c", "s", 1, 2, "x")
    observer.counts("c", {})
    assert capsys.readouterr().err == ""


def test_the_systems_clock_waits_for_an_event_or_the_time() -> None:
    """Wait says whether the event came; a time that is over does not wait."""
    clock, event = SystemClock(), threading.Event()
    assert clock.wait_ms(-1, event) is False
    event.set()
    before_ms = clock.monotonic_ms()
    assert clock.wait_ms(60_000, event) is True
    assert clock.monotonic_ms() - before_ms < 30_000
    assert clock.now_ms() > 1_700_000_000_000
