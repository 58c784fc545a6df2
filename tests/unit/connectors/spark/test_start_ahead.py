"""Spark starts before the worker's files are checked, if it is known what they set of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, cast

import pytest

from connectors import logging_setup
from connectors.errors import ConfigError
from connectors.spark.start_ahead import StartAhead

if TYPE_CHECKING:
    from connectors.spark.session import SparkStart

DEFAULTS: tuple[str, dict[str, str], str] = ("local[*]", {}, "auto")
PLAIN = '{"bootstrap.servers": "h:1"}'


class Start:
    """Notes with what it was made, and that it was left."""

    made: ClassVar[list[Start]] = []

    def __init__(self, master: str, overrides: Mapping[str, str], package: str) -> None:
        self.given = master, dict(overrides), package
        self.is_left = False
        self.made.append(self)

    def leave(self, seconds: float) -> None:
        """Ends it."""
        assert seconds > 0
        self.is_left = True

    def drop(self, seconds: float) -> None:
        """Ends it so that another can begin."""
        self.leave(seconds)


@pytest.fixture(autouse=True)
def starts(monkeypatch: pytest.MonkeyPatch) -> list[Start]:
    """The starts that were made; the environment says nothing of Spark."""
    for name in [name for name in os.environ if "SPARK" in name or "JAVA" in name]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SPARK_KEYFOLD_LOG", "")  # it is set again by each start
    Start.made.clear()
    return Start.made


def ahead_of(text: str | None, start: Callable[..., object] = Start) -> StartAhead:
    """What begins with `start`."""
    return StartAhead(text, cast("Callable[..., SparkStart]", start))


def test_a_start_with_defaults_is_the_one_that_was_begun() -> None:
    """It has run since before the files were checked, and is not ended with the block."""
    with ahead_of(PLAIN) as ahead:
        (begun,) = Start.made
        taken: object = ahead.take(*DEFAULTS)
    assert taken is begun
    assert Start.made == [begun]
    assert not begun.is_left


def test_a_start_has_the_settings_that_stand_in_the_file() -> None:
    """And is the one that the checked files ask for."""
    with ahead_of('{"spark.master": "local[1]", "spark.driver.memory": "2g"}') as ahead:
        (begun,) = Start.made
        taken: object = ahead.take("local[1]", {"spark.driver.memory": "2g"}, "auto")
    assert begun.given == ("local[1]", {"spark.driver.memory": "2g"}, "auto")
    assert taken is begun
    assert not begun.is_left


@pytest.mark.parametrize("asked", [("local[1]", {}), ("local[*]", {"spark.x": "y"}), ("local[1]", {"spark.x": "z"})])
def test_a_start_with_some_other_setting_than_the_checked_files_is_ended(asked: tuple[str, dict[str, str]]) -> None:
    """Each of them counts."""
    ahead = ahead_of('{"spark.master": "local[1]", "spark.x": "y"}')
    ahead.take(*asked, "auto")
    assert [start.is_left for start in Start.made] == [True, False]


@pytest.mark.parametrize(
    ("text", "variable"),
    [
        (None, ""),
        ('{"spark.master": "local[${env:CORES}]"}', ""),
        ('{"spark.master": "yarn"}', ""),
        ("{", ""),
        ('{"log.level": "${env:LEVEL}"}', ""),
        (PLAIN, "SPARK_CONF_DIR"),
        (PLAIN, "JAVA_TOOL_OPTIONS"),
    ],
)
def test_nothing_is_begun_if_it_is_not_known_what_it_would_be(
    text: str | None, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or if the file is faulty, or a variable is to be logged first."""
    if variable:
        monkeypatch.setenv(variable, "x")
    ahead = ahead_of(text)
    assert Start.made == []
    assert ahead.take(*DEFAULTS).given == DEFAULTS  # type: ignore[attr-defined]


def test_a_start_with_other_settings_than_the_files_give_is_ended() -> None:
    """And one with the settings of the files takes its place."""
    ahead = ahead_of(PLAIN)
    taken: object = ahead.take("local[1]", {"spark.x": "y"}, "auto")
    assert taken is Start.made[1]
    assert [(start.given[0], start.is_left) for start in Start.made] == [("local[*]", True), ("local[1]", False)]


def test_a_start_whose_processes_would_log_in_another_way_is_ended() -> None:
    """They have the variables of the moment at which it was begun."""
    ahead = ahead_of(PLAIN)
    logging_setup.hand_on("debug", "json")
    ahead.take(*DEFAULTS)
    assert [start.is_left for start in Start.made] == [True, False]


def test_a_start_that_nobody_takes_is_ended() -> None:
    """As a file was faulty."""
    with pytest.raises(ConfigError, match="faulty"), ahead_of(PLAIN):
        raise ConfigError("A file is faulty.")
    assert Start.made[0].is_left


def test_what_hinders_a_start_is_said_after_the_files_were_checked() -> None:
    """They may be faulty as well, and that is said first."""

    def refuse(*_: object) -> None:
        raise ConfigError("There is no `java` in PATH.", "Install it.")

    ahead = ahead_of(PLAIN, refuse)
    with pytest.raises(ConfigError, match="no `java`"):
        ahead.take(*DEFAULTS)
