"""A worker process in which failpoints are armed while it runs, and which is killed, stopped or frozen there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.faults.worker_main import CLOCK
from tests.support.deployment import ROOT, Deployment, Process
from tests.support.kafka import wait_until

TIMEOUT_S: Final = 120.0
INJECT: Final = Path(__file__).parent / "inject"
GRACE_S: Final = 10.0
"""Default of task.shutdown.graceful.timeout.ms, in seconds."""
MARGIN_S: Final = 8.0
"""Seconds that Spark's own stop may take longer, on a busy machine."""


class Control:
    """Arms failpoints and moves the clock of running processes, by files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = folder / "clock"
        for name in ("armed", "met"):
            (folder / name).mkdir(parents=True)

    def arm(self, step: str, action: str) -> None:
        """Makes the next process that reaches `step` do `action`, once."""
        (self.folder / "met" / step).unlink(missing_ok=True)
        waiting = self.folder / step
        waiting.write_text(action, encoding="utf-8")
        waiting.rename(self.folder / "armed" / step)

    def met(self, step: str) -> bool:
        """Whether a process has reached `step` since it was armed."""
        return (self.folder / "met" / step).exists()

    def disarm(self) -> None:
        """Disarms all failpoints."""
        for path in (self.folder / "armed").iterdir():
            path.unlink(missing_ok=True)

    def move_clock(self, ms: int) -> None:
        """Moves the wall clock of the workers by `ms`, which may be negative."""
        waiting = self.clock.with_suffix(".new")
        waiting.write_text(str(ms), encoding="utf-8")
        waiting.rename(self.clock)


class WorkerProcess(Process):
    """`keyfold run` of a deployment with failpoints, or another `command`, in a process group of its own.

    `environment` is for `worker_main`.
    """

    def __init__(
        self,
        deployment: Deployment,
        control: Control,
        number: int,
        *args: str,
        environment: Mapping[str, str],
        command: str = "run",
    ) -> None:
        connector, worker = deployment.write()
        self._control = control
        self.log = deployment.folder / f"worker-{number}.log"
        self._file = self.log.open("ab")
        own = {
            "PYTHONPATH": os.pathsep.join((str(INJECT), str(ROOT))),
            "FAULT_STEPS": str(control.folder),
            CLOCK: str(control.clock),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.worker_main", command, str(connector), "--worker", str(worker), *args],
            stdout=self._file,
            stderr=self._file,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment, **own},
            start_new_session=True,
            cwd=deployment.folder,
        )

    @property
    def alive(self) -> bool:
        """Whether the command runs."""
        return self.process.poll() is None

    def until_met(self, step: str, timeout_s: float = TIMEOUT_S) -> None:
        """Waits until a process of this worker has reached the armed `step`."""
        try:
            wait_until(lambda: self._control.met(step) or not self.alive, f"the worker is at {step}", timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.tail()}") from None
        assert self._control.met(step), f"ended before it was at {step}:\n{self.tail()}"

    def kill(self) -> None:
        """Sends SIGKILL to the command and all its processes."""
        self.signal_all(signal.SIGKILL)
        self.wait(TIMEOUT_S)

    def terminate(self) -> tuple[int, float]:
        """Sends SIGTERM to the command, as an orchestrator does; returns the exit code and the seconds it took."""
        began = time.monotonic()
        self.send(signal.SIGTERM)
        code = self.wait(TIMEOUT_S)
        return code, time.monotonic() - began
