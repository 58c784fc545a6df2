"""The command of Spark's JVM against the one that Spark's own launcher puts together."""

from __future__ import annotations

import os
import shlex
import subprocess
from importlib.metadata import version
from pathlib import Path

from connectors.jvm.java import find_java
from connectors.spark.java_command import java_command, variables
from connectors.spark.session import prepare, write_settings

NOT_NEEDED = "--add-modules=jdk.incubator.vector"
"""Spark's ML alone knows it; Java says at each start that it is no finished module."""
_ASK = """
. "$SPARK_HOME/bin/load-spark-env.sh"
java -Xmx128m -cp "$SPARK_HOME/jars/*" org.apache.spark.launcher.Main org.apache.spark.deploy.SparkSubmit "$@"
env
"""


def test_the_command_is_the_one_of_sparks_launcher() -> None:
    """And its variables are those of Spark's scripts. If this fails, a new Spark has another command."""
    environment = {name: text for name, text in os.environ.items() if "SPARK" not in name and name != "JAVA_HOME"}
    settings = prepare("local[*]", {"spark.driver.memory": "700m"}, environment)
    file = write_settings("local[*]", settings, environment)
    try:
        arguments = shlex.split(environment["PYSPARK_SUBMIT_ARGS"])
        asked = subprocess.run(
            ["bash", "-c", _ASK, "bash", *arguments],
            env={**environment, "SPARK_CONNECT_MODE": "0"},
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        file.remove()
    *words, said = asked.stdout.strip("\0\n ").split("\0")
    java = Path(find_java())
    command = java_command(["spark-submit", *arguments], settings, environment, java, version("pyspark"))
    assert command is not None
    assert Path(words[0].strip()).resolve() == Path(command[0]).resolve()
    assert [word for word in words[1:] if word != NOT_NEEDED] == command[1:]
    assert all(f"{name}={text}" in said for name, text in variables(environment["SPARK_HOME"]).items())
