"""Runs a standalone Spark cluster on 127.0.0.1: a master and workers, as processes of the installed PySpark's JARs.

Its machines are as bare as others may be: a Python without packages, an empty working folder, nothing of keyfold.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Self

import psutil

from connectors.dev.embedded_kafka import free_port
from connectors.jvm.java import find_java
from connectors.jvm.spark_home import installed
from connectors.spark.settings_file import properties
from tests.support.kafka import wait_until

STARTED_S: Final = 60.0
_QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
EXECUTOR: Final = "CoarseGrainedExecutorBackend"


def bare_python(folder: Path) -> Path:
    """Makes a Python of this one's version without any package; returns the folder with its program."""
    base = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([base, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin"


class SparkCluster:
    """A master and `workers` with one core each; `settings` are those of its processes."""

    def __init__(self, folder: Path, python: Path, workers: int = 2, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self._python = python
        self._port = free_port()
        self._settings = {
            "spark.deploy.recoveryMode": "FILESYSTEM",
            "spark.deploy.recoveryDirectory": str(folder / "recovery"),
            **(settings or {}),
        }
        self._workers = workers
        self._properties = folder / "cluster.properties"
        self._master: subprocess.Popen[bytes] | None = None
        self._started: list[subprocess.Popen[bytes]] = []
        for each in ("recovery", "empty", "local"):
            (folder / each).mkdir(parents=True, exist_ok=True)
        self._properties.write_text(properties(self._settings))

    @property
    def master(self) -> str:
        """Its URL, for `spark.master`."""
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.start_master()
        for number in range(self._workers):
            work = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / f"work-{number}")]
            self._start("worker.Worker", f"worker-{number}", *work, self.master)
        registered = "Registering worker"
        wait_until(lambda: self.log("master").count(registered) >= self._workers, "workers are there", STARTED_S)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            for child in _tree(process.pid):
                child.kill()
            process.wait()
        for file in self.folder.glob("work-*/*/*/*"):  # each executor has the archive, and leaves it there
            if not file.name.startswith("std"):
                shutil.rmtree(file) if file.is_dir() and not file.is_symlink() else file.unlink()
        shutil.rmtree(self.folder / "local", ignore_errors=True)

    def start_master(self) -> None:
        """Starts the master, or one after it that goes on from what it has kept."""
        self._master = self._start("master.Master", "master", "--port", str(self._port))
        wait_until(lambda: "I have been elected leader" in self.log("master"), "the master leads", STARTED_S)

    def kill_master(self) -> None:
        """Kills the master, and begins another log for the next."""
        assert self._master is not None
        self._master.kill()
        self._master.wait()
        (self.folder / "master.log").unlink()

    def executors(self) -> list[psutil.Process]:
        """Returns the JVMs of the executors, the oldest first."""
        found = [child for process in self._started for child in _tree(process.pid) if EXECUTOR in _command(child)]
        return sorted(found, key=lambda one: one.create_time())

    def log(self, name: str) -> str:
        """Returns what the process `name` has printed."""
        file = self.folder / f"{name}.log"
        return file.read_text(errors="replace") if file.is_file() else ""

    def executor_logs(self) -> str:
        """Returns what all executors have printed, for a failing test."""
        return "\n".join(file.read_text(errors="replace") for file in sorted(self.folder.glob("work-*/*/*/std*")))

    def _start(self, main: str, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = installed()
        assert home is not None
        environment = {
            "PATH": os.pathsep.join([str(self._python), "/usr/bin", "/bin"]),
            "HOME": str(self.folder),
            "JAVA_HOME": str(Path(find_java()).resolve().parent.parent),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
        }
        command = [find_java(), *_QUICK, "-cp", f"{home}/jars/*", f"org.apache.spark.deploy.{main}"]
        listening = ["--host", "127.0.0.1", "--webui-port", "0", "--properties-file", str(self._properties)]
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*command, *listening, *arguments],
                stdout=log,
                stderr=log,
                cwd=self.folder / "empty",
                env=environment,
                start_new_session=True,
            )
        self._started.append(process)
        return process


def worker_settings(cluster: SparkCluster) -> dict[str, str]:
    """Returns the keys of a worker file with which its Spark is `cluster`, on executors that start soon."""
    return {
        "spark.master": cluster.master,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
    }


def with_children(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Returns the processes and all that they have started, Python among it."""
    return [child for process in processes for child in _tree(process.pid)]


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        return []


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""
