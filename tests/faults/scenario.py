"""A connector under load for fault cases: a topic, a producer, workers that a case starts and ends, and the checks."""

from __future__ import annotations

import operator
import os
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

from connectors.clock import SystemClock
from tests.faults import checks
from tests.faults.load import RATE, Load
from tests.faults.observe import observe
from tests.faults.worker_main import READ_HERE, VACUUM_EVERY_MS, VACUUM_GRACE_MS
from tests.faults.worker_process import Control, WorkerProcess
from tests.support.deployment import Deployment
from tests.support.generations import numbers
from tests.support.kafka import create_topic, wait_until
from tests.support.requests import leave

PATIENCE: Final = float(os.environ.get("FAULT_PATIENCE", "1"))
"""Multiplies every bound of time, for a busy machine."""
RECOVERY_S: Final = 180.0 * PATIENCE
"""Seconds within which all records acknowledged at the fault must be published."""
CLUSTER_S: Final = 3 * RECOVERY_S
"""The same for settings with which each start takes three JVMs more."""

_OF_THE_WORKER: Final = ("spark.", "log.cleaner.")
_RESTARTS: Final = {"restart.backoff.initial.ms": 200, "restart.backoff.max.ms": 2_000}
# A snapshot to judge is there soon; what is behind publishing leaves the processor to what is before it.
CALM: Final[Mapping[str, Any]] = {"snapshot.interval.ms": 8_000, **_RESTARTS}
# Everything behind publishing is due every few seconds, so that each of its steps is come to soon. Full folds come
# with the snapshots alone: so they leave the merges something to do.
BUSY: Final[Mapping[str, Any]] = {
    "snapshot.interval.ms": 3_000,
    "min.cleanable.dirty.ratio": 1,
    "fold.level0.files": 2,
    **_RESTARTS,
}
# Tasks of Spark's rewrite what the worker itself would.
REWRITING_TASKS: Final[Mapping[str, Any]] = {**BUSY, "fold.local.max.records": -1}
# Tasks of Spark's have what the worker itself would read and publish.
TASKS: Final[Mapping[str, Any]] = {**CALM, "publish.local.max.records": -1, READ_HERE: "-1"}
CLUSTER: Final[Mapping[str, Any]] = {**TASKS, "spark.master": "local-cluster[2,1,1024]"}
# Runs are never folded, so that they grow old.
RETAINING: Final[Mapping[str, Any]] = {
    "cleanup.policy": "compact,delete",
    "min.cleanable.dirty.ratio": 1,
    "retention.ms": 3_000,
    "output.topic.config.retention.ms": -1,
    "snapshot.location": "none",
    **_RESTARTS,
}
# Everything that a catalog of its own has is due soon; a snapshot location belongs to one catalog alone.
LOSING: Final[Mapping[str, Any]] = {
    "snapshot.location": "none",
    "min.cleanable.dirty.ratio": 0,
    "fold.level0.files": 2,
    **_RESTARTS,
}
QUICK_WORKER: Final[Mapping[str, Any]] = {"log.cleaner.initial.delay.ms": 3_000, "log.cleaner.backoff.ms": 500}
_VACUUM: Final = {VACUUM_EVERY_MS: "4000", VACUUM_GRACE_MS: "20000"}
KINDS: Final = {"wanders": "scope", "fills": "fill", "spells": "key.identity", "late": "order"}
"""What the load's records are like (`TopicRecords`) if the settings have a `compaction.` key of that name."""
_ENVIRONMENT: Final = "FAULT_"
"""Settings that begin so are environment variables of the worker's."""


class Scenario:
    """One connector under load, as a context manager; `worker` is the current worker, if any."""

    def __init__(
        self, folder: Path, bootstrap: str, seed: int, settings: Mapping[str, Any] = BUSY, rate: float = RATE
    ) -> None:
        topic = create_topic(bootstrap, f"f-{uuid4().hex[:10]}", 2, cleanup_policy="delete")
        folder.mkdir(parents=True, exist_ok=True)
        self.deployment = Deployment(folder, bootstrap, topic)
        ours = {key: value for key, value in settings.items() if key.startswith(_OF_THE_WORKER)}
        environment = {key: value for key, value in settings.items() if key.startswith(_ENVIRONMENT)}
        self._environment = {**_VACUUM, **environment}
        self.deployment.settings |= {
            key: value for key, value in settings.items() if key not in ours and key not in environment
        }
        self.deployment.worker |= {**QUICK_WORKER, **ours}
        self.control = Control(folder / "control")
        kinds = {kind: f"compaction.{name}" in settings for kind, name in KINDS.items()}
        self.load = Load(bootstrap, topic, seed, rate, **kinds)
        self.seed = seed
        self.worker: WorkerProcess | None = None
        self._workers = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self.load)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def start(self, *args: str) -> WorkerProcess:
        """Starts a worker, which becomes the current one; does not touch an older one."""
        self._workers += 1
        worker = WorkerProcess(self.deployment, self.control, self._workers, *args, environment=self._environment)
        self.worker = self._stack.enter_context(worker)
        return worker

    def command(self, name: str) -> WorkerProcess:
        """Starts `keyfold NAME` of the connector; the current worker stays what it is."""
        self._workers += 1
        command = WorkerProcess(
            self.deployment, self.control, self._workers, environment=self._environment, command=name
        )
        return self._stack.enter_context(command)

    def lose_storage(self) -> None:
        """Removes the connector's folder from storage.location."""
        self.deployment.storage.delete_folder("")

    def running(self) -> WorkerProcess:
        """Returns the current worker, or starts one, once it has published something."""
        if self.worker is None or not self.worker.alive:
            self.start()
        self.until_publishing()
        assert self.worker is not None
        return self.worker

    def until_publishing(self, timeout_s: float = RECOVERY_S) -> float:
        """Waits until all records acknowledged by now are published; returns the seconds it took."""
        began = time.monotonic()
        wait_until(self.load.ends, "anything is acknowledged")
        wanted = self.load.ends()
        self.until(lambda: self.deployment.has_published(wanted), f"published is at {wanted}", timeout_s)
        return time.monotonic() - began

    def until(self, condition: Any, what: str, timeout_s: float = RECOVERY_S) -> None:
        """Waits for `condition`; fails with the end of the worker's log at the timeout or if the worker ends."""
        worker = self.worker
        assert worker is not None
        try:
            wait_until(lambda: condition() or not worker.alive, what, timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{worker.tail()}") from None
        assert condition(), f"the worker ended with {worker.process.poll()} before {what}\n{worker.tail()}"

    def rest(self, seconds: float) -> None:
        """Waits `seconds`, for faults that consist of time."""
        threading.Event().wait(seconds)

    def ask_resync(self) -> None:
        """Asks the worker to begin all logs anew."""
        leave(self.deployment.storage, "resync", SystemClock().now_ms())

    def resync(self) -> None:
        """Has the worker begin all logs anew, and waits until they are published again."""
        before = numbers(self.deployment.state())
        self.ask_resync()

        def begun() -> bool:
            return all(map(operator.gt, numbers(self.deployment.state()), before))

        self.until(begun, f"generations after {before} begin")
        self.until_publishing()

    def arm(self, step: str, action: str) -> None:
        """Makes the next process that takes `step` for this connector do `action`, once."""
        self.control.arm(step, action)

    def meet(self, step: str, action: str) -> WorkerProcess:
        """Arms the failpoint `step` in the current worker and waits until a process reaches it."""
        worker = self.running()
        self.arm(step, action)
        worker.until_met(step)
        return worker

    def violations(self) -> list[str]:
        """Pauses the load until all acknowledged records are published; returns every violation."""
        self.load.pause()
        try:
            self.until(self.deployment.caught_up, "everything acknowledged is published", RECOVERY_S)
            return checks.violations(observe(self.deployment, self.load))
        finally:
            self.load.resume()

    def clear(self) -> None:
        """Disarms all failpoints and kills the current worker."""
        self.control.disarm()
        if self.worker is not None and self.worker.alive:
            self.worker.signal_all(signal.SIGKILL)
            self.worker.wait()
        self.worker = None
