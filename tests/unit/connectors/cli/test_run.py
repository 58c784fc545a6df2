"""`keyfold run`: what it says and checks before anything is begun; Spark and the worker are left out."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from connectors.cli.commands.run import say_listens
from connectors.cli.options import CommandParts
from connectors.config.files import load_worker
from connectors.jvm.java import find_java
from connectors.rest.service import ADMIN
from tests.support.cli import (
    NAME,
    NOBODY,
    command,
    connector_file,
    environment,
    invoke,
    keep,
    row,
    worker_file,
    write_json,
)
from tests.support.kafka import wait_until
from tests.support.spark_standins import up


class _Worker:
    """Ends at once."""

    abandoned = ()

    def __init__(self) -> None:
        self.stopped: list[int] = []

    def make(self, *_: object) -> Any:
        """Begins nothing."""
        return self

    def on_stop(self, number: int, _frame: object) -> None:
        """Is told to end."""
        self.stopped.append(number)

    def reload(self) -> None:
        """Reads nothing."""

    def run(self, *, once: bool, lives_on: bool) -> int:
        """Done."""
        return 0 if once else 1


def test_the_folder_of_the_storage_is_said_at_the_start(tmp_path: Path) -> None:
    """One line names the folder that storage.location means, and the connectors."""
    parts = CommandParts(spark_start=lambda *_: up(), worker=_Worker().make)
    worker = write_json(tmp_path / "worker.json", {"bootstrap.servers": NOBODY, "storage.location": "here"})
    result = invoke("run", connector_file(tmp_path), "--once", "--worker", worker, parts=parts)
    assert result.exit_code == 0
    line = next(line for line in result.stderr.splitlines() if "starting" in line)
    assert f"storage={tmp_path}/here" in line
    assert NAME in line


def test_a_storage_that_cannot_be_made_is_told_before_anything_begins(tmp_path: Path) -> None:
    """Exit code 4, with the key and the folder; Spark is not started for it."""
    parts = CommandParts(spark_start=lambda *_: pytest.fail("Spark was started"))
    worker = write_json(tmp_path / "worker.json", {"bootstrap.servers": NOBODY, "storage.location": "/proc/nope"})
    result = invoke("run", connector_file(tmp_path), "--worker", worker, parts=parts)
    assert result.exit_code == 4
    assert 'storage.location: "/proc/nope" cannot be made in /proc' in result.stderr


_JAVA = """#!/bin/sh
case "$*" in *SparkSubmit*) echo $$ >{started} ;; esac
exec {java} "$@"
"""
"""A `java` that writes the id of its process once it is to be Spark's JVM."""


@pytest.fixture
def spark_jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the id of the process of Spark's JVM, as soon as one starts."""
    started, java = tmp_path / "jvm", tmp_path / "home/bin/java"
    java.parent.mkdir(parents=True)
    java.write_text(_JAVA.format(started=started, java=find_java()), encoding="utf-8")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    return started


def test_a_start_of_spark_is_ended_if_a_file_is_faulty(tmp_path: Path, spark_jvm: Path) -> None:
    """Its JVM runs before the files are read, and leaves nothing; the message is that of the file alone."""
    (tmp_path / "tmp").mkdir()
    connector = tmp_path / "connector.json"
    os.mkfifo(connector)  # it is read once something is written
    faulty = write_json(tmp_path / "faulty.json", {"nonsense": "x"})
    plain = {name: text for name, text in environment().items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    worker = worker_file(tmp_path)
    running = subprocess.Popen(
        command("run", connector, "--worker", worker),
        env={**plain, "TMPDIR": str(tmp_path / "tmp")},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: spark_jvm.exists() and spark_jvm.read_text(encoding="utf-8"), "Spark's JVM starts", 40)
        with connector.open("w", encoding="utf-8") as waited_for:
            faulty.replace(connector)  # the next reading is of a file
            waited_for.write(connector.read_text(encoding="utf-8"))
        _, said = running.communicate(timeout=40)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 3
    assert "nonsense" in said
    assert all(line.startswith(("error: ", "next: ", "  ")) for line in said.splitlines()), said
    assert [path.name for path in (tmp_path / "tmp").iterdir() if "keyfold" in path.name] == []
    jvm = int(spark_jvm.read_text(encoding="utf-8"))
    wait_until(lambda: not Path(f"/proc/{jvm}/exe").exists(), "Spark's JVM has ended")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_before_the_worker_is_there_reaches_it(tmp_path: Path, number: signal.Signals) -> None:
    """Spark's JVM starts while the worker is imported: the signal waits for what can end both."""
    before = signal.getsignal(number)
    worker = _Worker()

    def start(*_: object) -> Any:
        signal.raise_signal(number)

    files = connector_file(tmp_path), "--worker", worker_file(tmp_path)
    parts = CommandParts(spark_start=start, worker=worker.make)
    assert invoke("run", *files, "--once", parts=parts).exit_code == 0
    assert worker.stopped == [number]
    assert signal.getsignal(number) is before


def test_too_few_open_files_are_told_before_anything_begins(tmp_path: Path) -> None:
    """Exit code 3, with the limit, the least and how it is raised; the storage is not made."""
    worker = write_json(tmp_path / "worker.json", {"bootstrap.servers": NOBODY, "storage.location": "here"})
    limited = ["sh", "-c", 'ulimit -n 64 && exec "$@"', "sh", *command("run", "--worker", worker)]
    ran = subprocess.run(limited, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert ran.returncode == 3
    error, action = ran.stderr.splitlines()
    assert error.startswith("error: The limit of open files is 64; a worker needs 400")
    assert action.startswith("next: Raise it")
    assert not (tmp_path / "here").exists()


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without Java."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    find_java.cache_clear()
    yield
    find_java.cache_clear()


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize("command", ["run", "clean", "snapshot", "analyze"])
def test_without_java_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """A command that needs Spark ends with 3 and says what to install; the catalog stays as it was."""
    catalog = keep(tmp_path, [row(0, b"a", b"1")])
    monkeypatch.setattr("compactor.analyze.analyze.is_little", lambda _: False)
    connector = connector_file(tmp_path, **{"snapshot.location": str(tmp_path / "snapshots")})
    result = invoke(command, connector, "--worker", worker_file(tmp_path))
    assert result.exit_code == 3
    assert f"error: There is no `java` in JAVA_HOME ({tmp_path})." in result.stderr
    assert "next: Install Java 17" in result.stderr
    version = catalog.version
    catalog.refresh()
    assert catalog.version == version


@pytest.mark.parametrize(
    ("url", "more", "said"),
    [
        ("http://h:1", {}, ["page     http://h:1/ui", "REST     http://h:1/connectors", "metrics  http://h:1/metrics"]),
        ("http://h:1", {"ui.enable": "false"}, ["REST     http://h:1/connectors", "metrics  http://h:1/metrics"]),
        ("http://h:2", {}, ["loggers  http://h:2/admin/loggers"]),
    ],
)
def test_what_listens_is_said_with_its_addresses(
    tmp_path: Path, url: str, more: dict[str, str], said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Page, REST and metrics of a listener; the one of admins has the loggers alone."""
    config = load_worker(worker_file(tmp_path, **more))
    bound: Any = [SimpleNamespace(url="http://h:1", key="listeners"), SimpleNamespace(url="http://h:2", key=ADMIN)]
    say_listens(config, bound, url)
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == f"listening on {url}"
    assert [line.strip() for line in lines] == said


def test_a_worker_that_nobody_can_ask_says_so(tmp_path: Path) -> None:
    """Without listeners there is neither page nor REST."""
    parts = CommandParts(spark_start=lambda *_: up(), worker=_Worker().make)
    done = invoke("run", connector_file(tmp_path), "--worker", worker_file(tmp_path), parts=parts)
    assert "Nothing listens: the worker file has no listeners." in done.stderr
