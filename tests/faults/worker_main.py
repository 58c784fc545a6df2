"""The command that a fault case starts: `keyfold` with an early vacuum, low limits and a clock that a test can move.

The interval of the vacuum is no setting, and a test cannot wait ten minutes; nor are the limits from which on tasks
fold in two passes, and a test cannot send millions of records.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from msgspec.structs import replace

from connectors import clock
from connectors.cli import main
from connectors.runtime import connector_task
from connectors.runtime import maintenance_thread as background

VACUUM_EVERY_MS: Final = "FAULT_VACUUM_EVERY_MS"
VACUUM_GRACE_MS: Final = "FAULT_VACUUM_GRACE_MS"
TASK_RECORDS: Final = "FAULT_TASK_RECORDS"
"""Environment variable: how many records all publish tasks together fold in memory."""
TASK_KEYS: Final = "FAULT_TASK_KEYS"
"""Environment variable: how many keys all tasks together hold that fold in two passes."""
READ_HERE: Final = "FAULT_READ_HERE"
"""Environment variable: how many offsets of a micro-batch the worker reads itself at most."""
TRANSACTION_BYTES: Final = "FAULT_TRANSACTION_BYTES"
CLOCK: Final = "FAULT_CLOCK"
"""Environment variable: a file with the ms by which the wall clock is wrong, which may change at any time."""


def _vacuum_soon() -> None:
    every, grace = os.environ.get(VACUUM_EVERY_MS), os.environ.get(VACUUM_GRACE_MS)
    if every:
        _set(background, "VACUUM_EVERY_MS", every)
        _set(background, "FIRST_VACUUM_MS", every)
    if grace:
        _set(background, "VACUUM_GRACE_MS", grace)
        _set(connector_task, "VACUUM_GRACE_MS", grace)


def _limits() -> None:
    """Lowers limits, and has the folds noted that go beyond them. The imports take half a second."""
    from compactor.clean import rewriter
    from compactor.publish import executors
    from connectors.sinks import publisher
    from tests.faults.inject import ways

    keys, transaction_bytes = int(os.environ[TASK_KEYS]), int(os.environ[TRANSACTION_BYTES])
    _change(executors, "TASKS", lambda found: replace(found, records=int(os.environ[TASK_RECORDS])))
    _change(executors, "KEYS", lambda found: replace(found, keys=keys))
    _change(rewriter, "BUDGET", lambda found: replace(found, keys=replace(found.keys, keys=keys)))
    _change(publisher, "TransactionLimits", lambda found: partial(found, transaction_bytes=transaction_bytes))
    ways.install()


def _change(module: ModuleType, name: str, changed: Callable[[Any], object]) -> None:
    """Replaces what a module has under `name`; raises if it no longer has it."""
    setattr(module, name, changed(getattr(module, name)))


def _set(module: ModuleType, name: str, value: str) -> None:
    """Sets an int of a module; raises if the module no longer has it."""
    if not isinstance(getattr(module, name), int):
        raise TypeError(f"{module.__name__}.{name} is no number")
    setattr(module, name, int(value))


def _wrong_clock(file: Path) -> None:
    def now_ms(_: clock.SystemClock) -> int:
        wrong = file.read_text(encoding="utf-8") if file.exists() else "0"
        return time.time_ns() // 1_000_000 + int(wrong or "0")

    clock.SystemClock.now_ms = now_ms  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    _vacuum_soon()
    if TASK_RECORDS in os.environ:
        _limits()
    if READ_HERE in os.environ:
        from connectors.source import read_route

        _set(read_route, "DRIVER_READ_MAX", os.environ[READ_HERE])
    if CLOCK in os.environ:
        _wrong_clock(Path(os.environ[CLOCK]))
    sys.exit(main.main())
