"""A worker file and a connector file in a folder; runs them in this process or as a command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

import psutil

from compactor.catalog.catalog import Catalog
from compactor.catalog.owner_lock import OwnerLock
from compactor.catalog.owner_starts import Start
from compactor.model.state import CatalogState
from compactor.storage.base import Storage
from compactor.storage.locations import open_storage
from connectors.clock import SystemClock
from connectors.config.connector import ConnectorConfig
from connectors.config.files import load_connector, load_worker
from connectors.progress.observer import Observer
from connectors.runtime.connector_task import ConnectorTask
from connectors.runtime.stop import Stop
from connectors.runtime.takeover import draw_start
from tests.support.kafka import consume_all, end_offsets, wait_until
from tests.support.promises import broken_promises
from tests.support.queries import QUERIES, shared_query
from tests.support.spark_settings import FAST_START
from tests.support.stores.chosen import chosen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent
PROCESS_TIMEOUT_S = 120.0


class Deployment:
    """One connector's configuration, storage and snapshots in a folder."""

    def __init__(self, folder: Path, bootstrap: str, topic: str) -> None:
        self.folder = folder
        self.bootstrap = bootstrap
        self.topic = topic
        self.name = f"c-{topic}"
        self._store = chosen()
        self.settings: dict[str, Any] = {
            "name": self.name,
            "connector.class": "keyfold.CompactedTopic",
            "topics": topic,
            "tasks.max": 2,
            "snapshot.location": self._location("snapshots"),
            "snapshot.key.format": "bytes",
            "snapshot.value.format": "bytes",
            "errors.deadletterqueue.topic.replication.factor": 1,
        }
        self.worker: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "storage.location": self._location("storage"),
            **(self._store.worker_keys() if self._store else {}),
            "spark.master": "local[2]",
            "listeners": "",
            "spark.sql.shuffle.partitions": "2",
            **FAST_START,
        }

    @property
    def output(self) -> str:
        """Name of the output topic."""
        return f"{self.topic}.compacted"

    @property
    def storage(self) -> Storage:
        """The connector's folder in storage.location, as it is: without the faults that a worker may see."""
        return self._open(self.worker["storage.location"]).sub(self.name)

    @property
    def snapshots(self) -> Storage:
        """The topic's folder in snapshot.location."""
        return self._open(self.settings["snapshot.location"]).sub(self.name, self.topic)

    def _location(self, name: str) -> str:
        """Returns a location that no other deployment has."""
        return self._store.location(f"{self.name}-{uuid4().hex[:8]}/{name}") if self._store else str(self.folder / name)

    def _open(self, location: str) -> Storage:
        return self._store.open(location) if self._store else open_storage(location)

    def for_topic(self, topic: str) -> Self:
        """Returns the same deployment with `topic`, another source topic of the connector."""
        other = copy(self)
        other.topic = topic
        return other

    def publishing_only(self) -> Self:
        """Disables snapshots and cleaning, for a test that checks only output and positions; returns itself."""
        self.settings |= {"snapshot.location": "none", "min.cleanable.dirty.ratio": 1}
        return self

    def write(self, **changes: object) -> tuple[Path, Path]:
        """Writes and returns both files; `changes` to the connector's settings have underscores for dots."""
        self.settings |= {key.replace("_", "."): value for key, value in changes.items()}
        files = self.folder / "connector.json", self.folder / "worker.json"
        files[0].write_text(json.dumps(self.settings))
        files[1].write_text(json.dumps(self.worker))
        return files

    def config(self, **changes: object) -> ConnectorConfig:
        """Returns the connector's configuration as the commands read it."""
        return load_connector(self.write(**changes)[0]).config

    def task(self, spark: SparkSession, **changes: object) -> ConnectorTask:
        """Returns a connector task for this process, which takes `lock`: who runs it gives that back."""
        config = self.config(**changes)
        worker = load_worker(self.folder / "worker.json")
        self.lock = OwnerLock(self.storage)
        return ConnectorTask(spark, worker, config, SystemClock(), Observer(), lambda _: None, self.lock)

    def drawn_start(self) -> Start:
        """Draws the place of a start that is about to come among all on this storage location."""
        return draw_start(load_worker(self.folder / "worker.json"))

    def run_once(self, spark: SparkSession, **changes: object) -> CatalogState:
        """Runs `run --once` in this process; returns the catalog's state afterwards."""
        with QUERIES.lend(spark) as query, ExitStack() as stack:
            task = self.task(spark, **changes)
            stack.callback(self.lock.release)
            task.run(Stop(), query, once=True, start=self.drawn_start())
        return self.state()

    @contextmanager
    def running(self, spark: SparkSession, *, paused: bool = False, **changes: object) -> Iterator[None]:
        """Runs the connector in this process during the block, paused or not; raises at the end what had ended it."""
        stack = ExitStack()
        query = stack.enter_context(shared_query(spark))
        task, stop, errors = self.task(spark, **changes), Stop(), list[Exception]()
        stack.callback(self.lock.release)
        start = self.drawn_start()
        if paused:
            stop.paused.set()

        def run() -> None:
            try:
                task.run(stop, query, once=False, start=start)
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.drop(sys.maxsize)  # a fold at once, a step only when it has ended
            thread.join()
            stack.close()
        if errors:
            raise errors[0]

    def state(self) -> CatalogState:
        """Returns the catalog's state."""
        return Catalog.open(self.storage, self.name).state

    def published(self) -> dict[int, int]:
        """Returns the published offset of each source partition."""
        return {log.partition: log.published for log in self.state().logs if log.topic == self.topic}

    def taken_over(self) -> bool:
        """Whether a worker has ever taken the connector over."""
        return self.storage.exists("catalog") and self.state().epoch > 0

    def has_published(self, wanted: Mapping[int, int]) -> bool:
        """Returns whether a worker has taken over and published each partition up to its offset in `wanted`."""
        if not self.taken_over():
            return False
        published = self.published()
        return all(published.get(partition, 0) >= end for partition, end in wanted.items())

    def caught_up(self) -> bool:
        """Whether all records of the source are published."""
        return self.taken_over() and self.published() == end_offsets(self.bootstrap, self.topic)

    def violations(self) -> list[str]:
        """Reads source and output; returns every violation of a promise, one line each."""
        source = consume_all(self.bootstrap, self.topic)
        return broken_promises(source, consume_all(self.bootstrap, self.output), self.published())

    def process(self, *args: str, failpoints: str = "", **environment: str) -> Process:
        """Starts `keyfold run` of this connector as a process."""
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
        """Waits for its end; returns the exit code."""
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

    def processes(self, part: str) -> list[psutil.Process]:
        """Returns its processes whose command line contains `part`, the oldest first."""
        found = psutil.Process(self.process.pid).children(recursive=True)
        return sorted((one for one in found if _is(one, part)), key=lambda one: one.create_time())

    def until_logged(self, text: str) -> None:
        """Waits until it has printed `text`."""
        wait_until(lambda: text in self.printed() or self._ended(), f"the worker logs {text!r}", PROCESS_TIMEOUT_S)
        assert text in self.printed(), f"ended without {text!r}:\n{self.tail()}"

    def printed(self) -> str:
        """Returns all that it printed."""
        return self.log.read_text()

    def tail(self) -> str:
        """Returns the last 4,000 characters that it printed."""
        return self.printed()[-4000:]

    def _ended(self) -> bool:
        return self.process.poll() is not None


def signal_each(processes: Iterable[psutil.Process], number: signal.Signals) -> int:
    """Sends a signal to each that is still there; returns how many these were."""
    sent = 0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
            sent += 1
    return sent


def _is(process: psutil.Process, part: str) -> bool:
    try:
        return part in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False
