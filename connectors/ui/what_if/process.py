"""Runs a counting process, watches it, and ends it: at the latest with `stop`, whatever it does."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from compactor.errors import KeyfoldError
from connectors.config.secrets import logged_text
from connectors.ui.what_if import messages
from connectors.ui.what_if.counting_process import sent
from connectors.ui.what_if.messages import CountedAnswer, CountingRefusal, CountingStep, Message, Question

MOST_MEMORY: Final = 1 << 30
"""Bytes of memory that a process may take: counting takes 0.7 GB at most, unless single records are very large."""
COMMAND: Final = (sys.executable, "-P", "-m", "connectors.ui.what_if.counting_process")
_LOOK_S: Final = 0.2
_READ: Final = 1 << 16
_MOST_SAID: Final = 4_000
"""Bytes that are kept of what a process has said last on stderr: a traceback, or the words of a library."""
_ELSEWHERE: Final = "keyfold analyze says it on the command line, and counts on Spark."

_log = structlog.get_logger()


class EndedError(KeyfoldError):
    """A counting process was ended, or was not begun, as its answer is not wanted any more."""


Watch = Callable[[], str | None]
"""Returns why the process is to end now, None if it may go on."""


class DefectError(Exception):
    """Has the traceback of a counting process as its text."""


def count_in_process(
    question: Question,
    report: Callable[[CountingStep], object],
    watch: Watch,
    command: Sequence[str] = COMMAND,
    most_memory: int = MOST_MEMORY,
) -> bytes:
    """Has a process count, and returns the report as JSON; `report` is called with each step.

    Raises EndedError if `watch` gives a reason, for which the process is ended; KeyfoldError for what it refuses, if it
    takes too much, cannot be started or has ended by itself; DefectError.
    """
    process = _started(command)
    try:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, which is said below
            process.stdin.write(sent(question))
        return _answer(process, question.connector.name, report, watch, most_memory)
    finally:
        _end(process)


def _started(command: Sequence[str]) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True)
    except OSError as error:
        said = f"The counting process could not be started: {error}."
        raise KeyfoldError(said, "Give the worker's machine or container more memory or processes.") from error


class _Output:
    """What a process writes: lines on stdout, and the end of stderr; neither pipe gets full, as both are read."""

    def __init__(self, process: subprocess.Popen[bytes], selector: selectors.BaseSelector) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._stdout, self._stderr = process.stdout.fileno(), process.stderr.fileno()
        self._selector = selector
        for each in (self._stdout, self._stderr):
            selector.register(each, selectors.EVENT_READ)
            os.set_blocking(each, False)
        self.pending = b""
        self.said = b""
        self.is_over = False

    def lines(self) -> list[bytes]:
        """Waits a little, and returns the lines that have come."""
        ready = {key.fd for key, _ in self._selector.select(_LOOK_S)}
        if self._stderr in ready and not self._read_said():
            self._selector.unregister(self._stderr)
        if self._stdout not in ready:
            return []
        data = os.read(self._stdout, _READ)
        self.is_over = not data
        *lines, self.pending = (self.pending + data).split(b"\n")
        return lines

    def last_said(self) -> str:
        """Returns the end of stderr, once the process has ended."""
        with suppress(BlockingIOError):  # a process of its own has the pipe still
            while self._read_said():
                pass
        return logged_text(self.said.decode(errors="replace"))

    def _read_said(self) -> bool:
        data = os.read(self._stderr, _READ)
        self.said = (self.said + data)[-_MOST_SAID:]
        return bool(data)


def _answer(
    process: subprocess.Popen[bytes],
    connector: str,
    report: Callable[[CountingStep], object],
    watch: Watch,
    most_memory: int,
) -> bytes:
    with selectors.DefaultSelector() as selector:
        output = _Output(process, selector)
        while not output.is_over:
            if reason := watch():
                raise EndedError(reason)
            _check_size(process.pid, len(output.pending), most_memory)
            for line in output.lines():
                message = messages.message_of(line)
                if not isinstance(message, CountingStep):
                    return _given(message)
                report(message)
        code = _code(process)
        _log.error("counting process ended by itself", connector=connector, ended=code, stderr=output.last_said())
    raise KeyfoldError(f"The counting process has ended by itself ({code}).", "The worker's log says more; ask again.")


def _given(message: Message) -> bytes:
    """Returns the report of an answer. Raises KeyfoldError for a refusal, DefectError."""
    if isinstance(message, CountedAnswer):
        return bytes(message.report)
    assert isinstance(message, CountingRefusal)
    if message.is_defect:
        raise DefectError(message.said)
    raise KeyfoldError(message.said)


def _check_size(pid: int, answer: int, most_memory: int) -> None:
    """Raises KeyfoldError if the answer, or what its process takes of memory, is too large."""
    if answer > messages.MOST_BYTES:
        raise KeyfoldError("There are too many partitions for a page.", _ELSEWHERE)
    if memory_of(pid) > most_memory:
        raise KeyfoldError(f"Counting took more than {most_memory >> 20} MiB of memory.", _ELSEWHERE)


def memory_of(pid: int) -> int:
    """Returns the bytes of memory that a process has; 0 if it is gone, or the system does not say it."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _code(process: subprocess.Popen[bytes]) -> str:
    code = process.wait()
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
