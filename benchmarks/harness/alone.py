"""A call in a process of its own.

librdkafka can take its process along. Whoever measures for hours keeps away from it: each measurement is a process,
and one that dies by a signal is tried once more.
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

from benchmarks.harness.process import ROOT, STARTED, noted

BROKEN: Final = 70
"""How a process ends one of whose own processes was ended by a signal: as if it had been itself."""
_FOLDER: Final = "started"
_LONGEST_S: Final = 4 * 3_600.0

deaths: Final[list[str]] = []
"""What was ended by a signal so far, in this process or in one that it called; `call` adds to it."""

P = ParamSpec("P")
T = TypeVar("T")


class Answer(Struct):
    """How a call ended: with `value`, with `error` (a peer that cannot run here), or with the text of another one."""

    value: Any = None
    error: Exception | None = None
    trouble: str | None = None
    deaths: list[str] = []


def call(what: str, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What `function`, one of a module, gives in a process of its own; whatever that leaves running is ended.

    Raises MissingError as it does, and RuntimeError for anything else, a second death by a signal included.
    """
    for _ in range(2):
        code, answer = _once((function, arguments, named))
        if answer is not None:
            return _told(answer, what)
        deaths.append(f"{what}: its process ended with {code}")
        print(f"  {deaths[-1]}", flush=True)
    raise RuntimeError(f"{what}: its process was ended by a signal twice")


def _told(answer: Answer, what: str) -> Any:
    deaths.extend(answer.deaths)
    if answer.error is not None:
        raise answer.error
    if answer.trouble is not None:
        raise RuntimeError(f"{what}:\n{answer.trouble}")
    return answer.value


def _once(called: tuple[object, ...]) -> tuple[int, Answer | None]:
    """The exit code and, unless that is a signal's, the answer. All temporary files are below one folder, and go."""
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as place:
        scratch, started = Path(place), Path(place, _FOLDER)
        started.mkdir()
        (scratch / "call").write_bytes(pickle.dumps(called))
        child = subprocess.Popen(
            [
                sys.executable,
                "-X",
                "faulthandler",
                "-m",
                "benchmarks.harness.one",
                str(scratch / "call"),
                str(scratch / "answer"),
            ],
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": place, STARTED: str(started)},
            start_new_session=True,
        )
        note = noted(child.pid)
        try:
            code = child.wait(_LONGEST_S)
        except subprocess.TimeoutExpired:
            return 0, Answer(trouble=f"it was not done after {_LONGEST_S:.0f} s")
        finally:
            _end(child, scratch)
            if note is not None:
                note.unlink()
        if code < 0 or code == BROKEN:
            return code, None
        if code != 0:
            return code, Answer(trouble=f"its process ended with {code}")
        return code, pickle.loads((scratch / "answer").read_bytes())


def _end(child: subprocess.Popen[bytes], scratch: Path) -> None:
    """Its group, and those that it, or a call of its own, has started and not ended."""
    groups = [child.pid, *(int(file.name) for file in scratch.rglob(f"{_FOLDER}/*"))]
    for group in groups:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    child.wait()
