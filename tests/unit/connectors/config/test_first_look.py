"""What a worker file says of Spark and of the log, before it is checked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from connectors.config.first_look import logging_of, spark_of
from connectors.config.worker import WorkerConfig


@pytest.mark.parametrize(
    ("settings", "variables", "taken"),
    [
        ({}, [], ("local[*]", {})),
        ({"storage.location": "/spark.d", "rest.x": 1}, ["KEYFOLD_REST_URL", "SPARK_HOME"], ("local[*]", {})),
        ({"spark.master": "local[2]"}, [], ("local[2]", {})),
        ({"spark.driver.memory": "2g"}, [], ("local[*]", {"spark.driver.memory": "2g"})),
        ({"spark.driver.memory": "${env:HEAP}"}, [], None),
        ({"spark.driver.memory": 2}, [], None),
        ({"spark.driver.memory": " 2g"}, [], None),
        ({"Spark.driver.memory": "2g"}, [], None),
        ({"spark.speculation": "true"}, [], None),
        ({"spark.master": "yarn"}, [], None),
        ({"spark.master": "spark://h:7077"}, [], None),
        ({"executors.package": "ship"}, [], None),
        ({}, ["KEYFOLD_SPARK_MASTER"], None),
        ({"spark.driver.memory": "2g"}, ["KEYFOLD_SPARK_DRIVER_MEMORY"], None),
        ({}, ["KEYFOLD_EXECUTORS_PACKAGE"], None),
    ],
)
def test_what_a_file_sets_of_spark_is_known_if_the_check_changes_none_of_it(
    settings: dict[str, Any], variables: list[str], taken: tuple[str, dict[str, str]] | None
) -> None:
    """Neither a placeholder nor the environment, and no cluster is asked for anything before the check."""
    assert spark_of(msgspec.json.encode(settings).decode(), variables) == taken


def test_a_setting_of_spark_is_noticed_however_it_is_spelled() -> None:
    """JSON may spell a name with escapes."""
    assert spark_of(r'{"\u0073park.master": "local[1]"}', []) == ("local[1]", {})


def test_what_is_known_of_spark_is_what_the_check_gives() -> None:
    """So that the start that was begun is the one that is taken."""
    settings = {"spark.master": "local[2]", "spark.driver.memory": "2g", "spark.local.dir": "tmp"}
    given: dict[str, Any] = {"bootstrap.servers": "h:1", "storage.location": "/s", **settings}
    config = WorkerConfig(**given)
    assert spark_of(msgspec.json.encode(given).decode(), []) == (config.spark_master, config.spark_settings)


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
