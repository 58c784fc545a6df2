"""The worker's one SparkSession: pip's PySpark, no JAR added, Arrow between the JVM and Python.

Its JVM takes seconds to start: `SparkStart` does so on a thread, while the process does its part.
"""

from __future__ import annotations

# Takes a lock before each fork and releases it after. PySpark forks the JVM off while the main thread imports, and a
# module that is imported between the two releases what it never took: "RuntimeError: release unlocked lock" on stderr.
import concurrent.futures.thread  # noqa: F401
import os
import re
import secrets
import shlex
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from compactor.errors import KeyfoldError
from connectors.clock import Deadline
from connectors.config.first_look import PINNED
from connectors.errors import SparkGoneError
from connectors.jvm.cache import default_cache
from connectors.jvm.cds_archive import sharing
from connectors.jvm.java import find_java
from connectors.jvm.spark_home import JARS, ensure_home, installed
from connectors.jvm.surroundings import java_properties, java_variables
from connectors.spark import private
from connectors.spark.executor_check import check_executors, not_taken
from connectors.spark.executor_settings import PYTHON, PYTHON_NAME, is_cluster, prepare_executors
from connectors.spark.jvm_start import (
    OPTION_VARIABLES,
    StartingJvm,
    check_folders,
    check_home,
    check_python,
    end_jvm,
    give_up_start,
    launch,
    note_variables,
)
from connectors.spark.settings_file import SettingsFile
from connectors.threads import CancellableThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = structlog.get_logger()

_NAME: Final = "keyfold"
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
EXECUTOR_OPTIONS: Final = "spark.executor.extraJavaOptions"
_DEFAULT_OPTIONS: Final = "spark.driver.defaultJavaOptions"


def logging_option() -> str:
    """Returns the JVM option for Spark's log: a URL, as a plain path would be split at blanks and commas."""
    return f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"


LOGGING: Final = logging_option()
_QUICK: Final = "-XX:TieredStopAtLevel=1"
"""Java's quick compiler alone: records pass Spark's JVM by, which only plans and starts tasks."""
_FOR_SPEED: Final = (
    "-XX:Tier4InvocationThreshold=500000 -XX:Tier4MinInvocationThreshold=60000 "
    "-XX:Tier4CompileThreshold=1500000 -XX:Tier4BackEdgeThreshold=4000000"
)
"""The JVM compiles for speed only what has run a hundred times as often as it would by itself:
docs/decisions/findings.md."""
_METADATA: Final = "-XX:MetaspaceSize=256m"
"""A collection of everything, 0.2 s, would begin in the first micro-batch, as Spark's classes pass 21 MB."""
_FIGURES: Final = "-XX:PerfDataSamplingInterval=1000"
"""How often (ms) the JVM samples what `jstat` shows; by itself it wakes up twenty times a second for that alone."""
_COLLECTOR: Final = "-XX:+UseParallelGC"
"""It works while ours wait, never at the same time; a JVM with two collectors in its options does not start."""
_COLLECTORS: Final = re.compile(r"-XX:\+Use\w+GC\b")
_HASH_SEED: Final = "PYTHONHASHSEED"
"""The variable from which PySpark takes the seed of its Python processes. Without one it is 0, with which anyone can
make names of JSON that all fall into one place of a dict: 20,000 of them, 234 KiB, took 3.4 s."""
_SEEDS: Final = 1 << 32
_OF_PYTHONS: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"}
"""Variables of Spark's Python processes, unless the user has set them.

Arrow's own allocator gives memory back between two batches and has it zeroed again, which took a tenth of a publish
task's processor time. OpenBLAS, which nothing here needs, has a thread spin for 0.03 s in each process."""
_LOOK_S: Final = 0.1
"""Between two looks at a start that is to end: as often as PySpark looks whether its JVM has ended."""

DEFAULTS: Final[dict[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Spark measures a batch's bytes at each row, over all its nested columns: small batches are 5 to 14 times faster.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    # Plans are made with what the catalog knows; to make them again after each stage takes longer than most batches.
    "spark.sql.adaptive.enabled": "false",
    # Above this many files Spark would list them in a job of its own.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    "spark.sql.parquet.compression.codec": "zstd",
    JAVA_OPTIONS: f"{LOGGING} {_QUICK} {_METADATA} {_FIGURES} {_COLLECTOR}",
    "spark.ui.showConsoleProgress": "false",
}

FOR_RECORDS: Final[dict[str, str]] = {
    JAVA_OPTIONS: f"{LOGGING} {_FOR_SPEED} {_METADATA} {_FIGURES} {_COLLECTOR}",
    EXECUTOR_OPTIONS: f"{_FOR_SPEED} {_METADATA}",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}
"""In place of defaults, if Spark's JVM is to work on records itself: both take time at first."""

_ON_CLUSTERS: Final[dict[str, str]] = {EXECUTOR_OPTIONS: f"{_QUICK} {_METADATA}"}
"""Defaults for executors of a cluster: what they do in Java, on one machine the driver's JVM does, with its options."""

_IN_ONE_PROCESS: Final = re.compile(r"local(\[.*\])?")
"""The masters without another process of Spark's than the driver's JVM, which makes the secret for itself."""
_LOCAL: Final[dict[str, str]] = {"spark.authenticate": "true"}
"""Defaults for these. Every account of the machine reaches the ports of the driver on the loopback, and could ask the
block manager for what tasks are sent, passwords of Kafka clients among it. A cluster needs a secret of the user's."""

_BRINGS_PYTHON: Final = "yarn"
"""The master to which Spark uploads the zipped Python of its home, which therefore has to have it."""

_NO_SHARING: Final = ("SharedArchiveFile", "ArchiveClassesAtExit", "-Xshare", "-javaagent", "-Xbootclasspath")
"""Options of the JVM that choose an archive, or with which it would complain of ours."""


def get_session(master: str, overrides: Mapping[str, str], package: str = "auto") -> SparkSession:
    """Returns the running session, or a new one on `master`; `overrides` are the worker file's spark.* keys.

    `package` is `executors.package`. Raises ConfigError if the executors of a cluster do not fit, SparkClusterError
    if it gives none.
    """
    settings = prepare(master, overrides, os.environ, package)
    return _started(master, settings, write_settings(master, settings, os.environ))


def _started(master: str, settings: Mapping[str, str], settings_file: SettingsFile) -> SparkSession:
    try:
        spark = create(master, settings)
    finally:
        settings_file.remove()
    private.adapt(spark, settings)
    if is_cluster(master):
        check_executors(spark)
    return spark


def write_settings(master: str, settings: Mapping[str, str], environment: MutableMapping[str, str]) -> SettingsFile:
    """Writes what `create` needs to start a JVM with `settings` on `master`; the caller removes it after that."""
    return SettingsFile({"spark.master": master, "spark.app.name": _NAME, **settings}, environment)


def create(master: str, settings: Mapping[str, str]) -> SparkSession:
    """Returns the running session, or a new one on `master` with `settings` from `prepare`, after `write_settings`.

    What the JVM and its Python processes put into spark.local.dir, records included, only this account can read.
    Raises SparkClusterError if a cluster does not take it, ConfigError if it refuses a setting.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(_NAME)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        stderr = launch(settings)
        spark = builder.getOrCreate()
        if stderr is not None:
            stderr.start_is_over()
    except KeyfoldError:
        raise
    except Exception as error:
        raise not_taken(master, error) from error
    private.plan_quickly(spark, settings)
    return spark


def prepare(
    master: str, overrides: Mapping[str, str], environment: MutableMapping[str, str], package: str = "auto"
) -> dict[str, str]:
    """Returns a new session's settings; puts what Spark's processes read from there into `environment`.

    The Python of Spark's workers is this process's own if all run on this machine: another one would lack keyfold's
    packages. There Spark listens on 127.0.0.1 only. Executors of a cluster get them as `executors.package` (`package`)
    says. They all hash with one random seed of this process. Spark's processes of this machine start sooner with a home
    and a class archive of keyfold's; what the user has set stays as it is. Raises ConfigError if there is no Java for
    Spark or no Python for its tasks here, or no archive can be made.
    """
    find_java()
    note_variables(environment)
    check_home(environment)
    local = _LOCAL if _IN_ONE_PROCESS.fullmatch(master) else {}
    pinned = {key: value for key, (value, _) in PINNED.items()}
    settings = {**DEFAULTS, **_of_pythons(environment), **local, **overrides, **pinned}
    check_folders(environment, settings)
    if is_cluster(master):
        settings = {**_ON_CLUSTERS, **prepare_executors(package, settings, environment)}
    else:
        check_python(environment)
    names = {environment.get("PYSPARK_PYTHON", sys.executable), settings.get(PYTHON, sys.executable)}
    mine = names <= {sys.executable, *([PYTHON_NAME] if is_cluster(master) else [])}
    environment.update(java_variables(environment))
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    _set_hash_seed(environment)
    elsewhere = [environment.get(name, "") for name in OPTION_VARIABLES]
    if _COLLECTORS.search(" ".join([*elsewhere, settings.get(_DEFAULT_OPTIONS, "")])):
        settings[JAVA_OPTIONS] = settings[JAVA_OPTIONS].replace(f" {_COLLECTOR}", "")
    settings[JAVA_OPTIONS] = " ".join([*map(shlex.quote, _properties(environment)), settings[JAVA_OPTIONS]])
    brings_python = master.startswith(_BRINGS_PYTHON)
    _set_home(environment, without_python=mine and not brings_python)
    if brings_python:
        return settings
    if not is_cluster(master):
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # a host name that does not resolve must not stop it
    environment.setdefault("SPARK_LAUNCHER_OPTS", _launching(environment.get("SPARK_HOME")))
    return {**settings, JAVA_OPTIONS: _sharing(settings[JAVA_OPTIONS], environment.get("SPARK_HOME"))}


def _of_pythons(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings that give Spark's Python processes _OF_PYTHONS, also on a cluster."""
    return {f"spark.executorEnv.{name}": environment.get(name, value) for name, value in _OF_PYTHONS.items()}


def _set_hash_seed(environment: MutableMapping[str, str]) -> None:
    """Sets the seed by which Spark's Python processes, also those of a cluster, hash texts, unless the user has.

    It is one number for all of them: PySpark may deal keys by their hashes. `random`, which Python knows, would be
    another in each process; 0 is PySpark's default, which a script of Spark's may have set.
    """
    if environment.get(_HASH_SEED, "") in {"", "0", "random"}:
        environment[_HASH_SEED] = str(1 + secrets.randbelow(_SEEDS - 1))


def _properties(environment: Mapping[str, str]) -> list[str]:
    """Returns what the JVM is told of its account; a user's own options come after, and win.

    Without a folder for temporary files that has a comma: Spark would take it for a list (spark.local.dir).
    """
    return [option for option in java_properties(environment, default_cache()) if "," not in option]


def _set_home(environment: MutableMapping[str, str], *, without_python: bool) -> None:
    """Sets SPARK_HOME unless the user has: without it Spark's scripts ask a Python, and split its path at blanks."""
    if not environment.get("SPARK_HOME"):
        home = (ensure_home() if without_python and private.is_used("home") else None) or installed()
        environment.update({} if home is None else {"SPARK_HOME": str(home)})


def _launching(home: str | None) -> str:
    """Returns options for the JVM that only puts together the command of Spark's: 0.08 s of its time instead of 0.2.

    Without them it looks for its few classes in all of Spark's JARs.
    """
    launchers = [] if home is None else sorted(Path(home, JARS).glob("spark-launcher_*.jar"))
    # Spark's script splits the options at blanks.
    if len(launchers) != 1 or shlex.quote(str(launchers[0])) != str(launchers[0]):
        return _QUICK
    return f"{_QUICK} -Xbootclasspath/a:{launchers[0]}"


def _sharing(options: str, home: str | None) -> str:
    if home is None or any(word in options for word in _NO_SHARING):
        return options
    return " ".join([options, *map(shlex.quote, sharing(Path(home, JARS)))])


class SparkStart:
    """Starts a session on a thread as soon as this object is made.

    A process that ends meanwhile does not wait for it: the JVM follows its process. And as the thread is not the main
    thread, PySpark leaves the handler of SIGINT alone (`SparkContext._do_init`).
    """

    def __init__(self, master: str, overrides: Mapping[str, str], package: str = "auto") -> None:
        import pyspark.sql  # noqa: F401  # before the caller goes on: next to the caller's imports the JVM would start later

        # Set by the thread once the session has started.
        self._session: SparkSession | None = None
        settings = prepare(master, overrides, os.environ, package)  # here, as other threads may read the environment
        self._settings_file = write_settings(master, settings, os.environ)
        self._thread = CancellableThread("spark-start", lambda _: self._start(master, settings))
        self._thread.start()

    def wait(self, seconds: float) -> SparkSession | None:
        """Returns the session, None if it has not started after `seconds`. Raises what its start raised."""
        self._thread.join(seconds)
        if self._thread.failure is not None:
            raise self._thread.failure
        return self._session

    def leave(self, seconds: float) -> None:
        """Ends the start within `seconds`, and its JVM; removes its settings file, which may hold secrets."""
        self._give_up(seconds)
        self._settings_file.remove()
        if self._session is not None:
            end(self._session, seconds)

    def drop(self, seconds: float) -> None:
        """Ends the start and its JVM, each within `seconds`, so that this process can begin another start."""
        self._give_up(seconds)
        if self._session is not None:
            self._session.stop()  # not the quick way: PySpark has to forget the session
        self.leave(seconds)
        private.forget_jvm()

    def _give_up(self, seconds: float) -> None:
        """Waits at most `seconds` until the thread has ended; it ends soon if the JVM has not answered yet."""
        deadline = Deadline(seconds)
        while self._thread.is_alive() and not deadline.has_passed:
            give_up_start()  # again and again, as it may begin just now
            self._thread.join(_LOOK_S)

    def _start(self, master: str, settings: Mapping[str, str]) -> None:
        self._session = _started(master, settings, self._settings_file)


def cores(spark: SparkSession) -> int:
    """Returns the number of tasks that run at once."""
    return max(1, spark.sparkContext.defaultParallelism)


def gone(spark: SparkSession) -> SparkGoneError | None:
    """Returns the error of a worker if the JVM that it started has ended; None while the JVM runs."""
    how = _end_of(spark)
    if how is None:
        return None
    return SparkGoneError(
        f"Spark's JVM has ended{how}, and with it everything that this worker had under way.",
        "Start the worker again: it goes on from its catalogs. Where the system has killed the JVM for its memory "
        "(see its log), lower spark.driver.memory or give the machine more.",
    )


def close(spark: SparkSession) -> None:
    """Ends Spark before this process ends: its tasks and its Python processes."""
    process = private.jvm_process(spark)
    if isinstance(process, StartingJvm):
        process.words.end_begins()
    private.stop(spark)


def end(spark: SparkSession, seconds: float) -> None:
    """Ends the JVM of a session that is closed, with its folders for temporary files; waits at most `seconds`."""
    process = private.jvm_process(spark)
    if process is not None:
        end_jvm(process, seconds)


def kill(spark: SparkSession) -> None:
    """Kills the JVM that this process started; one that PySpark does not show ends with this process."""
    process = private.jvm_process(spark)
    if process is not None:
        process.kill()


def _end_of(spark: SparkSession) -> str | None:
    """Returns how the JVM has ended, "" if that is not known; None while it runs."""
    process = private.jvm_process(spark)
    if process is None:
        return None if private.answers(spark) else ""
    code = process.poll()
    if code is None:
        return None
    return f" (exit code {code})" if code >= 0 else f" (signal {-code})"
