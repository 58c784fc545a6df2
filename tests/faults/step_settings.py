"""Which process reaches each step of docs/protocol.md, and the settings with which it does so soon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from compactor.failpoints import STEPS
from tests.faults.scenario import BUSY, CALM, RETAINING, REWRITING_TASKS, TASKS

AT_START: Final = tuple(step for step in STEPS if step.startswith("takeover."))
"""Steps of a take-over, which a starting connector reaches."""

IN_A_CHANGE: Final = tuple(step for step in STEPS if step.startswith("generation."))
"""Steps of a change of offsets, for which an operator has to ask."""

IN_TASKS: Final = frozenset(
    {
        "source.read",
        "ingest.write",
        "ingest.index",
        "publish.fence",
        "publish.position",
        "publish.begin",
        "publish.unchanged",
        "publish.late",
        "publish.sent",
        "publish.offsets",
        "publish.committed",
        "merge.write",
        "merge.index",
        "clean.write",
        "clean.index",
        "snapshot.file",
    }
)
"""Steps that Spark's Python processes reach if its tasks read and publish; the driver reaches all others."""

ELSEWHERE: Final = (
    *("delete.", "erase.", "rebuild.", "redrive.", "restore."),
    *("publish.retired", "ingest.admit", "ingest.wait", "ingest.fill", "catalog.replace", "snapshot.section", "table."),
    "generation.carry",
)
"""Prefixes of steps that a worker does not take by the settings of most cases: those of `keyfold rebuild` and of a file
of another catalog (test_rebuild.py), of `keyfold delete`, `erase`, `dlq` and `restore`, of keys with an identity, of
records that come late, of values that are filled, of typed snapshots and tables, and of truncates (e2e/test_delete.py,
e2e/test_erase.py, e2e/test_dlq.py, kafka/test_restore.py, e2e/test_key_identity.py, test_order.py, test_scope.py,
spark/test_typed_snapshot.py, unit/connectors/tables/test_with_snapshots.py, e2e/test_truncate.py)."""

IN_A_REBUILD: Final = tuple(step for step in STEPS if step.startswith("rebuild."))
"""Steps of `keyfold rebuild`."""

ALL: Final = tuple(step for step in STEPS if not step.startswith(ELSEWHERE))
"""Steps that a worker takes."""


BEHIND: Final = ("merge.", "clean.", "snapshot.", "vacuum.")
"""Prefixes of the steps of the maintenance thread."""


SCOPED: Final[Mapping[str, Any]] = {"compaction.scope": "topic"}
ONE_WINNER: Final[Mapping[str, Any]] = {**CALM, **SCOPED}
ONE_WINNER_BUSY: Final[Mapping[str, Any]] = {**BUSY, **SCOPED}
FILLED: Final[Mapping[str, Any]] = {
    **ONE_WINNER,
    "compaction.fill": "unavailable",
    "value.converter": "keyfold.Json",
    "value.converter.schemas.enable": "false",
}
"""The same with fields that are filled over the topic."""
LAGGING: Final[Mapping[str, Any]] = {**CALM, "min.compaction.lag.ms": 1_000}
"""What is appended waits for a fold: without a lag the same commit plans one."""


def settings(step: str, *, tasks: bool = False) -> Mapping[str, Any]:
    """Returns settings with which `step` is reached; with `tasks`, Spark's tasks read, publish and rewrite."""
    if step.endswith(".index"):
        return {**settings(step.replace(".index", ".write"), tasks=tasks), "state.index": "always"}
    if step == "ingest.look-up":
        return {**settings("ingest.before-commit", tasks=tasks), "compaction.order": "timestamp"}
    if step == "publish.late":
        return {**settings("publish.sent", tasks=tasks), **SCOPED}
    if step == "publish.unchanged":
        return {**settings("publish.sent", tasks=tasks), "publish.unchanged": "skip"}
    if tasks and step.startswith(("publish.", "source.", "ingest.")):
        return TASKS
    if tasks and step.startswith(("merge.", "clean.")):
        return REWRITING_TASKS
    if step.startswith("retain."):
        return RETAINING
    return BUSY if step.startswith(BEHIND) else CALM
