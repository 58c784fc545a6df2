"""The command of Spark's JVM, put together without Spark's scripts; tests/spark compares it with what they give."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.spark.java_command import VERSION, java_command

ARGUMENTS = ["--master", "local[*]", "--properties-file", "/spark.properties", "--load-spark-defaults", "pyspark-shell"]
JAVA = Path("/opt/java/bin/java")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A Spark home without settings of its own."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars/slf4j-api-2.0.17.jar").touch()
    return tmp_path


def test_memory_and_options_come_from_the_settings(home: Path) -> None:
    """Options are split as a shell does; what spark-submit would be given comes last."""
    settings = {"spark.driver.memory": "3g", "spark.driver.extraJavaOptions": "-Da='b c' -XX:+UseParallelGC"}
    command = java_command(["x", *ARGUMENTS], settings, {"SPARK_HOME": str(home)}, JAVA, VERSION)
    assert command is not None
    assert command[:2] == [str(JAVA), "-cp"]
    assert command[3:6] == ["-Xmx3g", "-Da=b c", "-XX:+UseParallelGC"]
    assert command[-7:] == ["org.apache.spark.deploy.SparkSubmit", *ARGUMENTS]


@pytest.mark.parametrize(
    ("settings", "environment", "arguments", "version"),
    [
        ({}, {}, ARGUMENTS, "4.1.1"),
        ({}, {}, ["--conf", "a=b", *ARGUMENTS], VERSION),
        ({}, {}, ["--master", "yarn", *ARGUMENTS[2:]], VERSION),
        ({}, {"SPARK_SUBMIT_OPTS": "-Dx"}, ARGUMENTS, VERSION),
        ({}, {"HADOOP_CONF_DIR": "/etc/hadoop"}, ARGUMENTS, VERSION),
        ({"spark.driver.defaultJavaOptions": "-Dx"}, {}, ARGUMENTS, VERSION),
        ({"spark.driver.extraClassPath": "/x.jar"}, {}, ARGUMENTS, VERSION),
        ({"spark.driver.extraLibraryPath": "/x"}, {}, ARGUMENTS, VERSION),
        ({"spark.submit.deployMode": "client"}, {}, ARGUMENTS, VERSION),
        ({"spark.remote": "sc://h"}, {}, ARGUMENTS, VERSION),
        ({}, {"YARN_CONF_DIR": "/etc/hadoop"}, ARGUMENTS, VERSION),
        ({"spark.driver.extraJavaOptions": "-Xmx1g"}, {}, ARGUMENTS, VERSION),
    ],
)
def test_what_sparks_scripts_look_at_is_left_to_them(
    home: Path, settings: dict[str, str], environment: dict[str, str], arguments: list[str], version: str
) -> None:
    """Another version, arguments, variables and settings of the user's."""
    assert java_command(["x", *arguments], settings, {"SPARK_HOME": str(home), **environment}, JAVA, version) is None


def test_a_spark_home_with_settings_of_its_own_is_left_to_its_scripts(home: Path) -> None:
    """Then spark-defaults.conf and spark-env.sh keep their effect. So for a home without JARs, or none."""
    (home / "conf").mkdir()
    assert java_command(["x", *ARGUMENTS], {}, {"SPARK_HOME": str(home)}, JAVA, VERSION) is None
    assert java_command(["x", *ARGUMENTS], {}, {"SPARK_HOME": str(home / "conf")}, JAVA, VERSION) is None
    assert java_command(["x", *ARGUMENTS], {}, {}, JAVA, VERSION) is None
