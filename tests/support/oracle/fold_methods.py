"""Forces a fold method on a few records, by small limits of the tasks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final
from unittest import mock

from msgspec.structs import replace

from compactor.clean import rewriter
from compactor.clean.rewriter import BUDGET
from compactor.fold.memory_budget import MemoryBudget, OffsetMapBudget
from compactor.fold.on_spark import OnSpark
from compactor.publish import executors, retired
from tests.support import local_spark
from tests.support.java_errors import worker_ended
from tests.support.oracle.steps import FoldMethod

NOTHING: Final = MemoryBudget(0, 0)
ONE_KEY_EACH: Final = OffsetMapBudget(2, 1 << 20, hash_partitions=256)
"""Two tasks hold one key each; keys that differ and fall into one hash partition are folded by Spark."""

LIMITS: Final = {
    FoldMethod.MEMORY: ((retired, "READ_ALL", 0),),
    FoldMethod.PASSES: ((executors, "TASKS", NOTHING),),
    FoldMethod.SPILLED: (
        (executors, "TASKS", NOTHING),
        (executors, "KEYS", ONE_KEY_EACH),
        (rewriter, "BUDGET", replace(BUDGET, keys=ONE_KEY_EACH)),
    ),
    FoldMethod.SPARK: ((executors, "READ", NOTHING), (rewriter, "BUDGET", replace(BUDGET, read=NOTHING))),
}
"""The limits that are set. With MEMORY, other encodings of keys are read by their offsets, however small a file is."""


def _end(_code: int) -> None:
    raise worker_ended()


@contextmanager
def forced(fold_method: FoldMethod, *, local: bool) -> Iterator[None]:
    """Makes folds in the block use this method; with `local` without Spark."""
    with ExitStack() as stack:
        for module, name, limit in LIMITS[fold_method]:
            stack.enter_context(mock.patch.object(module, name, limit))
        if local:
            stack.enter_context(mock.patch.object(OnSpark, "run", local_spark.run))
            stack.enter_context(mock.patch.object(os, "_exit", _end))
        yield
