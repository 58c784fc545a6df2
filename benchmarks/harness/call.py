"""Calls a function in a process of its own.

librdkafka can crash its process. The process that measures for hours does not use it: each measurement is a child
process (`benchmarks.harness.child`), and one that is ended by a signal is tried once more.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from msgspec import Struct

from benchmarks.harness.process import ROOT, STARTED, note_started

PROCESS_KILLED: Final = 70
"""Exit code of a child one of whose own processes was ended by a signal; counts as if the child had been."""
_FOLDER: Final = "started"
_LONGEST_S: Final = 4 * 3_600.0

killed: Final[list[str]] = []
"""A line for each process that was ended by a signal, in this process or a child of it; `call` appends."""

P = ParamSpec("P")
T = TypeVar("T")


class Answer(Struct):
    """How a call ended: with `value`, with `error` (a peer cannot run here), or with another error's `trace`."""

    value: Any = None
    error: Exception | None = None
    trace: str | None = None
    killed: list[str] = []


def call(what: str, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Returns what `function`, one of a module's, returns in a child process; then ends all that this has started.

    Raises:
        MissingError: the function raised it.
        RuntimeError: the function raised anything else, or the child was ended by a signal twice.
    """
    for _ in range(2):
        code, answer = _run_child((function, arguments, named))
        if answer is not None:
            return _value(answer, what)
        killed.append(f"{what}: its process ended with {code}")
        print(f"  {killed[-1]}", flush=True)
    raise RuntimeError(f"{what}: its process was ended by a signal twice")


def _value(answer: Answer, what: str) -> Any:
    killed.extend(answer.killed)
    if answer.error is not None:
        raise answer.error
    if answer.trace is not None:
        raise RuntimeError(f"{what}:\n{answer.trace}")
    return answer.value


def _run_child(called: tuple[object, ...]) -> tuple[int, Answer | None]:
    """Returns the child's exit code, and its answer unless a signal ended it. Removes all of its temporary files."""
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as temporary:
        scratch, started = Path(temporary), Path(temporary, _FOLDER)
        started.mkdir()
        (scratch / "call").write_bytes(pickle.dumps(called))
        files = [str(scratch / "call"), str(scratch / "answer")]
        child = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "benchmarks.harness.child", *files],
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": temporary, STARTED: str(started)},
            start_new_session=True,
        )
        note = note_started(child.pid)
        try:
            code = child.wait(_LONGEST_S)
        except subprocess.TimeoutExpired:
            return 0, Answer(trace=f"it was not done after {_LONGEST_S:.0f} s")
        finally:
            _end(child, scratch)
            if note is not None:
                note.unlink()
        if code < 0 or code == PROCESS_KILLED:
            return code, None
        if code != 0:
            return code, Answer(trace=f"its process ended with {code}")
        return code, pickle.loads((scratch / "answer").read_bytes())


def _end(child: subprocess.Popen[bytes], scratch: Path) -> None:
    """Kills the child's process group and every group that the child, or a child of its own, noted as started."""
    groups = [child.pid, *(int(file.name) for file in scratch.rglob(f"{_FOLDER}/*"))]
    for group in groups:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    child.wait()
