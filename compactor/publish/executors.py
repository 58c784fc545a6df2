"""Steps 6 to 11, where they cost least: here for a few records, in a task a bucket, or with Spark's fold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from compactor.fold import in_memory, memory_budget
from compactor.model.publish_plan import PublishPlan, PublishResult
from compactor.model.state import State
from compactor.ports import Broker
from compactor.publish import publishjob, publishlocal, publishtasks
from compactor.publish.plan import Due, due_of
from compactor.settings import EngineSettings
from compactor.spark.taskfallback import TaskFallback

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from compactor.storage.base import Storage


class Sending:
    """Carries plans out, in one of three ways; `way` names the one that was taken last, for the log."""

    def __init__(self, spark: SparkSession, storage: Storage, broker: Broker, stopping: Callable[[], bool]) -> None:
        self._spark = spark
        self._storage = storage
        self._broker = broker
        self._stopping = stopping
        self.way = ""
        self._fallback = TaskFallback("publishing", stopping)

    def send(self, state: State, plans: Sequence[PublishPlan], settings: EngineSettings) -> tuple[PublishResult, ...]:
        """What was sent for all of `plans`. Raises what the publisher raises, FoldError where an answer is missing."""
        due = due_of(state, plans)
        slices = [one.slice for one in due]
        if memory_budget.local(settings.publish_local_records).holds(slices):
            files = in_memory.load(self._storage, slices)
            if files is not None:
                self.way = "local"
                local = self._broker.local_publisher(state, self._stopping)
                return publishlocal.send(files, due, plans, local)
            return self._folded_by_spark(state, due, plans)  # what is damaged in a file only Spark reads around
        if not self._fallback.tasks:
            return self._folded_by_spark(state, due, plans)
        self.way = "tasks"
        sent, left = publishtasks.send(self._spark, self._storage, due, plans, self._broker.publisher(state))
        return (*sent, *self._folded_by_spark(state, due, left)) if left else sent

    def gives_up_tasks(self, error: Exception) -> bool:
        """Whether `error` was the end of a task's process: from now on Spark folds (`TaskFallback`). True once."""
        return self._fallback.give_up(error)

    def _folded_by_spark(
        self, state: State, due: Sequence[Due], plans: Sequence[PublishPlan]
    ) -> tuple[PublishResult, ...]:
        """What of `due` belongs to `plans`."""
        self.way = "spark"
        buckets = {plan.bucket for plan in plans}
        own = [one for one in due if one.bucket in buckets]
        publisher = self._broker.publisher(state)
        return publishjob.send(self._spark, self._storage, own, plans, state.buckets, publisher)
