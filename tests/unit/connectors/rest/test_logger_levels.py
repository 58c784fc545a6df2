"""What requests may do to the worker's loggers: names are bounded, as Python keeps each prefix of one for ever."""

from __future__ import annotations

import logging
import time

import pytest

from connectors.errors import UsageError
from connectors.rest.logger_levels import LoggerLevels


def test_a_name_of_many_parts_is_refused_before_python_keeps_it() -> None:
    """One of 60,000 characters took 870 MiB."""
    before = len(logging.root.manager.loggerDict)
    with pytest.raises(UsageError, match="120 characters and 10 parts at most; this one has 60001"):
        LoggerLevels().set("b" + ".a" * 30_000, "INFO", 0)
    assert len(logging.root.manager.loggerDict) == before


def test_requests_add_a_bounded_number_of_loggers() -> None:
    """Setting one looks at all that there are; those that are there are set as ever."""
    levels = LoggerLevels(most_added=2)
    for number in range(2):
        levels.set(f"test-added-{number}", "INFO", 0)
    with pytest.raises(UsageError, match="there is no logger test-added-2"):
        levels.set("test-added-2", "INFO", 0)
    assert levels.set("test-added-1", "WARN", 0) == ["test-added-1"]


def test_setting_all_loggers_that_requests_may_add_takes_little() -> None:
    """Each level that is set makes Python forget what it knows of all loggers: once for a request, not for each."""
    levels = LoggerLevels()
    levels.set("test-many", "INFO", 0)
    for number in range(99):
        levels.set(f"test-many.{number}{'.a' * 8}", "INFO", 0)
    with pytest.raises(UsageError, match="100 loggers were added"):
        levels.set("test-more", "INFO", 0)
    began = time.thread_time()
    assert len(levels.set("test-many", "WARN", 0)) == 100
    assert time.thread_time() - began < 0.05
    assert not logging.getLogger(f"test-many.0{'.a' * 8}").isEnabledFor(logging.INFO)
