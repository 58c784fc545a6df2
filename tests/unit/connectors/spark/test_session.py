"""What a Spark on this machine is started with, and what of it is left to the user."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any, cast
from unittest.mock import Mock
from zipfile import ZipFile

import pyspark.sql
import pytest
from pyspark.core.context import SparkContext
from structlog.testing import capture_logs

from connectors.jvm.cds_archive import archive_of
from connectors.jvm.spark_home import JARS, ensure_home, installed
from connectors.jvm.stderr import quietly
from connectors.spark import session
from connectors.spark.executor_settings import PYTHON_NAME
from connectors.spark.jvm_start import StartingJvm
from connectors.spark.session import (
    DEFAULTS,
    EXECUTOR_OPTIONS,
    FOR_RECORDS,
    JAVA_OPTIONS,
    create,
    logging_option,
    prepare,
)
from tests.support.kafka import wait_until
from tests.support.spark_standins import StandInSession

LOCAL = ("local", "local[2]", "local[*]", "local-cluster[2,1,1024]")
WHOLE_STAGE = "spark.sql.codegen.wholeStage"
ELSEWHERE = ("spark://host:7077", "yarn", "k8s://https://host:443")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, with a blank in its name."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    return tmp_path / "a cache" / "keyfold"


@pytest.fixture
def archive(cache: Path) -> Path:
    """The class archive of the home in that cache."""
    home = ensure_home(cache=cache)
    assert home is not None
    made = archive_of(home / JARS)
    assert made is not None
    made.touch()
    return made


@pytest.mark.parametrize("master", LOCAL)
def test_spark_on_this_machine_has_keyfolds_home(cache: Path, master: str) -> None:
    """A local master gets the home without zipped Python, and nobody from outside finds it."""
    environment: dict[str, str] = {}
    assert prepare(master, {}, environment)[JAVA_OPTIONS] == DEFAULTS[JAVA_OPTIONS]
    assert Path(environment["SPARK_HOME"]) == ensure_home(cache=cache)
    assert environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert environment["PYSPARK_PYTHON"] == environment["PYSPARK_DRIVER_PYTHON"] == sys.executable


@pytest.mark.parametrize(
    ("master", "own", "is_asked"),
    [
        ("local", {}, "true"),
        ("local[*]", {}, "true"),
        ("local[*, 3]", {}, "true"),
        ("local[2]", {"spark.authenticate": "false"}, "false"),
        *((master, {}, None) for master in ("local-cluster[2,1,1024]", *ELSEWHERE)),
    ],
)
def test_the_ports_of_the_driver_ask_for_a_secret(
    cache: Path, master: str, own: dict[str, str], is_asked: str | None
) -> None:
    """In local mode Spark makes one; on a cluster it is the user's. What the user has set stays."""
    assert cache.name
    assert prepare(master, own, {}, "installed").get("spark.authenticate") == is_asked


@pytest.mark.parametrize("master", ELSEWHERE)
def test_executors_elsewhere_are_left_alone(archive: Path, master: str) -> None:
    """Where they have keyfold, a cluster's machines have homes, JARs and addresses of their own."""
    environment: dict[str, str] = {}
    settings = prepare(master, {}, environment, "installed")
    assert not [value for key, value in settings.items() if "executor" in key and str(archive) in value]
    assert "SPARK_LOCAL_IP" not in environment
    assert environment["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize("master", ELSEWHERE)
def test_the_driver_of_a_cluster_starts_as_soon_as_on_one_machine(archive: Path, master: str) -> None:
    """It runs here: with keyfold's home and class archive; for YARN with Spark's own home, whose Python is uploaded."""
    environment: dict[str, str] = {}
    settings = prepare(master, {}, environment, "installed")
    assert (str(archive) in settings[JAVA_OPTIONS]) is (master != "yarn")
    assert (environment["SPARK_HOME"] == str(installed())) is (master == "yarn")


def test_executors_have_the_options_of_local_mode_unless_the_user_says_otherwise(cache: Path) -> None:
    """Java's quick compiler: what they do in Java, the driver's JVM does on one machine."""
    found = prepare("spark://host:7077", {}, {}, "installed")
    assert "-XX:TieredStopAtLevel=1" in found[EXECUTOR_OPTIONS]
    own = prepare("spark://host:7077", {EXECUTOR_OPTIONS: "-Xss2m"}, {}, "installed")
    assert own[EXECUTOR_OPTIONS] == "-Xss2m"


@pytest.mark.parametrize("master", ELSEWHERE[:1])
def test_the_python_that_keyfold_package_names_is_this_one(cache: Path, master: str) -> None:
    """Named without a folder, it is this process's own here, which needs no zipped PySpark."""
    environment: dict[str, str] = {}
    prepare(master, {"spark.pyspark.python": PYTHON_NAME}, environment, "installed")
    assert "SPARK_HOME" in environment


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        ({"SPARK_HOME": "/opt/spark"}, {}),
        ({"PYSPARK_PYTHON": "/opt/python"}, {}),
        ({}, {"spark.pyspark.python": "/opt/python"}),
    ],
    ids=["home", "python", "python in the worker file"],
)
def test_what_the_user_has_chosen_stays(
    cache: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], settings: dict[str, str]
) -> None:
    """His own Spark home is kept; with a Python of his own the zipped PySpark may be the only one that it has."""
    monkeypatch.setattr(session, "check_home", lambda _: None)
    monkeypatch.setattr(session, "check_python", lambda _: None)
    found = dict(environment)
    prepare("local[2]", settings, found)
    assert found["SPARK_HOME"] == environment.get("SPARK_HOME", str(installed()))
    assert not cache.exists()


@pytest.mark.parametrize("master", ["local[2]", "yarn"])
def test_sparks_scripts_are_told_the_home_in_any_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    """Without a cache too: they would ask a Python for it, and split that Python's path at blanks."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    environment: dict[str, str] = {}
    prepare(master, {}, environment, "installed")
    assert Path(environment["SPARK_HOME"], "bin", "spark-submit").is_file()


@pytest.mark.parametrize("master", [*LOCAL, *ELSEWHERE])
@pytest.mark.parametrize("before", [{}, {"PYTHONHASHSEED": "0"}, {"PYTHONHASHSEED": "random"}])
def test_sparks_processes_hash_with_a_seed_that_nobody_knows(
    archive: Path, master: str, before: dict[str, str]
) -> None:
    """One for all of them, another for each worker: names of JSON can be made to collide for one seed alone."""
    seeds = set()
    for _ in range(3):
        environment = dict(before)
        prepare(master, {}, environment, "installed")
        seeds.add(int(environment["PYTHONHASHSEED"]))
        prepare(master, {}, environment, "installed")
        assert int(environment["PYTHONHASHSEED"]) in seeds
    assert len(seeds) == 3
    assert all(0 < seed < 1 << 32 for seed in seeds)


def test_a_seed_that_the_user_has_chosen_stays(archive: Path) -> None:
    """As for whoever looks for what differs between two runs."""
    environment = {"PYTHONHASHSEED": "7"}
    prepare("local[2]", {}, environment)
    assert environment["PYTHONHASHSEED"] == "7"


@pytest.mark.parametrize("master", [*LOCAL, *ELSEWHERE])
def test_sparks_python_processes_take_their_memory_from_the_system(archive: Path, master: str) -> None:
    """Arrow's own allocator has it zeroed again and again; what the user has set stays, in a variable or a setting."""
    name, threads = "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL", "spark.executorEnv.OPENBLAS_NUM_THREADS"
    made = prepare(master, {}, {}, "installed")
    assert (made[name], made[threads]) == ("system", "1")
    assert prepare(master, {}, {"ARROW_DEFAULT_MEMORY_POOL": "jemalloc"}, "installed")[name] == "jemalloc"
    assert prepare(master, {name: "mimalloc"}, {}, "installed")[name] == "mimalloc"


def test_the_settings_of_sparks_log_are_one_word_whatever_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark splits the options as a shell would, and log4j takes commas and percent signs for its own."""
    monkeypatch.setattr(Path, "with_name", lambda _, name: Path("/a venv, 'new' 5%", name))
    (option,) = shlex.split(logging_option())
    assert option == "-Dlog4j2.configurationFile=file:///a%20venv%2C%20%27new%27%205%25/log4j2.properties"


@pytest.mark.parametrize(
    ("locale", "expected"), [("C", "C.UTF-8"), ("POSIX", "C.UTF-8"), ("de_DE.UTF-8", "de_DE.UTF-8")]
)
def test_java_can_name_files_that_are_not_ascii(cache: Path, locale: str, expected: str) -> None:
    """With LC_ALL=C it could not open them; another locale of the user's stays."""
    environment = {"LC_ALL": locale}
    prepare("local[2]", {}, environment)
    assert environment["LC_ALL"] == expected


def test_the_archive_is_added_to_the_users_options(archive: Path) -> None:
    """Spark splits the options as a shell would: the file is named as one word, behind what the user has put there."""
    options = shlex.split(prepare("local[2]", {JAVA_OPTIONS: "-Xss4m"}, {})[JAVA_OPTIONS])
    assert options == ["-Xss4m", f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"]


@pytest.mark.parametrize(
    "own", ["-XX:SharedArchiveFile=mine.jsa", "-XX:ArchiveClassesAtExit=mine.jsa", "-Xshare:off", "-javaagent:a.jar"]
)
def test_an_archive_of_the_users_own_is_kept(archive: Path, own: str) -> None:
    """Where his options choose an archive, none, or what no archive goes with, they stay as they are."""
    assert archive.exists()
    assert prepare("local[2]", {JAVA_OPTIONS: own}, {})[JAVA_OPTIONS] == own


def test_the_jvm_that_puts_the_command_together_finds_its_classes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the one JAR that has them; not where a shell would split its name, nor in place of what the user has set."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found: dict[str, str] = {}
    prepare("local[2]", {}, found)
    (option,) = [one for one in found["SPARK_LAUNCHER_OPTS"].split() if one.startswith("-Xbootclasspath")]
    jar = Path(option.removeprefix("-Xbootclasspath/a:"))
    with ZipFile(jar) as classes:
        assert "org/apache/spark/launcher/Main.class" in classes.namelist()
    own = {"SPARK_LAUNCHER_OPTS": "-Xmx64m"}
    prepare("local[2]", {}, own)
    assert own["SPARK_LAUNCHER_OPTS"] == "-Xmx64m"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    blank: dict[str, str] = {}
    prepare("local[2]", {}, blank)
    assert blank["SPARK_LAUNCHER_OPTS"] == "-XX:TieredStopAtLevel=1"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"wholeStage": "false", "factoryMode": "NO_CODEGEN"}),
        (FOR_RECORDS, {}),
        ({WHOLE_STAGE: "true"}, {"factoryMode": "NO_CODEGEN"}),
    ],
    ids=["worker", "analyze", "user"],
)
def test_java_is_written_for_no_frame_of_answers(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], expected: dict[str, str]
) -> None:
    """Unless the user, or a command that works on records in Spark's JVM, wants it."""
    made = Mock()
    builder = made.builder.master.return_value.appName.return_value
    builder.config.return_value = builder
    monkeypatch.setattr(pyspark.sql, "SparkSession", made)
    monkeypatch.setattr(SparkContext, "_gateway", object())
    spark = create("local[2]", settings)
    found = {call.args[0].rsplit(".", 1)[1]: call.args[1] for call in cast("Any", spark.conf.set).call_args_list}
    assert found == expected


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS"])
def test_the_collector_that_the_user_names_elsewhere_is_the_only_one(cache: Path, name: str) -> None:
    """A JVM that is told of two does not start."""
    assert "+UseParallelGC" in prepare("local[2]", {}, {})[JAVA_OPTIONS]
    assert "+UseParallelGC" in prepare("local[2]", {}, {name: "-Xss4m"})[JAVA_OPTIONS]
    assert "UseParallelGC" not in prepare("local[2]", {}, {name: "-Xss4m -XX:+UseG1GC"})[JAVA_OPTIONS]
    elsewhere = {"spark.driver.defaultJavaOptions": "-XX:+UseZGC"}
    assert "UseParallelGC" not in prepare("local[2]", elsewhere, {})[JAVA_OPTIONS]


def test_what_spark_writes_while_it_is_ended_is_no_error(capfd: pytest.CaptureFixture[str]) -> None:
    """Its Python processes find their sockets closed, and show a trace if they are not ended before."""
    spark = StandInSession()
    script = "echo before >&2; echo; read end; echo Traceback >&2"
    with quietly() as words:
        process = StartingJvm(["sh", "-c", script], stdin=PIPE, stdout=PIPE, stderr=words.descriptor, words=words)
    with process, capture_logs():
        assert process.stdout is not None
        process.stdout.readline()
        wait_until(lambda: capfd.readouterr().err == "before\n", "the line from before the end")
        spark.sparkContext._gateway.proc = process
        session.close(cast("Any", spark))
        session.end(cast("Any", spark), 60)
        assert words.reason() == "Traceback"
    assert capfd.readouterr().err == ""
