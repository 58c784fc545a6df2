"""The last lines of each connector, as they are in the log."""

from __future__ import annotations

import pytest
import structlog

from connectors import logging_setup
from connectors.progress.log_lines import LINE_MAX, LOG_LINES, MOST_CONNECTORS, MOST_LINES, LogLines
from tests.support.cli import own_logging


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
