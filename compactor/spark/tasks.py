"""Runs Python in numbered Spark tasks that answer with rows, and decides when Spark's fold takes their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import structlog

from compactor.errors import KeyfoldError, OutOfRoomError
from compactor.model import record
from compactor.spark.errors import KEY, briefly, tagging, unwrapping
from compactor.spark.job_errors import is_process_failure
from compactor.spark.task_start import begin_task
from compactor.storage.request_counts import REQUESTS

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_REQUESTS: Final = pa.field("store_requests", pa.string())
"""The column of the row in which a task reports what it has asked of object stores; null in its answers."""

_log = structlog.get_logger()


def run(
    spark: SparkSession,
    count: int,
    task: Callable[[int], Iterable[pa.RecordBatch]],
    answers: pa.Schema,
    most: int | None = None,
) -> list[dict[str, Any]]:
    """Runs `task(number)` in a Spark task for each number below `count`; returns the rows of all (`answers`).

    With `most` there are at most as many Spark tasks, each of which runs several numbers, one after the other.
    `task` is pickled with all that it holds. A KeyfoldError that it raises is raised here as it was. What tasks have
    asked of object stores is counted here.
    """
    schema, key = answers.append(_REQUESTS), KEY

    def of_numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        before = REQUESTS.values()
        with tagging(key):
            for batch in batches:
                for number in batch["id"].to_pylist():
                    for answer in task(number):
                        yield answer.append_column(_REQUESTS, pa.nulls(answer.num_rows, _REQUESTS.type))
        if (report := REQUESTS.report_since(before)) is not None:
            yield pa.RecordBatch.from_pylist([{_REQUESTS.name: report}], schema=schema)

    if count == 0:
        return []
    with unwrapping():
        rows = spark.range(0, count, 1, min(count, most or count)).mapInArrow(of_numbers, record.ddl(schema)).collect()
    return list(_answers(rows))


def _answers(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Yields the answers among `rows`, and counts the requests that the others report."""
    for row in rows:
        fields = row.asDict()
        report = fields.pop(_REQUESTS.name)
        if report is None:
            yield fields
        else:
            REQUESTS.add_report(report)


class TaskFallback:
    """Decides whether tasks are used: until a process of one has ended, perhaps for want of memory. Spark's spills.

    `work` names what they do in log lines. Once `stopped` returns True, nothing is given up, as nothing is tried
    again. For one thread.
    """

    def __init__(self, work: str, stopped: Callable[[], bool]) -> None:
        self._work = work
        self._stopped = stopped
        # Unset by `give_up`, for the rest of the run: the next task would end in the same way.
        self.uses_tasks = True

    def give_up(self, error: Exception) -> bool:
        """Gives tasks up if `error` says that a process has ended, as the next would too; returns True once."""
        # A full disk of the store is no process's end.
        own = isinstance(error, KeyfoldError) and not isinstance(error, OutOfRoomError)
        if own or not self.uses_tasks or self._stopped() or not is_process_failure(error):
            return False
        _log.warning(
            "tasks given up for Spark's fold, which is slower, until the next start",
            work=self._work,
            error=briefly(error),
            action="Where the system has ended the process for its memory (see its log), give the machine more.",
        )
        self.uses_tasks = False
        return True
