"""Shows how far Spark is with a long job: the tasks of the stages that are running."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from connectors.clock import Clock
from connectors.progress.observer import Observer
from connectors.threads import CancellableThread

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

# Between two questions to Spark: what a person watches moves twice a second.
POLL_MS: Final = 500


@contextmanager
def task_progress(spark: SparkSession, observer: Observer, name: str, clock: Clock) -> Iterator[Callable[[str], None]]:
    """Reports the tasks of `spark`, which has no other user, to `observer` as progress of `name` while the block runs.

    Yields a function that names the stage of the tasks that follow.
    """
    stage = ["reading"]

    def begin(what: str) -> None:
        stage[0] = what
        observer.stage(name, what)

    def poll(stop: threading.Event) -> None:
        tracker = spark.sparkContext.statusTracker()
        while not clock.wait_ms(POLL_MS, stop):
            done, total = tasks(tracker)
            if total:
                observer.progress(name, stage[0], done, total, "tasks")

    poller = CancellableThread("spark-progress", poll)
    poller.start()
    try:
        yield begin
    finally:
        poller.stop()
        poller.join()


def tasks(tracker: StatusTracker) -> tuple[int, int]:
    """Returns (done, all) tasks of the stages that are running."""
    running = [info for stage_id in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage_id))]
    return sum(stage.numCompletedTasks for stage in running), sum(stage.numTasks for stage in running)
