"""Whether Spark tasks that fold by themselves are still used, or Spark's own fold instead."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from compactor.errors import KeyfoldError
from compactor.spark.briefly import briefly
from compactor.spark.brokenoff import of_its_process

_log = structlog.get_logger()


class TaskFallback:
    """Tasks are used until a process of theirs has ended, perhaps for want of memory: Spark's fold spills.

    `work` is what they do, for the log. Once `stopping` says so, nothing is given up, as nothing is tried again. For
    one thread.
    """

    def __init__(self, work: str, stopping: Callable[[], bool]) -> None:
        self._work = work
        self._stopping = stopping
        self._given_up = False

    @property
    def tasks(self) -> bool:
        """Whether tasks are used."""
        return not self._given_up

    def give_up(self, error: Exception) -> bool:
        """Gives tasks up if `error` of a job says that a process has ended: true once, as it would end the next too."""
        own = isinstance(error, KeyfoldError)  # a full disk of the store is no process's end
        if own or self._given_up or self._stopping() or not of_its_process(error):
            return False
        _log.warning(
            "tasks given up for Spark's fold, which is slower, until the next start",
            work=self._work,
            error=briefly(error),
            action="Where the system has ended the process for its memory (see its log), give the machine more.",
        )
        self._given_up = True
        return True
