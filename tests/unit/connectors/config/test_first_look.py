"""What a worker file says of Spark and of the log, before it is checked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from connectors.config.first_look import leaves_spark_alone, logging_of
from connectors.config.worker import WorkerConfig


@pytest.mark.parametrize(
    ("text", "variables", "alone"),
    [
        ("", [], True),
        ('{"bootstrap.servers": "h:1", "storage.location": "/spark.d"}', ["KEYFOLD_REST_URL", "SPARK_HOME"], True),
        ('{"spark.master": "local[1]"}', [], False),
        ('{"executors.package": "ship"}', [], False),
        (r'{"\u0073park.master": "local[1]"}', [], False),
        ("{}", ["KEYFOLD_SPARK_MASTER"], False),
        ("{}", ["KEYFOLD_EXECUTORS_PACKAGE"], False),
    ],
)
def test_whatever_may_be_a_setting_of_spark_is_noticed(text: str, variables: list[str], alone: bool) -> None:
    """In the file, however it is spelled there, and in the environment."""
    assert leaves_spark_alone(text, variables) is alone


@pytest.mark.parametrize(
    ("settings", "environment"),
    [
        ({}, {}),
        ({"log.level": "DEBUG", "log.format": "json"}, {}),
        ({"log.level": "debug"}, {"KEYFOLD_LOG_LEVEL": "error", "KEYFOLD_LOG_FORMAT": "console"}),
    ],
)
def test_the_log_is_what_the_checked_file_gives(
    settings: dict[str, str], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that Spark's processes, which start before, log as the worker does."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    given: dict[str, Any] = {"bootstrap.servers": "h:1", "storage.location": "/s", **settings}
    config = WorkerConfig(**given)
    text = msgspec.json.encode(settings).decode()
    assert logging_of(text, environment) == (config.log_level, config.log_format)


@pytest.mark.parametrize("text", ["{", "[]", "1"])
def test_a_file_that_is_no_object_has_no_log(text: str) -> None:
    """The check of the file says what is wrong with it."""
    with pytest.raises(msgspec.DecodeError):
        logging_of(text, {})


@pytest.mark.parametrize("settings", [{"log.level": "${env:LEVEL}"}, {"log.format": "xml"}, {"log.level": 1}])
def test_a_log_that_only_the_check_can_tell_is_not_guessed(settings: dict[str, Any]) -> None:
    """Spark's processes would log in another way than the worker."""
    assert logging_of(msgspec.json.encode(settings).decode(), {}) is None
