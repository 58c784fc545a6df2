"""The last lines of each connector, as they are in the log."""

from __future__ import annotations

import tracemalloc
from string import ascii_lowercase

import pytest
import structlog

from connectors import logging_setup
from connectors.progress.log_lines import LINE_MAX, LOG_LINES, MOST_BYTES, MOST_CONNECTORS, MOST_LINES, LogLines
from tests.support.cli import own_logging
from tests.support.clocks import ManualClock


def test_lines_are_bounded() -> None:
    """In number, in length, and in connectors: who has logged last stays."""
    kept = LogLines()
    for number in range(MOST_LINES + 1):
        kept.keep(None, "", {"connector": "a", "event": f"e{number}", "x": "y" * 10 * LINE_MAX})
    lines = kept.of("a")
    assert (len(lines), lines[0].event, lines[-1].event) == (MOST_LINES, f"e{MOST_LINES}", "e1")
    assert len(lines[0].fields) == LINE_MAX
    for number in range(MOST_CONNECTORS):
        kept.keep(None, "", {"connector": f"c{number}", "event": "e"})
    assert kept.of("a") == ()


def test_what_is_of_no_connector_is_not_kept() -> None:
    """An event is passed on as it is."""
    kept, event = LogLines(), {"event": "e", "connector": 7}
    assert kept.keep(None, "", event) is event
    assert kept.of("7") == ()


@pytest.mark.parametrize("style", ["console", "json"])
def test_secrets_are_masked_before_a_line_is_kept(style: str) -> None:
    """Whatever the style of the log."""
    with own_logging():
        logging_setup.configure("info", style)
        structlog.get_logger("t").warning("it failed", connector="of-log-lines", password="geheim-4711", n=1)
    newest = LOG_LINES.of("of-log-lines")[0]
    assert (newest.level, newest.event) == ("warning", "it failed")
    assert "n=1" in newest.fields
    assert "geheim" not in newest.fields
    assert newest.at


def test_all_lines_together_are_bounded_in_memory() -> None:
    """Of any characters; the connector that has most loses its oldest line, and others lose none."""
    kept = LogLines()
    kept.keep(None, "", {"connector": "quiet", "event": "e"})
    tracemalloc.start()
    for number in range(MOST_LINES):
        for name in ascii_lowercase:
            kept.keep(None, "", {"connector": name, "event": f"{number}", "x": "\U0001f600" * LINE_MAX})
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert MOST_BYTES * 0.9 < taken < MOST_BYTES * 1.1  # the containers are not counted
    assert len(kept.of("quiet")) == 1
    counts = [len(kept.of(name)) for name in ascii_lowercase]
    assert max(counts) - min(counts) <= 1
    assert kept.of("a")[0].event == f"{MOST_LINES - 1}"


def test_many_lines_of_connectors_that_are_forgotten_leave_room() -> None:
    """What a forgotten connector had counts no longer."""
    kept = LogLines()
    for number in range(3 * MOST_CONNECTORS):
        for at in range(3):
            kept.keep(None, "", {"connector": f"c{number}", "event": f"{at}", "x": "\U0001f600" * LINE_MAX})
    assert len(kept.of(f"c{3 * MOST_CONNECTORS - 1}")) == 3
    assert len(kept.of(f"c{2 * MOST_CONNECTORS}")) == 3


def test_lines_from_before_a_connector_are_of_another_one_of_its_name() -> None:
    """One that was deleted; those from the moment on at which it was made are its own."""
    clock = ManualClock(1_000)
    kept = LogLines(clock)
    for event in ("of the deleted one", "it was made", "it runs"):
        kept.keep(None, "", {"connector": "a", "event": event})
        clock.advance(1_000)
    assert [line.event for line in kept.of("a", 2_000)] == ["it runs", "it was made"]
