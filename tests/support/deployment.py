"""A folder with a worker file and a connector file, and ways to run them: in this process, or as people do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from compactor.catalog.catalog import Catalog
from compactor.model.state import State
from compactor.storage.location import open_storage
from connectors.clock import SystemClock
from connectors.config.connector import ConnectorConfig
from connectors.config.files import load_connector, load_worker
from connectors.progress.observer import NullObserver
from connectors.runtime.cancellation import StopToken
from connectors.runtime.connector_task import ConnectorTask
from tests.support.kafka import consume_all, end_offsets, wait_until
from tests.support.promises import broken_promises
from tests.support.spark_settings import FAST_START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent
PROCESS_TIMEOUT_S = 120.0


class Deployment:
    """One connector's files in a folder of their own."""

    def __init__(self, folder: Path, bootstrap: str, topic: str) -> None:
        self.folder = folder
        self.bootstrap = bootstrap
        self.topic = topic
        self.name = f"c-{topic}"
        self.settings: dict[str, Any] = {
            "name": self.name,
            "connector.class": "keyfold.CompactedTopic",
            "topics": topic,
            "tasks.max": 2,
            "snapshot.location": str(folder / "snapshots"),
            "errors.deadletterqueue.topic.replication.factor": 1,
        }
        self.worker: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "storage.location": str(folder / "storage"),
            "spark.master": "local[2]",
            "spark.sql.shuffle.partitions": "2",
            **FAST_START,
        }

    @property
    def output(self) -> str:
        """The output topic."""
        return f"{self.topic}.compacted"

    def beside(self, topic: str) -> Self:
        """The same connector, seen from another of its topics."""
        other = copy(self)
        other.topic = topic
        return other

    def plain(self) -> Self:
        """Itself, without snapshots and with no fold: for a test that looks at output and positions only."""
        self.settings |= {"snapshot.location": "none", "min.cleanable.dirty.ratio": 1}
        return self

    def write(self, **changes: object) -> tuple[Path, Path]:
        """Writes both files; settings with underscores for dots change the connector's. The files."""
        self.settings |= {key.replace("_", "."): value for key, value in changes.items()}
        files = self.folder / "connector.json", self.folder / "worker.json"
        files[0].write_text(json.dumps(self.settings))
        files[1].write_text(json.dumps(self.worker))
        return files

    def config(self, **changes: object) -> ConnectorConfig:
        """The connector's configuration as the commands read it."""
        return load_connector(self.write(**changes)[0]).config

    def task(self, spark: SparkSession, **changes: object) -> ConnectorTask:
        """Returns a task in this process, not started."""
        config = self.config(**changes)
        worker = load_worker(self.folder / "worker.json")
        return ConnectorTask(spark, worker, config, SystemClock(), NullObserver(), lambda _: None)

    def once(self, spark: SparkSession, **changes: object) -> State:
        """`run --once` in this process; the catalog afterwards."""
        self.task(spark, **changes).run(StopToken(), once=True)
        return self.state()

    @contextmanager
    def running(self, spark: SparkSession, **changes: object) -> Iterator[None]:
        """`run` in this process, stopped at the end; what ended it before is raised then."""
        task, stop, errors = self.task(spark, **changes), StopToken(), list[Exception]()

        def run() -> None:
            try:
                task.run(stop, once=False)
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.stop()
            thread.join()
        if errors:
            raise errors[0]

    def state(self) -> State:
        """What the catalog says now."""
        return Catalog.open(open_storage(str(self.folder / "storage")).sub(self.name), self.name).state

    def published(self) -> dict[int, int]:
        """The published offset of each source partition."""
        return {log.partition: log.published for log in self.state().logs if log.topic == self.topic}

    def taken_over(self) -> bool:
        """Whether a worker has ever owned it."""
        return (self.folder / "storage" / self.name / "catalog").is_dir() and self.state().epoch > 0

    def caught_up(self) -> bool:
        """Whether everything in the source is published."""
        return self.taken_over() and self.published() == end_offsets(self.bootstrap, self.topic)

    def breaches(self) -> list[str]:
        """Every promise that source and output, as they are now, show broken."""
        source = consume_all(self.bootstrap, self.topic)
        return broken_promises(source, consume_all(self.bootstrap, self.output), self.published())

    def process(self, *args: str, failpoints: str = "", **environment: str) -> Process:
        """`keyfold run` of this connector as a process of its own."""
        connector, worker = self.write()
        return Process(
            ["run", str(connector), "--worker", str(worker), *args],
            self.folder / "worker.log",
            {"KEYFOLD_FAILPOINTS": failpoints, **environment},
        )


class Process:
    """A keyfold command in a process group of its own, so that Spark's processes end with the test."""

    def __init__(self, command: list[str], log: Path, environment: Mapping[str, str]) -> None:
        self.log = log
        self._file = log.open("ab")
        wanted = {key: value for key, value in environment.items() if value}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "connectors.cli.main", *command],
            stdout=self._file,
            stderr=self._file,
            env={**os.environ, "PYTHONPATH": str(ROOT), **wanted},
            start_new_session=True,
            cwd=log.parent,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PROCESS_TIMEOUT_S)
        self._file.close()

    def wait(self, timeout_s: float = PROCESS_TIMEOUT_S) -> int:
        """Its exit code."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout_s:.0f} s:\n{self.tail()}") from None

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the command itself."""
        os.kill(self.process.pid, number)

    def signal_all(self, number: signal.Signals) -> None:
        """Sends a signal to the command and everything that it started."""
        os.killpg(self.process.pid, number)

    def until_logged(self, text: str) -> None:
        """Waits until `text` is in what it printed."""
        wait_until(lambda: text in self.printed() or self._ended(), f"the worker logs {text!r}", PROCESS_TIMEOUT_S)
        assert text in self.printed(), f"ended without {text!r}:\n{self.tail()}"

    def printed(self) -> str:
        """All that it printed."""
        return self.log.read_text()

    def tail(self) -> str:
        """The end of what it printed."""
        return self.printed()[-4000:]

    def _ended(self) -> bool:
        return self.process.poll() is not None
