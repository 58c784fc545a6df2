"""Why Spark's JVM did not start, and what the environment has to do with it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from structlog.testing import capture_logs

from compactor.errors import KeyfoldError
from connectors.errors import ConfigError, SparkGoneError
from connectors.jvm.stderr import quietly
from connectors.spark.jvm_start import (
    StartingJvm,
    check_folders,
    check_home,
    check_python,
    end_jvm,
    give_up_start,
    not_started,
    note_variables,
)
from tests.support.cli import ROOT
from tests.support.kafka import wait_until


@pytest.mark.parametrize(
    ("reason", "error", "action"),
    [
        ("Invalid maximum heap size: -Xmx1x", ConfigError, "spark.driver.memory"),
        (
            "[INVALID_EXECUTOR_MEMORY] Executor memory 1 must be at least 471859200",
            ConfigError,
            "Correct what it names",
        ),
        ("Unrecognized VM option 'Nonsense'", ConfigError, "the spark.* keys of the worker file"),
        ("There is insufficient memory for the Java Runtime Environment to continue", SparkGoneError, "ulimit -v"),
        ("java.io.IOException: No space left on device", SparkGoneError, "TMPDIR"),
        (None, ConfigError, "the spark.* keys of the worker file"),
    ],
)
def test_what_the_jvm_said_is_the_error(reason: str | None, error: type[KeyfoldError], action: str) -> None:
    """With the setting that it comes from; too little memory of the machine is no fault of a file."""
    found = not_started(reason, {})
    assert type(found) is error
    assert (reason or "it said nothing") in found.message
    assert action in found.action


def test_variables_of_the_users_are_logged_once_and_named_when_spark_does_not_start() -> None:
    """A shell may have them from another Spark; those that keyfold sets itself are not among them."""
    environment = {"SPARK_CONF_DIR": "/etc/spark", "JAVA_TOOL_OPTIONS": "-Xss4m", "HOME": "/ann", "SPARK_HOME": ""}
    with capture_logs() as logs:
        note_variables(environment)
        environment["PYSPARK_PYTHON"] = "set by keyfold"
        note_variables(environment)
    assert [entry["names"] for entry in logs] == [["SPARK_CONF_DIR", "JAVA_TOOL_OPTIONS"]]
    assert "of the environment SPARK_CONF_DIR, JAVA_TOOL_OPTIONS" in not_started("no", environment).action


def test_nothing_is_said_of_an_environment_without_them() -> None:
    """Every worker would log it."""
    environment = {"PATH": "/bin"}
    with capture_logs() as logs:
        note_variables(environment)
    assert logs == []
    assert "environment" not in not_started("no", environment).action


def test_a_spark_home_that_is_none_is_said(tmp_path: Path) -> None:
    """With its path, before anything is started."""
    with pytest.raises(ConfigError, match="no bin/spark-submit in it"):
        check_home({"SPARK_HOME": str(tmp_path)})
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/spark-submit").touch()
    check_home({"SPARK_HOME": str(tmp_path)})
    check_home({})


@pytest.mark.parametrize(
    ("variables", "settings", "name"),
    [
        ({"SPARK_LOCAL_DIRS": "file/a, file/b"}, {"spark.local.dir": "."}, "SPARK_LOCAL_DIRS"),
        ({}, {"spark.local.dir": "file/a"}, "spark.local.dir"),
    ],
)
def test_folders_of_sparks_that_cannot_be_written_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], settings: dict[str, str], name: str
) -> None:
    """By the one that counts; Spark's JVM would end, and PySpark say that a connection was refused."""
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(ConfigError, match=f"^{re.escape(name)} is file/a"):
        check_folders(variables, settings)


def test_one_folder_that_can_be_written_is_enough(tmp_path: Path) -> None:
    """Spark makes it, and passes over the others; without any it takes that of TMPDIR."""
    check_folders({"SPARK_LOCAL_DIRS": f"/dev/null/a, {tmp_path}/new/one"}, {})
    check_folders({}, {})
    assert list(tmp_path.iterdir()) == []


_NO_FOLDER = """
import resource
from connectors.spark.jvm_start import check_folders

resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    check_folders({}, {})
except Exception as error:
    print(type(error).__name__, error)
"""


def test_an_account_that_can_write_no_temporary_file_is_told_so() -> None:
    """With a root that is read-only it needs a volume."""
    done = subprocess.run([sys.executable, "-c", _NO_FOLDER], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ConfigError There is no folder for temporary files: No usable temporary directory")
    assert "Set TMPDIR" in done.stdout


def test_a_jvm_that_goes_on_without_its_main_thread_is_given_up() -> None:
    """As on a full disk it cannot write to PySpark how to reach it, and PySpark would wait for that for ever."""
    script = """echo 'Exception in thread "main" java.io.IOException: No space left on device' >&2; exec sleep 600"""
    with quietly() as words:
        process = StartingJvm(["sh", "-c", script], stderr=words.descriptor, words=words)
    with process:
        wait_until(lambda: process.poll() == -1, "the JVM is given up")
        assert process.wait(60) == -15
    assert words.reason() == "java.io.IOException: No space left on device"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "it does not run: No such file or directory"),
        ("exit 1", "it does not run as a Python"),
        ("echo 3.9", "it is Python 3.9, keyfold's is "),
        (f'exec {sys.executable} -I -S "$@"', "it lacks keyfold: ModuleNotFoundError: No module named "),
    ],
)
def test_a_python_for_tasks_that_is_none_is_said(tmp_path: Path, script: str | None, said: str) -> None:
    """Before anything is started, with the variable and its value: a shell may have it from another Spark."""
    python = tmp_path / "python"
    if script is not None:
        python.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        python.chmod(0o755)
    with pytest.raises(ConfigError) as caught:
        check_python({"PYSPARK_PYTHON": str(python)})
    assert f"PYSPARK_PYTHON is {python}" in caught.value.message
    assert said in caught.value.message
    assert sys.executable in caught.value.action


def test_a_python_with_keyfold_serves_tasks(tmp_path: Path) -> None:
    """By whatever path; without the variable nothing is asked."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    check_python({"PYSPARK_PYTHON": str(python)})
    check_python({})


def test_a_jvm_is_waited_for_until_its_folders_are_gone(tmp_path: Path) -> None:
    """It ends once its stdin does, and nothing outlives the first process of a container."""
    folder = tmp_path / "spark-1"
    folder.mkdir()
    with Popen(["sh", "-c", f"cat; sleep 0.3; rmdir '{folder}'"], stdin=PIPE) as process:
        end_jvm(process, 60)
        assert not folder.exists()
        end_jvm(process, 60)  # at the end of this process once more


def test_a_jvm_that_does_not_end_is_not_waited_for() -> None:
    """The process ends without it, as it would have before."""
    with Popen(["sleep", "600"], stdin=PIPE) as process:
        begin = time.monotonic()
        end_jvm(process, 0.1)
        assert time.monotonic() - begin < 60
        process.kill()


def test_only_a_jvm_that_has_not_answered_is_given_up() -> None:
    """PySpark waits for it on a thread, and removes a folder after; a JVM that works is left to its session."""
    with quietly() as words, StartingJvm(["sleep", "600"], words=words) as process:
        process.started = True
        give_up_start()
        assert process.poll() is None
        process.started = False
        give_up_start()
        assert process.wait(60) == -15
