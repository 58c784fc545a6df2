"""Everything of Spark's and PySpark's insides that keyfold uses: a function for each, and the public way without it.

What is used here makes a worker faster or safer, or its messages better; what it writes is the same without. If a
PySpark lacks one of these, or refuses it, that is logged once and the worker goes on in the public way: SWITCHES says
at what cost.
KEYFOLD_SPARK_WITHOUT leaves switches out by their names, or `all`: for tests, and to see if one is to blame for trouble
with another Spark.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from subprocess import Popen
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog

from compactor.spark.errors import briefly
from compactor.spark.job_errors import is_cancelled
from connectors.errors import ConfigError
from connectors.spark.callers import LISTS, is_own

if TYPE_CHECKING:
    import socket

    from py4j.java_gateway import JavaGateway
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_T = TypeVar("_T")
_log = structlog.get_logger()

VARIABLE: Final = "KEYFOLD_SPARK_WITHOUT"
"""The variable of the environment that names the switches to do without, with commas between them."""
ALL: Final = "all"

SWITCHES: Final[dict[str, str]] = {
    "launch": "why a JVM has not started stands on stderr only, with lines there that need no action",
    "command": "Spark's scripts run, and a JVM of theirs, before its own starts",
    "process": "each look whether Spark's JVM still runs is a call to it, and one that does not end is not killed",
    "user": "Spark does not start for a user id without an account",
    "stop": "Spark ends about a second later",
    "accumulators": "PySpark may print a traceback to stderr when its JVM ends",
    "sources": "the first query starts about half a second later",
    "progress": "each micro-batch writes two files more before the next begins",
    "files": "Spark runs processes of the system for each file of its own record of progress",
    "planning": "Spark compiles Java for the answers of tasks: a worker's first minute takes more processor time",
    "callers": "each account of the machine may call functions of the worker, through Spark's port for that",
    "home": "each Python process of Spark's starts more slowly",
}
"""What is worse without each switch; the measures are in docs/decisions/0002-spark.md."""

PLANNING: Final[dict[str, str]] = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""No Java is written and compiled for frames with the answers of tasks as rows. Of the worker's session alone: one
that is made from it (`newSession`), as Spark's fold does, has Spark's defaults, or what the user has set."""

FILES: Final = "spark.sql.streaming.checkpointFileManagerClass"
"""The setting that names the class through which Spark writes its record of progress."""

_FILE_MANAGER: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Spark's other class for that. Its default one runs a process of the system for each file that it looks at."""
_SOURCES: Final = "org.apache.spark.sql.execution.datasources.DataSourceManager$"
_MAP: Final = "scala.collection.immutable.Map$"
_ENABLED: Final = "asyncProgressTrackingEnabled"
_PROGRESS: Final = {
    _ENABLED: "true",
    "asyncProgressTrackingCheckpointIntervalMs": "60000",
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}
"""Spark writes its record of progress once a minute, while the query runs: two files for each micro-batch took 100 ms.
Spark allows that for its Kafka sink only, as another sink might trust that record. This one never reads it."""

LOOK_S: Final = 0.01
"""Between two looks whether the JVM answers: a look costs 20 µs, and every start waits half a pause in the mean."""

_ABSENT: Final = (AttributeError, TypeError, ImportError)
"""What Python raises if PySpark has no such name, or takes no such argument."""

# The switches that this process has tried and missed; they are not tried again before `forget`.
_missing: set[str] = set()
# The switches without which this process has logged that it goes on.
_logged: set[str] = set()


def left_out(environment: Mapping[str, str]) -> frozenset[str]:
    """Returns the switches that VARIABLE leaves out; raises ConfigError for a name that is none."""
    names = {name.strip() for name in environment.get(VARIABLE, "").split(",")} - {""}
    if unknown := names - SWITCHES.keys() - {ALL}:
        raise ConfigError(
            f"{VARIABLE} names {', '.join(sorted(unknown))}, which is no switch of Spark's.",
            f"Name some of {', '.join(SWITCHES)}, or {ALL}; or unset it.",
        )
    return frozenset(SWITCHES) if ALL in names else frozenset(names)


def is_used(switch: str) -> bool:
    """Returns whether `switch` is neither left out nor missing; logs once that it is left out."""
    assert switch in SWITCHES, switch
    if switch in left_out(os.environ):
        _log_once(switch, f"left out by {VARIABLE}")
        return False
    return switch not in _missing


def forget() -> None:
    """Forgets which switches this process has missed: they are tried again, as another Spark may have them."""
    _missing.clear()


def launch(process: Callable[..., Popen[bytes]], stderr: int) -> JavaGateway | None:
    """Has PySpark start Spark's JVM as a `process` that writes to the descriptor `stderr`; returns the way to it.

    Returns None without the switch: PySpark starts the JVM itself once a session is asked for. Raises what PySpark
    raises for a JVM that does not start.
    """

    def start() -> JavaGateway:
        from pyspark import SparkContext, java_gateway

        module = _having(java_gateway, "Popen", "time")
        context = _having(SparkContext, "_gateway", "_ensure_initialized")
        before = module.Popen, module.time
        module.Popen, module.time = process, Pauses
        try:  # without a SparkConf, which would go on the JVM's command line
            gateway: JavaGateway = module.launch_gateway(popen_kwargs={"stderr": stderr})
        finally:
            module.Popen, module.time = before
        context._ensure_initialized(gateway=gateway)
        return gateway

    return _attempt("launch", start, None, _ABSENT)


class Pauses:
    """What PySpark pauses by between two looks whether its JVM answers: shorter than its own 0.1 s."""

    @staticmethod
    def sleep(seconds: float) -> None:
        """Pauses for `seconds`, or LOOK_S if they are more."""
        time.sleep(min(seconds, LOOK_S))


def is_launched() -> bool:
    """Returns whether this process has a JVM of Spark's already."""
    from pyspark import SparkContext

    return getattr(SparkContext, "_gateway", None) is not None


def forget_jvm() -> None:
    """Has PySpark forget the JVM of this process, which has ended: it would use it for the next session as well."""

    def forget_gateway() -> None:
        from pyspark import SparkContext

        context: Any = _having(SparkContext, "_gateway", "_jvm")
        context._gateway = context._jvm = None

    _attempt("launch", forget_gateway, None, _ABSENT)


def jvm_process(spark: SparkSession) -> Popen[bytes] | None:
    """Returns the process of the JVM that this process has started for `spark`.

    None without the switch; `answers` then says whether the JVM runs.
    """
    gateway = getattr(getattr(spark, "sparkContext", None), "_gateway", None) if is_used("process") else None
    return getattr(gateway, "proc", None)


def answers(spark: SparkSession) -> bool:
    """Returns whether Spark's JVM answers a call; the public way in place of `jvm_process`."""
    try:
        spark.sparkContext.applicationId  # noqa: B018  # asks the JVM
    except Exception as error:  # noqa: BLE001  # only what says that the JVM is gone counts
        return not is_cancelled(error)
    return True


def name_user(gateway: JavaGateway, name: str) -> None:
    """Gives a user without an account a name in Hadoop, which fails without one, even with HADOOP_USER_NAME set."""

    def set_user() -> None:
        users: Any = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
        users.setLoginUser(users.createRemoteUser(name))

    _attempt("user", set_user, None)


def stop(spark: SparkSession) -> None:
    """Ends Spark; PySpark's own `stop` waits for threads of its own, which end with this process."""

    def stop_jvm() -> bool:
        spark._jsparkSession.stop()
        return True

    if not _attempt("stop", stop_jvm, otherwise=False, absent=_ABSENT):
        spark.stop()


def adapt(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Changes in a new session what has no public setting; `settings` are those that it was started with."""
    refuse_callers(spark)
    _quiet_accumulators(spark)
    _look_for_no_sources(spark)
    _choose_file_manager(spark, settings)
    if is_used("process") and jvm_process(spark) is None:
        _log_once("process", "PySpark does not show it")


def refuse_callers(spark: SparkSession) -> None:
    """Has the port by which the JVM calls Python refuse the processes of other accounts, before anything is read.

    PySpark opens it on the loopback for the first query, and asks no caller there for a secret: who is let in calls the
    query's function, and answers what it asks the JVM. A secret would not do, as PySpark's JVM has none to show.
    """

    def guard() -> None:
        gateway: Any = spark.sparkContext._gateway
        _having(type(gateway), "_create_callback_server")  # of the instance any name would be one of the JVM's
        if not any(path.is_file() for path in LISTS):
            raise FileNotFoundError(f"{LISTS[0]} is not there, which says to whom a connection belongs")
        create = gateway._create_callback_server

        def create_guarded(parameters: Any) -> Any:
            server = _having(create(parameters), "_create_connection")
            connect = server._create_connection

            def connect_own(connection: socket.socket, stream: Any) -> Any:
                return connect(connection, stream) if is_own(connection) else _Refused(connection, stream)

            server._create_connection = connect_own
            return server

        gateway._create_callback_server = create_guarded

    _attempt("callers", guard, None)


class _Refused:
    """What Py4J starts and closes in place of a connection that was refused; an error would end its server."""

    def __init__(self, connection: socket.socket, stream: Any) -> None:
        self.socket = connection
        self._stream = stream

    def start(self) -> None:
        """Closes it, without an answer."""
        self.close()

    def close(self, *_: object) -> None:
        """Closes it."""
        self._stream.close()
        self.socket.close()


def plan_quickly(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Sets PLANNING in `spark`, except what is in `settings`."""

    def set_all() -> None:
        for key in PLANNING.keys() - settings.keys():
            spark.conf.set(key, PLANNING[key])

    _attempt("planning", set_all, None)


def start_query(writer: DataStreamWriter) -> StreamingQuery:
    """Starts the query of `writer` so that its micro-batches do not wait for Spark's record of progress.

    Without the switch Spark writes it before and after each micro-batch.
    """
    from pyspark.errors import AnalysisException, IllegalArgumentException

    refused = (AnalysisException, IllegalArgumentException)
    query = _attempt("progress", lambda: writer.options(**_PROGRESS).start(), None, refused)
    return writer.option(_ENABLED, "false").start() if query is None else query


def _quiet_accumulators(spark: SparkSession) -> None:
    """Keeps PySpark's server for accumulators, which nothing here uses, from printing a traceback to stderr.

    It does so when the JVM ends its connection: at each end, and if a signal to the process group ends the JVM first.
    """

    def quiet() -> None:
        server: Any = spark.sparkContext._accumulatorServer
        _having(server, "handle_error").handle_error = lambda *_: None

    _attempt("accumulators", quiet, None)


def _look_for_no_sources(spark: SparkSession) -> None:
    """Tells Spark that no other Python sources are installed; it would start a process to look for them.

    This is a variable of Spark's `DataSourceManager`, which its own tests set.
    """

    def tell() -> None:
        java, scala = _jvm(spark).java.lang.Class, _jvm(spark).scala
        manager, maps = (java.forName(name).getField("MODULE$").get(None) for name in (_SOURCES, _MAP))
        getattr(manager, "dataSourceBuilders_$eq")(scala.Option.apply(maps.empty()))

    _attempt("sources", tell, None)


def _choose_file_manager(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Has Spark write its record of progress without processes of the system, unless `settings` say through what."""

    def choose() -> None:
        _jvm(spark).java.lang.Class.forName(_FILE_MANAGER)  # a query would fail on a class that is not there
        spark.conf.set(FILES, _FILE_MANAGER)

    if FILES not in settings:
        _attempt("files", choose, None)


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm


def _having(owner: Any, *names: str) -> Any:
    """Returns `owner`; raises AttributeError if it has not all of `names`."""
    for name in names:
        getattr(owner, name)
    return owner


def _attempt(
    switch: str, use: Callable[[], _T], otherwise: _T, absent: tuple[type[Exception], ...] = (Exception,)
) -> _T:
    """Returns what `use` does; `otherwise` without `switch`, or if `use` raises one of `absent`, which is logged."""
    if not is_used(switch):
        return otherwise
    try:
        return use()
    except absent as error:
        _missing.add(switch)
        _log_once(switch, briefly(error))
        return otherwise


def _log_once(switch: str, why: str) -> None:
    if switch not in _logged:
        _logged.add(switch)
        _log.warning("Spark is used without a private switch", switch=switch, without=SWITCHES[switch], why=why)
