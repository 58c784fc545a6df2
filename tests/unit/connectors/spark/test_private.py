"""What is done if a PySpark lacks what keyfold uses of its insides, or a test leaves it out; without Spark."""

from __future__ import annotations

import re
import threading
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import IllegalArgumentException
from structlog.testing import capture_logs

from connectors.errors import ConfigError
from connectors.spark import private, session
from tests.support.cli import ROOT

REFUSED = IllegalArgumentException("Sink ForeachBatchSink does not support async progress tracking")


@pytest.fixture(autouse=True)
def nothing_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process: no switch was missed, nor logged."""
    monkeypatch.setattr(private, "_missing", set())
    monkeypatch.setattr(private, "_logged", set())


class Bare:
    """A session of a PySpark that has its public names only."""

    def __init__(self, trouble: Exception | None = None) -> None:
        self.stopped = 0
        self._trouble = trouble
        self.sparkContext = self

    @property
    def applicationId(self) -> str:  # noqa: N802  # Spark's name
        """Asks the JVM."""
        if self._trouble is not None:
            raise self._trouble
        return "local-1"

    def stop(self) -> None:
        """Counts."""
        self.stopped += 1


class Writer:
    """A DataStreamWriter that refuses some options."""

    def __init__(self, trouble: Exception | None = None) -> None:
        self.given: dict[str, str] = {}
        self._trouble = trouble

    def options(self, **named: str) -> Writer:
        """Takes them all."""
        self.given |= named
        return self

    def option(self, name: str, text: str) -> Writer:
        """Takes one more."""
        return self.options(**{name: text})

    def start(self) -> str:
        """Starts a query unless progress is to be written beside the micro-batches."""
        if self.given.get("asyncProgressTrackingEnabled") == "true" and self._trouble is not None:
            raise self._trouble
        return "query"


@pytest.mark.parametrize(
    ("text", "names"),
    [("", set()), ("stop", {"stop"}), (" stop, files,", {"stop", "files"}), ("all", set(private.SWITCHES))],
)
def test_the_variable_names_what_is_left_out(text: str, names: set[str]) -> None:
    """Names with commas between them, or all."""
    assert private.left_out({private.VARIABLE: text}) == names


def test_a_name_that_is_no_switch_is_refused() -> None:
    """The error shows those that there are."""
    with pytest.raises(ConfigError, match="names nonsense, which is no switch") as raised:
        private.left_out({private.VARIABLE: "stop,nonsense"})
    assert all(name in raised.value.action for name in private.SWITCHES)


def test_a_session_without_private_names_is_used_as_it_is() -> None:
    """Each that is missing is logged once, with what is worse without it, and Spark is ended in the public way."""
    spark: Any = Bare()
    with capture_logs() as logs:
        for _ in range(2):
            private.adapt(spark, {})
            private.plan_quickly(spark, {})
            private.stop(spark)
    missed = ["callers", "accumulators", "sources", "files", "process", "planning", "stop"]
    assert [line["switch"] for line in logs] == missed
    assert [line["without"] for line in logs] == [private.SWITCHES[name] for name in missed]
    assert spark.stopped == 2


def test_what_is_left_out_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if it is there: so a test sees the worker without it."""
    monkeypatch.setenv(private.VARIABLE, "stop")
    spark: Any = Bare()
    spark._jsparkSession = SimpleNamespace(stop=lambda: pytest.fail("the private way"))
    private.stop(spark)
    monkeypatch.delenv(private.VARIABLE)
    ended = threading.Event()
    spark._jsparkSession.stop = ended.set
    private.stop(spark)
    assert (spark.stopped, ended.is_set()) == (1, True)


def test_an_error_of_the_end_itself_is_no_missing_switch() -> None:
    """A JVM that is gone is not ended a second time in another way."""
    spark: Any = Bare()

    def fail() -> None:
        raise ConnectionRefusedError

    spark._jsparkSession = SimpleNamespace(stop=fail)
    with pytest.raises(ConnectionRefusedError):
        private.stop(spark)
    assert spark.stopped == 0


@pytest.mark.parametrize(
    ("trouble", "is_gone"),
    [(None, False), (ConnectionRefusedError(), True), (ValueError("something else"), False)],
    ids=["answers", "gone", "another error"],
)
def test_a_jvm_without_a_process_to_look_at_is_asked(trouble: Exception | None, is_gone: bool) -> None:
    """The worker hears of its end by a call that nobody answers; it has nothing to kill."""
    spark: Any = Bare(trouble)
    error = session.gone(spark)
    assert (error is not None) is is_gone
    assert "Spark's JVM has ended, and" in str(error or "Spark's JVM has ended, and")
    session.kill(spark)


@pytest.mark.parametrize(("trouble", "asynchronous"), [(None, "true"), (REFUSED, "false")], ids=["takes", "refuses"])
def test_a_query_starts_whether_spark_takes_the_switch_or_not(trouble: Exception | None, asynchronous: str) -> None:
    """A Spark that checks the sink again refuses it once, and is not asked again."""
    for _ in range(2):
        writer: Any = Writer(trouble)
        query: Any = private.start_query(writer)
        assert query == "query"
        assert writer.given["asyncProgressTrackingEnabled"] == asynchronous


def test_any_other_error_of_a_start_is_the_callers() -> None:
    """The switch is not to blame for a JVM that is gone, and stays."""
    with pytest.raises(ConnectionRefusedError):
        private.start_query(Writer(ConnectionRefusedError()))  # type: ignore[arg-type]
    writer: Any = Writer()
    private.start_query(writer)
    assert writer.given["asyncProgressTrackingEnabled"] == "true"


def test_a_jvm_that_answers_is_noticed_sooner_than_pyspark_looks() -> None:
    """PySpark's pauses between two looks are cut short, and shorter ones are not made longer."""
    began = monotonic()
    private.Pauses.sleep(60)
    private.Pauses.sleep(0)
    assert monotonic() - began < 30


def test_no_other_module_reaches_into_spark() -> None:
    """So each such use has its public way next to it, and the runs that leave all of them out prove something."""
    inside = re.compile(
        r"\b_(?:jvm|jsparkSession|jsc|jdf|jconf|gateway|ensure_initialized|accumulatorServer)\b|launch_gateway|_\$eq"
        r"|_async\w+|org\.apache\.spark\.|spark\.sql\.codegen|checkpointFileManagerClass|from py4j|import py4j"
    )
    files = [path for folder in ("compactor", "connectors") for path in (ROOT / folder).rglob("*.py")]
    reaching = {path.relative_to(ROOT).as_posix() for path in files if inside.search(path.read_text(encoding="utf-8"))}
    # For the session of `analyze` session.py gives Spark its own defaults of code generation back.
    # `java_command` names the class that Spark's scripts run, behind the switch `command`.
    own = {"connectors/spark/private.py", "connectors/spark/java_command.py"}
    assert reaching == {*own, "connectors/spark/session.py"}


def test_the_users_choice_of_a_file_manager_stays() -> None:
    """It is not looked for."""
    with capture_logs() as logs:
        private.adapt(Bare(), {private.FILES: "org.example.Own"})  # type: ignore[arg-type]
    assert "files" not in [line["switch"] for line in logs]


def test_a_name_for_the_user_that_hadoop_does_not_take_is_logged() -> None:
    """Spark then says itself what it needs."""
    with capture_logs() as logs:
        private.name_user(SimpleNamespace(), "keyfold")
    assert [line["switch"] for line in logs] == ["user"]
