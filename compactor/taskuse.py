"""Whether tasks that hold what they fold in their memory are still made."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from compactor.brokenoff import of_its_process
from compactor.errors import KeyfoldError

_log = structlog.get_logger()


class TaskUse:
    """They are until a process of theirs has ended, perhaps for want of memory: from then on Spark folds, which spills.

    Once `stopping` says so, nothing is given up, as nothing is tried again. For one thread.
    """

    def __init__(self, of: str, stopping: Callable[[], bool]) -> None:
        self.holds = True
        self._of = of
        self._stopping = stopping

    def is_given_up(self, error: Exception) -> bool:
        """Whether `error` of a job ends it: true once, as the same would end the next process as well."""
        own = isinstance(error, KeyfoldError)  # a full disk of the store is no process's end
        if own or not self.holds or self._stopping() or not of_its_process(error):
            return False
        _log.warning("tasks given up for Spark's fold, as a process ended", of=self._of, error=str(error))
        self.holds = False
        return True
