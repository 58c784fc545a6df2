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

from compactor.errors import KeyfoldError
from connectors.ui.what_if import messages
from connectors.ui.what_if.counting_process import sent
from connectors.ui.what_if.messages import CountedAnswer, CountingRefusal, CountingStep, Message, Question

MOST_MEMORY: Final = 1 << 30
"""Bytes of memory that a process may take: counting takes 0.7 GB at most, unless single records are very large."""
COMMAND: Final = (sys.executable, "-P", "-m", "connectors.ui.what_if.counting_process")
_LOOK_S: Final = 0.2
_READ: Final = 1 << 16
_ELSEWHERE: Final = "keyfold analyze says it on the command line, and counts on Spark."


class EndedError(KeyfoldError):
    """A counting process was ended, or was not begun, as its answer is not wanted any more."""


Watch = Callable[[], str | None]
"""Returns why the process is to end now, None if it may go on."""


class DefectError(Exception):
    """Has the traceback of a counting process as its text."""


def counted(
    question: Question,
    report: Callable[[CountingStep], object],
    watch: Watch,
    command: Sequence[str] = COMMAND,
    most_memory: int = MOST_MEMORY,
) -> bytes:
    """Has a process count, and returns the report as JSON; `report` is called with each step.

    Raises EndedError if `watch` gives a reason, for which the process is ended; KeyfoldError for what it refuses, if it
    takes too much, or has ended by itself; DefectError.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,
    )
    try:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, which is said below
            process.stdin.write(sent(question))
        return _answer(process, report, watch, most_memory)
    finally:
        _end(process)


def _answer(
    process: subprocess.Popen[bytes], report: Callable[[CountingStep], object], watch: Watch, most_memory: int
) -> bytes:
    assert process.stdout is not None
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if reason := watch():
                raise EndedError(reason)
            _check_size(process.pid, len(pending), most_memory)
            if not selector.select(_LOOK_S):
                continue
            data = os.read(process.stdout.fileno(), _READ)
            if not data:
                raise KeyfoldError(f"The counting process has ended by itself ({_code(process)}).", "Ask again.")
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                message = messages.message_of(line)
                if not isinstance(message, CountingStep):
                    return _given(message)
                report(message)


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
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
