"""Puts together the command of Spark's JVM as Spark's own scripts do, for which they need two shells and a JVM.

It does so for one version of Spark, and only if nothing is set that these scripts look at. Else the scripts run.
`tests/spark/test_java_command.py` compares both.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

VERSION: Final = "4.2.0"
"""The Spark with these options and class path; another one may have others."""
_OWN: Final = re.compile(r"SPARK_(KEYFOLD_.*|HOME|LOCAL_DIRS|LOCAL_IP|LAUNCHER_OPTS|CONNECT_MODE)")
"""Variables of Spark's that keyfold or PySpark set, or that the JVM reads for itself."""
_LOOKED_AT: Final = re.compile(r"SPARK_.*|HADOOP_CONF_DIR|YARN_CONF_DIR")
_REFUSED: Final = re.compile(
    r"spark\.driver\.(defaultJavaOptions|extraClassPath|extraLibraryPath)|spark\.submit\..*|spark\.remote"
)
"""Settings that change the command in ways that are not done here."""
_OPTIONS: Final = "spark.driver.extraJavaOptions"
_MEMORY: Final = "spark.driver.memory"
_CONF: Final = "conf"
_JARS: Final = "jars"
_FIRST_JAR: Final = "slf4j-api-*.jar"
_MAIN: Final = "org.apache.spark.deploy.SparkSubmit"
_ARGUMENTS: Final = re.compile(r"--master local(\[\S*\])? --properties-file \S+ --load-spark-defaults pyspark-shell")
_OPENED: Final = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
_ALWAYS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
"""Spark's `JavaModuleOptions` and what it adds to them, without the module for vectors, which only its ML knows."""


def java_command(
    script: Sequence[str], settings: Mapping[str, str], environment: Mapping[str, str], java: Path, version: str
) -> list[str] | None:
    """Returns the command with which `script`, which is `spark-submit` with its arguments, ends; None if it has to run.

    `settings` are those of the properties file among the arguments, `version` is Spark's. The command runs with
    `environment`, and `variables` over it.
    """
    home = Path(environment.get("SPARK_HOME") or "/nowhere")
    logging = sorted((home / _JARS).glob(_FIRST_JAR))
    options = settings.get(_OPTIONS, "")
    if (
        version != VERSION
        or len(logging) != 1
        or (home / _CONF).exists()
        or any(_LOOKED_AT.fullmatch(name) and not _OWN.fullmatch(name) for name in environment)
        or any(map(_REFUSED.fullmatch, settings))
        or "-Xmx" in options
        or _ARGUMENTS.fullmatch(" ".join(script[1:])) is None
    ):
        return None
    classes = f"{home / _CONF}:{logging[0]}:{home / _JARS}/*"
    memory = f"-Xmx{settings.get(_MEMORY, '1g')}"
    return [str(java), "-cp", classes, memory, *shlex.split(options), *_ALWAYS, _MAIN, *script[1:]]


def variables(home: str) -> dict[str, str]:
    """Returns the variables that the scripts set for the JVM, for the Spark home `home`.

    Not PYTHONHASHSEED: they set it to 0.
    """
    return {"SPARK_CONF_DIR": f"{home}/{_CONF}", "SPARK_ENV_LOADED": "1", "SPARK_SCALA_VERSION": "2.13"}
