"""Starts and ends Spark's JVM, by PySpark, and says why it did not start."""

from __future__ import annotations

import atexit
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any, ClassVar, Final

import structlog

from compactor.errors import KeyfoldError
from connectors.errors import ConfigError, SparkGoneError
from connectors.jvm.cache import can_write
from connectors.jvm.java import which_java
from connectors.jvm.stderr import JvmStderr, quietly
from connectors.jvm.surroundings import nameless_user
from connectors.spark import private
from connectors.spark.java_command import java_command, variables

_log = structlog.get_logger()

OPTION_VARIABLES: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
"""Variables of the environment from which a JVM of Spark's takes options as well."""
USERS_VARIABLES: Final = (
    *("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_DIRS", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR"),
    *("PYSPARK_SUBMIT_ARGS", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"),
    *OPTION_VARIABLES,
)
"""Variables that change what Spark does; a shell may have them from another Spark (docs/operating.md)."""
_NOTED: Final = "SPARK_KEYFOLD_USERS_VARIABLES"
_FOLDERS: Final = ("SPARK_LOCAL_DIRS", "spark.local.dir")
"""What names Spark's folders for temporary files, a variable and a setting; the first one counts."""
_TEMPORARY: Final = "Set TMPDIR to a folder that it can write; in a container with a read-only root, to a volume."
_SUBMIT: Final = Path("bin", "spark-submit")
_PYTHON: Final = "PYSPARK_PYTHON"
_ASK_PYTHON: Final = "import sys; print(*sys.version_info[:2], sep='.', flush=True); import connectors, pyspark"
_PYTHON_S: Final = 60.0
"""How long the user's Python may take to import both: it takes 0.2 s, and some seconds from a slow disk."""
_PRIVATE: Final = 0o077
"""The umask of Spark's processes: Spark itself leaves its folders in /tmp readable for every account."""
_END_S: Final = 5.0
"""How long a process that ends waits for its JVM, which takes 0.3 s on a quiet machine."""
_LOWER: Final = "Or lower spark.driver.memory in the worker file; it is 1g if it is not set."
_OF_SYSTEM: Final = re.compile(
    r"insufficient memory|cannot allocate|not enough space|unable to create native thread", re.IGNORECASE
)
_NO_ROOM: Final = re.compile("no space left|disk quota exceeded", re.IGNORECASE)
_OF_MEMORY: Final = re.compile(r"heap|memory|reserve enough space", re.IGNORECASE)
_OF_EXECUTORS: Final = re.compile("executor", re.IGNORECASE)


def note_variables(environment: MutableMapping[str, str]) -> None:
    """Logs which USERS_VARIABLES are set, before keyfold sets some itself; does nothing if it has noted them before."""
    if _NOTED not in environment:
        names = [name for name in USERS_VARIABLES if environment.get(name)]
        environment[_NOTED] = ",".join(names)
        if names:
            _log.info("Spark takes variables of the environment", names=names)


def check_home(environment: Mapping[str, str]) -> None:
    """Raises ConfigError if SPARK_HOME, which the user has set, is no Spark."""
    home = environment.get("SPARK_HOME")
    if home and not Path(home, _SUBMIT).is_file():
        raise ConfigError(
            f"SPARK_HOME is {home}, and there is no {_SUBMIT} in it.",
            "Unset it, and keyfold takes the Spark that it was installed with; or set it to a Spark of that version.",
        )


def check_folders(environment: Mapping[str, str], settings: Mapping[str, str]) -> None:
    """Raises ConfigError if there is no folder for temporary files, or none of those that the user has named for Spark.

    Spark's JVM ends then, and says so in its log alone.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        raise ConfigError(f"There is no folder for temporary files: {error.strerror}.", _TEMPORARY) from error
    named = {each: environment.get(each) or settings.get(each) for each in _FOLDERS}
    name, folders = next(((each, text) for each, text in named.items() if text), ("", ""))
    if name and not any(can_write(Path(folder.strip())) for folder in folders.split(",")):
        raise ConfigError(
            f"{name} is {folders}, and this account cannot write there.",
            "Name a folder that it can write, or none: Spark then takes that of TMPDIR.",
        )


def check_python(environment: Mapping[str, str]) -> None:
    """Raises ConfigError if Spark's tasks cannot run on PYSPARK_PYTHON, which the user has set.

    It has to run, to be of the version of this process, and to have keyfold and PySpark. Spark itself says so in the
    first micro-batch alone, for each connector, and without the variable's name.
    """
    python = environment.get(_PYTHON)
    if not python or python == sys.executable:
        return
    fault = _fault_of(python, environment)
    if fault is not None:
        raise ConfigError(
            f"{_PYTHON} is {python}, the Python of Spark's tasks, and {fault}.",
            f"Unset it, and tasks run on keyfold's own Python ({sys.executable}); or set it to one that has keyfold.",
        )


def _fault_of(python: str, environment: Mapping[str, str]) -> str | None:
    """Returns what is wrong with `python` for tasks, None if it serves."""
    command = [python, "-c", _ASK_PYTHON]
    try:
        done = subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, check=False, timeout=_PYTHON_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it does not run: {error.strerror if isinstance(error, OSError) else 'it does not end'}"
    own = ".".join(map(str, sys.version_info[:2]))
    version = done.stdout.strip()
    if version != own:
        return f"it is Python {version}, keyfold's is {own}" if version else "it does not run as a Python"
    last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return f"it lacks keyfold: {last}" if done.returncode else None


def launch(settings: Mapping[str, str]) -> JvmStderr | None:
    """Starts a JVM for Spark if this process has none, with the settings of its settings file; returns its stderr.

    What the JVM and its Python processes write, only this account can read. `settings` are those of the file.

    Raises ConfigError if its options or Spark's are not taken, SparkGoneError if the machine has no room for it.
    """
    from pyspark.errors import PySparkRuntimeError

    if private.is_launched():
        return None
    known_for = settings if private.is_used("command") else None
    try:
        with quietly() as stderr:
            gateway = private.launch(partial(_process, settings=known_for, words=stderr), stderr.descriptor)
    except PySparkRuntimeError as error:
        raise not_started(stderr.reason(), os.environ) from error
    if gateway is None:
        _launch_with_session()
        return None
    gateway.proc.started = True
    atexit.register(end_jvm, gateway.proc, _END_S)
    if (name := nameless_user(os.environ)) is not None:
        private.name_user(gateway, name)
    return stderr


def _launch_with_session() -> None:
    """Has PySpark start the JVM with a session: without settings, which would stand on the JVM's command line."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    before = os.umask(_PRIVATE)
    try:
        SparkSession.builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise not_started("what it wrote to stderr says why", os.environ) from error
    finally:
        os.umask(before)


def _process(
    script: Sequence[str],
    *,
    settings: Mapping[str, str] | None,
    words: JvmStderr,
    env: Mapping[str, str],
    **options: Any,
) -> StartingJvm:
    """Starts the JVM by the command with which Spark's `script` ends, or by the script if that is not known."""
    java = which_java()
    if java is not None and settings is not None:
        known = java_command(script, settings, env, java, version("pyspark"))
        if known is not None:
            script, env = known, {**env, **variables(env["SPARK_HOME"])}
    return StartingJvm(script, words=words, env=env, umask=_PRIVATE, **options)


def end_jvm(process: Popen[bytes], seconds: float) -> None:
    """Has the JVM `process` end, and waits at most `seconds` until it has removed its folders for temporary files.

    By itself it ends after this process. In a container nothing outlives the first process, so that each start would
    leave folders.
    """
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    with suppress(TimeoutExpired):
        process.wait(seconds)


def give_up_start() -> None:
    """Ends a JVM that has not answered yet, if this process is starting one: PySpark then stops waiting for it."""
    starting = StartingJvm.newest
    if starting is not None and not starting.started:
        starting.terminate()


class StartingJvm(Popen[bytes]):
    """The process of a JVM for which PySpark waits until it answers, or has ended with another code than 0."""

    newest: ClassVar[StartingJvm | None] = None
    """The one that was started last in this process."""

    started = False
    """Set once it has answered."""

    def __init__(self, *arguments: Any, words: JvmStderr, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.words = words
        self._is_given_up = False
        type(self).newest = self

    def poll(self) -> int | None:
        """Returns its exit code; -1 for one that ends without an answer and without an error, as with `-version`.

        So too for one that says it will not start, and goes on by threads that are left: PySpark would wait for ever.
        """
        code = super().poll()
        if self.started:
            return code
        if code is None and self.words.main_has_failed:
            if not self._is_given_up:
                self._is_given_up = True  # first, as `terminate` asks here too
                self.terminate()
            return -1
        return -1 if code == 0 else code


def not_started(reason: str | None, environment: Mapping[str, str]) -> KeyfoldError:
    """Returns the error for a JVM that has ended before it answered; `reason` is what it said of that."""
    message = f"Spark's JVM has not started: {reason or 'it said nothing'}."
    if reason and _NO_ROOM.search(reason):
        return SparkGoneError(message, f"Make room in {tempfile.gettempdir()}, or set TMPDIR to another folder.")
    if reason and _OF_SYSTEM.search(reason):
        return SparkGoneError(message, f"Give this process more memory (its container's limit, ulimit -v). {_LOWER}")
    return ConfigError(message, correcting(reason or "", environment))


def correcting(reason: str, environment: Mapping[str, str]) -> str:
    """Returns what to correct if Spark refuses a setting for `reason`, with the places that it may stand in."""
    is_heap = _OF_MEMORY.search(reason) and not _OF_EXECUTORS.search(reason)
    what = "spark.driver.memory and the JVM's own options" if is_heap else "what it names"
    given = environment.get(_NOTED, "").replace(",", ", ")
    also = f", and takes of the environment {given}" if given else ""
    return f"Correct {what}. Spark is started with the spark.* keys of the worker file{also}."
