"""Python imports this at its start where this folder is on its path: it arms failpoints while processes run.

A file `armed/<step>` in the folder that FAULT_STEPS names holds an action (`kill`, `error`, `sleep:MS`). The first of
all processes (driver, planner, Spark's Python workers) that comes to that step moves the file to `met/` and does the
action: once, and nothing of the product has to know. `ACTION@CONNECTOR` waits for a step of that connector.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "FAULT_STEPS"


def _arm(folder: str) -> None:
    from compactor import failpoints

    by_environment = failpoints.hit

    def hit(name: str) -> None:
        by_environment(name)
        try:
            action, _, connector = Path(folder, "armed", name).read_text(encoding="utf-8").partition("@")
            if connector and not _concerns(connector):
                return
            Path(folder, "armed", name).rename(Path(folder, "met", name))
        except FileNotFoundError:  # nothing is armed here, or another process was first
            return
        failpoints.act(name, action)

    failpoints.hit = hit


def _concerns(connector: str) -> bool:
    from tests.faults.inject.concerned import concerns  # what it needs is slow to import, and seldom needed

    return concerns(connector)


if os.environ.get(VARIABLE):
    _arm(os.environ[VARIABLE])
if os.environ.get("FAULT_READ_AT_ONCE"):
    from tests.faults.inject import reads  # after `_arm`: what reads takes `hit` over by its name

    reads.install(int(os.environ[reads.AT_ONCE]))
