"""Forces a fold method on a few records, by small limits of the tasks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final
from unittest import mock

from compactor.clean import foldjob, foldtasks
from compactor.clean.rewriteplan import RewritePlan
from compactor.fold.memory_budget import MemoryBudget, OffsetMapBudget
from compactor.publish import publishjob, publishtasks
from tests.support import local_spark
from tests.support.oracle.steps import FoldMethod

NOTHING: Final = MemoryBudget(0, 0)
ONE_KEY_EACH: Final = OffsetMapBudget(2, 1 << 20, classes=256)
"""Two tasks hold one key each; keys that differ and fall into one class are folded by Spark."""


def _left(_spark: object, _storage: object, what: RewritePlan) -> tuple[None, ...]:
    """Returns what `foldtasks.rewrite` does if no task has memory for anything."""
    return (None,) * len(what.slices)


LIMITS: Final = {
    FoldMethod.MEMORY: (),
    FoldMethod.PASSES: ((publishtasks, "TASKS", NOTHING),),
    FoldMethod.CLASSES: (
        (publishtasks, "TASKS", NOTHING),
        (publishtasks, "KEYS", ONE_KEY_EACH),
        (foldtasks, "KEYS", ONE_KEY_EACH),
    ),
    FoldMethod.SPARK: ((publishtasks, "READ", NOTHING), (foldtasks, "rewrite", _left)),
}


def _end(_code: int) -> None:
    raise RuntimeError("Python worker exited unexpectedly (crashed)")


@contextmanager
def forced(fold_method: FoldMethod, *, local: bool) -> Iterator[None]:
    """Makes folds in the block use this method; with `local` without Spark."""
    with ExitStack() as stack:
        for module, name, limit in LIMITS[fold_method]:
            stack.enter_context(mock.patch.object(module, name, limit))
        if local:
            stack.enter_context(mock.patch.object(foldjob, "rewrite", local_spark.rewrite))
            stack.enter_context(mock.patch.object(publishjob, "send", local_spark.send))
            stack.enter_context(mock.patch.object(os, "_exit", _end))
        yield
