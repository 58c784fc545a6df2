"""Publishing what is little in this process: no Spark job, which takes longer than everything it would do here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from compactor.errors import FencedError
from compactor.fold import in_memory
from compactor.fold.in_memory import Files
from compactor.model.publish_plan import PublishPlan, PublishResult
from compactor.ports import Publisher
from compactor.publish.plan import Due, complete
from compactor.runs.scan import LOG
from compactor.spark.briefly import briefly

_THREADS: Final = 8
_log = structlog.get_logger()


def send(
    files: Files, due: Sequence[Due], plans: Sequence[PublishPlan], publisher: Publisher
) -> tuple[PublishResult, ...]:
    """Steps 6 to 11 for every plan, all of `due` from `files`; buckets beside one another, as they wait for brokers.

    Raises what the publisher raises. Where several buckets fail, that a newer owner is there counts first, then the
    first bucket; the others are logged.
    """
    folded = in_memory.latest(files, [one.slice for one in due])
    with ThreadPoolExecutor(_THREADS) as pool:
        answers = [
            pool.submit(copy_context().run, publisher.publish, plan, _of_bucket(folded, due, plan.bucket))
            for plan in plans
        ]
    _raise_failure(answers)
    return complete(plans, [one for answer in answers for one in answer.result()])


def _raise_failure(answers: Sequence[Future[Sequence[PublishResult]]]) -> None:
    failures = [error for answer in answers if (error := answer.exception()) is not None]
    if not failures:
        return
    first = next((error for error in failures if isinstance(error, FencedError)), failures[0])
    for error in failures:
        if error is not first:
            _log.warning("another bucket's publish failed too", error=briefly(error))
    raise first


def _of_bucket(folded: pa.Table, due: Sequence[Due], bucket: int) -> Iterator[pa.RecordBatch]:
    mine = [log for log, one in enumerate(due) if one.bucket == bucket]
    return in_memory.batches(folded.filter(pc.is_in(folded[LOG], pa.array(mine, pa.int32()))))
