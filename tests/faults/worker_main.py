"""The command that a fault case starts: `keyfold` with an early vacuum and a clock that a test can move.

The interval of the vacuum is no setting, and a test cannot wait ten minutes.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Final

from connectors import clock
from connectors.cli import main
from connectors.runtime import connector_task
from connectors.runtime import maintenance_thread as background

VACUUM_EVERY_MS: Final = "FAULT_VACUUM_EVERY_MS"
VACUUM_GRACE_MS: Final = "FAULT_VACUUM_GRACE_MS"
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
    if CLOCK in os.environ:
        _wrong_clock(Path(os.environ[CLOCK]))
    sys.exit(main.main())
