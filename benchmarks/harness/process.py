"""Runs a command and meters its whole process tree: seconds to a goal, processor time, memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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
"""Seconds between samples of PSS, which walk all pages of a process: too slow for every sample."""
_LONGEST_S: Final = 4 * 3_600.0
_END_S: Final = 60.0
STARTED: Final = "BENCH_STARTED"
"""Environment variable: a folder with a file for each process group that is running; the caller may have to end it."""


class Used(Struct, frozen=True):
    """Seconds to the goal; processor seconds and peak memory in bytes of the whole tree until then.

    Pages that processes share count once in `peak_pss`, and once for each process in `peak_rss`.
    """

    seconds: float
    cpu_seconds: float
    peak_rss: int
    peak_pss: int = 0


class Meter:
    """Samples a process tree in a thread. A process that has ended counts as last sampled."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._cpu: dict[int, float] = {}
        self.rss = self.peak_rss = self.peak_pss = 0
        self._peaks = (0, 0)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample_all, daemon=True)
        self._thread.start()

    @property
    def cpu_seconds(self) -> float:
        """Processor seconds of all processes seen so far."""
        return sum(self._cpu.values())

    def take_peaks(self) -> tuple[int, int]:
        """Returns peak RSS and PSS in bytes since the last call; `peak_rss` and `peak_pss` stay."""
        found, self._peaks = self._peaks, (0, 0)
        return found

    def stop(self) -> None:
        """Ends sampling."""
        self._stopped.set()
        self._thread.join()

    def _sample_all(self) -> None:
        due = time.monotonic()
        while not self._stopped.wait(_SAMPLE_S):
            try:
                tree = [self._root, *self._root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            self.rss = sum(self._sample(one) for one in tree)
            pss = 0
            if time.monotonic() >= due:
                pss = sum(_pss(one) for one in tree)
                due = time.monotonic() + _PSS_S
            self.peak_rss, self.peak_pss = max(self.peak_rss, self.rss), max(self.peak_pss, pss)
            self._peaks = (max(self._peaks[0], self.rss), max(self._peaks[1], pss))

    def _sample(self, process: psutil.Process) -> int:
        try:
            times = process.cpu_times()
            self._cpu[process.pid] = times.user + times.system
            return int(process.memory_info().rss)
        except psutil.NoSuchProcess:
            return 0


class Running:
    """A command that runs in a process group of its own, with its output in `log`. Made by `running`."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        self._began = time.monotonic()
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, cwd=ROOT, start_new_session=True
            )
        self._note = note_started(self.process.pid)
        self.meter = Meter(self.process.pid)

    def until(self, condition: Callable[[], bool], longest_s: float = _LONGEST_S) -> float:
        """Waits for `condition`; returns the seconds since the start.

        Raises:
            RuntimeError: the command ended before that, or `longest_s` are over since its start; has the end of
                the log.
        """
        while not condition():
            if self.process.poll() is not None:
                raise RuntimeError(f"ended with {self.process.poll()} before its goal:\n{_tail(self._log)}")
            if time.monotonic() - self._began > longest_s:
                raise RuntimeError(f"its goal is not reached {longest_s:g} s after the start:\n{_tail(self._log)}")
            time.sleep(_POLL_S)
        return time.monotonic() - self._began

    def used(self, condition: Callable[[], bool]) -> Used:
        """Waits for `condition`; returns what was used until then."""
        seconds = self.until(condition)
        return Used(seconds, self.meter.cpu_seconds, self.meter.peak_rss, self.meter.peak_pss)

    def wait(self) -> float:
        """Waits until the command ends; returns the seconds since the start.

        Raises:
            RuntimeError: its exit code is not 0.
        """
        seconds = self.until(lambda: self.process.poll() is not None)
        if self.process.returncode != 0:
            raise RuntimeError(f"ended with {self.process.returncode}:\n{_tail(self._log)}")
        return seconds

    def end(self) -> None:
        """Ends the whole process group."""
        self.meter.stop()
        _end(self.process)
        if self._note is not None:
            self._note.unlink()


def exit_on_sigterm() -> None:
    """Has SIGTERM end this process as Ctrl-C does, so that what it has started is ended too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[Running]:
    """Runs `command` during the block, then ends its whole process group."""
    started = Running(command, log)
    try:
        yield started
    finally:
        started.end()


def note_started(pid: int) -> Path | None:
    """Notes for the caller of this process that group `pid` runs; returns the file to remove at the end, if any."""
    folder = os.environ.get(STARTED)
    if folder is None:
        return None
    file = Path(folder, str(pid))
    file.touch()
    return file


def _end(process: subprocess.Popen[bytes]) -> None:
    """Sends SIGTERM to the group, and SIGKILL after a minute."""
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
