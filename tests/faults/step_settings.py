"""Where each step of docs/protocol.md is hit, and with which settings a worker comes to it soon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from compactor.failpoints import STEPS
from tests.faults.scenario import BUSY, CALM, RETAINING, TASKS

AT_START: Final = tuple(step for step in STEPS if step.startswith("takeover."))
"""Steps of a take-over: met by a worker, or a life of a connector, that begins."""

IN_TASKS: Final = frozenset(
    {
        "source.plan",
        "source.read",
        "ingest.write",
        "publish.fence",
        "publish.position",
        "publish.begin",
        "publish.sent",
        "publish.offsets",
        "publish.committed",
        "merge.write",
        "clean.write",
    }
)
"""Steps that a Python process of Spark's comes to, where its tasks publish; all others are the driver's."""

ALL: Final = tuple(STEPS)


BEHIND: Final = ("merge.", "clean.", "snapshot.", "vacuum.")
"""How the names of the steps behind publishing begin."""


def settings(step: str, *, tasks: bool = False) -> Mapping[str, Any]:
    """The connector's settings under which `step` is come to; with `tasks`, publishing is left to Spark's."""
    if tasks and step.startswith("publish."):
        return TASKS
    if step.startswith("retain."):
        return RETAINING
    return BUSY if step.startswith(BEHIND) else CALM
