"""A real worker process that failpoints are armed in while it runs, and that is killed, stopped or frozen there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import psutil

from tests.faults.worker_main import CLOCK, VACUUM_EVERY_MS, VACUUM_GRACE_MS
from tests.support.deployment import ROOT, Deployment, Process
from tests.support.kafka import wait_until

TIMEOUT_S: Final = 120.0
INJECT: Final = Path(__file__).parent / "inject"
GRACE_S: Final = 10.0
"""task.shutdown.graceful.timeout.ms, as it is by default."""
MARGIN_S: Final = 8.0
"""What a stop may take beyond it here: Spark's own end, on a busy machine."""


class Control:
    """The folder through which failpoints are armed and the clock is moved in processes that run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = folder / "clock"
        for name in ("armed", "met"):
            (folder / name).mkdir(parents=True)

    def arm(self, step: str, action: str) -> None:
        """The next process that comes to `step` does `action`, once."""
        (self.folder / "met" / step).unlink(missing_ok=True)
        waiting = self.folder / step
        waiting.write_text(action, encoding="utf-8")
        waiting.rename(self.folder / "armed" / step)

    def met(self, step: str) -> bool:
        """Whether a process has come to `step` since it was armed."""
        return (self.folder / "met" / step).exists()

    def disarm(self) -> None:
        """Nothing is armed any more."""
        for path in (self.folder / "armed").iterdir():
            path.unlink(missing_ok=True)

    def move_clock(self, ms: int) -> None:
        """Workers that are started with `clock` see the time `ms` later than it is, or earlier."""
        waiting = self.clock.with_suffix(".new")
        waiting.write_text(str(ms), encoding="utf-8")
        waiting.rename(self.clock)


class WorkerProcess(Process):
    """`keyfold run` of a place's connector, with armed failpoints, in a process group of its own."""

    def __init__(
        self, deployment: Deployment, control: Control, number: int, *args: str, vacuum_ms: tuple[int, int]
    ) -> None:
        connector, worker = deployment.write()
        self._control = control
        self.log = deployment.folder / f"worker-{number}.log"
        self._file = self.log.open("ab")
        every, grace = vacuum_ms
        environment = {
            "PYTHONPATH": os.pathsep.join((str(INJECT), str(ROOT))),
            "FAULT_STEPS": str(control.folder),
            CLOCK: str(control.clock),
            VACUUM_EVERY_MS: str(every),
            VACUUM_GRACE_MS: str(grace),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.worker_main", "run", str(connector), "--worker", str(worker), *args],
            stdout=self._file,
            stderr=self._file,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
            start_new_session=True,
            cwd=deployment.folder,
        )

    @property
    def alive(self) -> bool:
        """Whether the command still runs."""
        return self.process.poll() is None

    def until_met(self, step: str, timeout_s: float = TIMEOUT_S) -> None:
        """Waits until a process of this worker is at the armed `step`."""
        try:
            wait_until(lambda: self._control.met(step) or not self.alive, f"the worker is at {step}", timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.tail()}") from None
        assert self._control.met(step), f"ended before it was at {step}:\n{self.tail()}"

    def kill(self) -> None:
        """SIGKILL to the command and to all that it started."""
        self.signal_all(signal.SIGKILL)
        self.wait(TIMEOUT_S)

    def terminate(self) -> tuple[int, float]:
        """SIGTERM to the command alone, as an orchestrator does: its exit code, and the seconds that it took."""
        began = time.monotonic()
        self.send(signal.SIGTERM)
        code = self.wait(TIMEOUT_S)
        return code, time.monotonic() - began

    def processes(self, part: str) -> list[psutil.Process]:
        """Its processes whose command line has `part` in it, the oldest first."""
        found = psutil.Process(self.process.pid).children(recursive=True)
        return sorted((one for one in found if _is(one, part)), key=lambda one: one.create_time())


def _is(process: psutil.Process, part: str) -> bool:
    try:
        return part in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False
