"""How far Spark is with a long job, for whoever watches: the tasks of the stages that are running."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from connectors.clock import Clock
from connectors.progress.observer import Observer

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

POLL_SECONDS: Final = 0.5


@contextmanager
def task_progress(spark: SparkSession, observer: Observer, name: str, clock: Clock) -> Iterator[Callable[[str], None]]:
    """While the block lasts `observer` hears of the tasks of `spark`, which nobody else uses, as progress of `name`.

    The block is given a function: it tells what the tasks that follow are for.
    """
    stop = threading.Event()
    stage = ["reading"]

    def tell(what: str) -> None:
        stage[0] = what
        observer.stage(name, what)

    def poll() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not clock.wait(POLL_SECONDS, stop):
            done, total = tasks(tracker)
            if total:
                observer.progress(name, stage[0], done, total, "tasks")

    poller = threading.Thread(target=poll, name="spark progress", daemon=True)
    poller.start()
    try:
        yield tell
    finally:
        stop.set()
        poller.join()


def tasks(tracker: StatusTracker) -> tuple[int, int]:
    """(done, all) tasks of the stages that are running."""
    running = [found for one in tracker.getActiveStageIds() if (found := tracker.getStageInfo(one))]
    return sum(stage.numCompletedTasks for stage in running), sum(stage.numTasks for stage in running)
