"""One program as a whole process tree: how long it takes to a goal, and what it used."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
from msgspec import Struct

ROOT: Final = Path(__file__).parents[2]
_POLL_S: Final = 0.02
_SAMPLE_S: Final = 0.25
_PSS_S: Final = 2.0
"""Asking for shared pages walks through all of a process's memory, which is too dear to do at each look."""
_LONGEST_S: Final = 4 * 3_600.0
_END_S: Final = 60.0
STARTED: Final = "BENCH_STARTED"
"""Names a folder with a file for each process group that was started and not ended yet: somebody else may have to."""


class Used(Struct, frozen=True):
    """Seconds to the goal; processor seconds and most memory (bytes) of the whole tree until then.

    Pages that several processes share count once in `peak_pss`, in `peak_rss` for each of them.
    """

    seconds: float
    cpu_seconds: float
    peak_rss: int
    peak_pss: int = 0


class Meter:
    """Watches a process tree from a thread of its own. Processes that end are counted as they were last seen."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._cpu: dict[int, float] = {}
        self.rss = self.peak_rss = self.peak_pss = 0
        self._since = (0, 0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def cpu_seconds(self) -> float:
        """Of all processes seen."""
        return sum(self._cpu.values())

    def since(self) -> tuple[int, int]:
        """The most memory since this was last asked, as RSS and as PSS; the whole time's peaks stay."""
        found, self._since = self._since, (0, 0)
        return found

    def stop(self) -> None:
        """Looks no more."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        due = time.monotonic()
        while not self._over.wait(_SAMPLE_S):
            try:
                tree = [self._root, *self._root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            self.rss = sum(self._look(one) for one in tree)
            pss = 0
            if time.monotonic() >= due:
                pss = sum(_pss(one) for one in tree)
                due = time.monotonic() + _PSS_S
            self.peak_rss, self.peak_pss = max(self.peak_rss, self.rss), max(self.peak_pss, pss)
            self._since = (max(self._since[0], self.rss), max(self._since[1], pss))

    def _look(self, process: psutil.Process) -> int:
        try:
            times = process.cpu_times()
            self._cpu[process.pid] = times.user + times.system
            return int(process.memory_info().rss)
        except psutil.NoSuchProcess:
            return 0


class Running:
    """A command in a process group of its own, from its start on; its output goes to `log`. Made by `running`."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        self._began = time.monotonic()
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, cwd=ROOT, start_new_session=True
            )
        self._started = noted(self.process.pid)
        self.meter = Meter(self.process.pid)

    def until(self, condition: Callable[[], bool]) -> float:
        """Waits for `condition`; the seconds since its start.

        Raises RuntimeError, with the end of the log, where it ends by itself before that, or after four hours.
        """
        while not condition():
            if self.process.poll() is not None or time.monotonic() - self._began > _LONGEST_S:
                raise RuntimeError(f"ended with {self.process.poll()} before its goal:\n{_tail(self._log)}")
            time.sleep(_POLL_S)
        return time.monotonic() - self._began

    def used(self, condition: Callable[[], bool]) -> Used:
        """What it took until `condition`."""
        seconds = self.until(condition)
        return Used(seconds, self.meter.cpu_seconds, self.meter.peak_rss, self.meter.peak_pss)

    def ended(self) -> float:
        """Waits until it ends by itself; the seconds since its start. Raises RuntimeError where it says it failed."""
        seconds = self.until(lambda: self.process.poll() is not None)
        if self.process.returncode != 0:
            raise RuntimeError(f"ended with {self.process.returncode}:\n{_tail(self._log)}")
        return seconds

    def end(self) -> None:
        """Ends its whole group."""
        self.meter.stop()
        _end(self.process)
        if self._started is not None:
            self._started.unlink()


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[Running]:
    """Runs `command` for as long as the block does, then ends its whole group."""
    started = Running(command, log)
    try:
        yield started
    finally:
        started.end()


def noted(pid: int) -> Path | None:
    """The file, to be removed at its end, that says to whoever called this process that group `pid` was started."""
    folder = os.environ.get(STARTED)
    if folder is None:
        return None
    file = Path(folder, str(pid))
    file.touch()
    return file


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the group, and SIGKILL for what is left of it after a minute."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(_END_S)
            break
        except subprocess.TimeoutExpired:
            continue
    process.wait(_END_S)


def _pss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])
