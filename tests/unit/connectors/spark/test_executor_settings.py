"""How executors of a cluster find keyfold."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from connectors.spark.executor_archive import ExecutorArchive
from connectors.spark.executor_settings import PYTHON_NAME, archive_settings, is_cluster, prepare_executors

MADE = ExecutorArchive(Path("/cache/keyfold.tar.gz"), {}, 1)
SHIPPED = "file:///cache/keyfold.tar.gz#keyfold"
IMAGE = {"spark.kubernetes.container.image": "keyfold:1"}


@pytest.mark.parametrize(
    ("package", "settings", "archives"),
    [
        ("auto", {}, SHIPPED),
        ("auto", IMAGE, None),
        ("auto", {"spark.kubernetes.executor.container.image": "x"}, None),
        ("auto", {"spark.archives": "own.zip"}, "own.zip"),
        ("ship", IMAGE, SHIPPED),
        ("ship", {"spark.archives": "own.zip"}, f"own.zip,{SHIPPED}"),
        ("installed", {}, None),
    ],
)
def test_what_executors_are_sent(package: str, settings: dict[str, str], archives: str | None) -> None:
    """By itself the archive goes where nothing is set that may bring keyfold along; else as the user says."""
    assert prepare_executors(package, settings, {}, lambda: MADE).get("spark.archives") == archives


def test_what_is_sent_is_found_by_the_executors_own_python() -> None:
    """It stands before the user's own path; the Python goes by its name, as this one's path means nothing there."""
    environment = {"PATH": "/bin"}
    found = prepare_executors("auto", {"spark.executorEnv.PYTHONPATH": "mine"}, environment, lambda: MADE)
    assert found["spark.executorEnv.PYTHONPATH"] == f"./keyfold/lib{os.pathsep}mine"
    assert environment["PYSPARK_PYTHON"] == PYTHON_NAME
    assert environment["PATH"].split(os.pathsep) == [str(Path(sys.executable).parent), "/bin"]


def test_an_archive_may_lie_in_any_folder() -> None:
    """Spark splits the list at commas and the alias off at `#`; of a path with a blank it would not see the alias."""
    made = archive_settings(Path("/a cache, #5/k.tar"), {"spark.archives": "own.zip"})
    assert made["spark.archives"] == "own.zip,file:///a%20cache%2C%20%235/k.tar#keyfold"


def test_an_archive_that_the_user_names_is_found_too() -> None:
    """Under the folder that `keyfold package` gives it, wherever the file is."""
    found = prepare_executors("auto", {"spark.archives": "hdfs:///k.tar.gz#keyfold"}, {}, lambda: MADE)
    assert found["spark.archives"] == "hdfs:///k.tar.gz#keyfold"
    assert found["spark.executorEnv.PYTHONPATH"] == "./keyfold/lib"


@pytest.mark.parametrize(
    ("settings", "environment", "expected"),
    [
        ({"spark.pyspark.python": "/opt/python"}, {}, "/opt/python"),
        ({}, {"PYSPARK_PYTHON": "/usr/python"}, "/usr/python"),
        ({"spark.pyspark.python": "/opt/python"}, {"PYSPARK_PYTHON": "/usr/python"}, "/usr/python"),
    ],
)
def test_the_python_that_the_user_names_is_taken(
    settings: dict[str, str], environment: dict[str, str], expected: str
) -> None:
    """In the worker file or in the environment, of which the environment wins."""
    prepare_executors("ship", settings, environment, lambda: MADE)
    assert environment["PYSPARK_PYTHON"] == expected


@pytest.mark.parametrize("package", ["ship", "installed"])
def test_a_python_that_is_named_without_a_folder_is_this_one_here(package: str) -> None:
    """As `keyfold package` names it: Spark's processes on this machine have to find keyfold under it as well."""
    environment = {"PATH": "/bin"}
    prepare_executors(package, {"spark.pyspark.python": PYTHON_NAME}, environment, lambda: MADE)
    assert environment["PATH"].split(os.pathsep) == [str(Path(sys.executable).parent), "/bin"]


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", False),
        ("local[2]", False),
        ("local-cluster[2,1,1024]", False),
        ("spark://h:7077", True),
        ("yarn", True),
    ],
)
def test_which_master_is_a_cluster(master: str, expected: bool) -> None:
    """One whose executors are on other machines, perhaps."""
    assert is_cluster(master) is expected
