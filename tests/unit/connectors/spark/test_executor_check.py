"""Which executors are refused, and in which words."""

from __future__ import annotations

import pytest

from connectors.errors import EXIT_CONFIG, EXIT_UNREACHABLE, exit_code
from connectors.spark.executor_check import differences, fault_of, not_taken, own_versions
from connectors.spark.jvm_start import note_variables

OWN = {"python": "3.11", "pyspark": "4.2.0", "pyarrow": "26.0.1", "keyfold": "0.1.0"}


def test_equal_versions_are_no_difference() -> None:
    """However many executors there are."""
    assert differences([{"host": "a", **OWN}, {"host": "b", **OWN}], OWN) == []


@pytest.mark.parametrize("name", list(OWN))
def test_another_version_is_named_once_for_each_host(name: str) -> None:
    """With what it is there and here."""
    found = [{"host": "a", **OWN, name: "9.9"}, {"host": "a", **OWN, name: "9.9"}, {"host": "b", **OWN}]
    assert differences(found, OWN) == [f"{name} on a is 9.9, here it is {OWN[name]}"]


def test_what_is_compared() -> None:
    """The versions of this process, of whatever tasks hang on."""
    assert own_versions().keys() == OWN.keys()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark",
            "their Python is 3.12, here it is ",
        ),
        ('java.io.IOException: Cannot run program "python3.11": error=2', 'they have no program "python3.11"'),
        ("ModuleNotFoundError: No module named 'pyspark'", "their Python has no module pyspark"),
        ("/usr/bin/python3.11: No module named pyspark", "their Python has no module pyspark"),
        ("Job 0 cancelled because SparkContext was shut down", None),
    ],
)
def test_what_a_failed_check_means(text: str, expected: str | None) -> None:
    """What keeps Python from starting on an executor is said as it is; anything else is not guessed at."""
    found = fault_of(text)
    assert found is None if expected is None else (found or "").startswith(expected)


def test_a_cluster_that_does_not_answer_is_named() -> None:
    """With the first thing that Java says, not with the call that failed or its stack."""
    text = (
        "An error occurred while calling None.org.apache.spark.sql.classic.SparkSession.\n"
        ": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\nThis\n\tat a.b(C.scala)"
    )
    error = not_taken("spark://h:7077", RuntimeError(text))
    assert error.message == "Spark has not started on spark://h:7077: Cannot call methods on a stopped SparkContext."
    assert exit_code(error) == EXIT_UNREACHABLE
    assert not_taken("yarn", RuntimeError("no")).message == "Spark has not started on yarn: no"


def test_a_setting_that_spark_refuses_is_one_of_the_file() -> None:
    """Whatever the cluster is: exit code 3, in Spark's words."""
    text = ": java.lang.IllegalArgumentException: requirement failed: spark.network.timeout.\n\tat a.b(C.scala)"
    error = not_taken("spark://h:7077", RuntimeError(text))
    assert error.message == "Spark has not started on spark://h:7077: requirement failed: spark.network.timeout."
    assert exit_code(error) == EXIT_CONFIG


def test_a_heap_that_is_too_small_is_named_by_its_setting_and_its_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark counts bytes of a heap, which no file has; the size may come from a variable of a shell too."""
    environment: dict[str, str] = {"PYSPARK_SUBMIT_ARGS": "--driver-memory 128m pyspark-shell"}
    note_variables(environment)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    text = ": o.a.spark.SparkIllegalArgumentException: [INVALID_DRIVER_MEMORY] System memory 1 must be at least 2."
    error = not_taken("local[*]", RuntimeError(text))
    assert "spark.driver.memory" in error.action
    assert "PYSPARK_SUBMIT_ARGS" in error.action
    assert exit_code(error) == EXIT_CONFIG
