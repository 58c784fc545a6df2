"""The command of Spark's JVM against the one that Spark's own scripts run."""

from __future__ import annotations

import os
import shlex
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from connectors.jvm.java import find_java
from connectors.spark.java_command import java_command, variables
from connectors.spark.session import prepare, write_settings

NOT_NEEDED = "--add-modules=jdk.incubator.vector"
"""Spark's ML alone knows it; Java says at each start that it is no finished module."""
OTHER_VARIABLES = {"SPARK_BEELINE_OPTS", "PYTHONHASHSEED", "PWD", "OLDPWD", "SHLVL", "_"}
"""Set by the shell, for another program, or left out on purpose (`variables`)."""
_JAVA = """#!/bin/bash
case "$*" in
  *org.apache.spark.launcher.Main*) exec {java} "$@" ;;
esac
printf '%s\\0' "$0" "$@" >{folder}/words
env -0 >{folder}/variables
"""
"""A `java` that runs Spark's launcher, and of the command which that puts together writes the words and variables."""


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """The path of `_JAVA`, in a JAVA_HOME."""
    path = tmp_path / "bin/java"
    path.parent.mkdir()
    path.write_text(_JAVA.format(java=find_java(), folder=tmp_path), encoding="utf-8")
    path.chmod(0o755)
    return path


def parts(file: Path) -> list[str]:
    """The texts of `file`, each of which ends with a NUL."""
    return file.read_text(encoding="utf-8").split("\0")[:-1]


def test_the_command_is_the_one_that_sparks_scripts_run(java: Path, tmp_path: Path) -> None:
    """With its variables; if this fails, a new Spark has another command."""
    environment = {name: text for name, text in os.environ.items() if "SPARK" not in name}
    settings = prepare("local[*]", {"spark.driver.memory": "700m"}, environment)
    file = write_settings("local[*]", settings, environment)
    script = [f"{environment['SPARK_HOME']}/bin/spark-submit", *shlex.split(environment["PYSPARK_SUBMIT_ARGS"])]
    environment["JAVA_HOME"] = str(tmp_path)
    try:
        subprocess.run(script, env=environment, check=True)
    finally:
        file.remove()
    command = java_command(script, settings, environment, java, version("pyspark"))
    assert [word for word in parts(tmp_path / "words") if word != NOT_NEEDED] == command
    given = dict(variable.split("=", 1) for variable in parts(tmp_path / "variables"))
    added = {name: text for name, text in given.items() if environment.get(name) != text}
    home = environment["SPARK_HOME"]
    assert {name: text for name, text in added.items() if name not in OTHER_VARIABLES} == variables(home)
