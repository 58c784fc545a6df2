"""Publishing what is little in this process: no Spark job, which takes longer than everything it would do here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from compactor import localfold
from compactor.fold import LOG
from compactor.publish import BucketPlan, Due, Publisher, Sent, complete
from compactor.record import RUN
from compactor.storage import Storage

_THREADS: Final = 8
_ROWS: Final = 10_000


def send(storage: Storage, due: Sequence[Due], plans: Sequence[BucketPlan], publisher: Publisher) -> tuple[Sent, ...]:
    """Steps 6 to 11 for every plan, all of `due` in memory; the buckets beside one another, as they wait for brokers.

    Raises StorageError, and what the publisher raises: where several buckets fail, the error of the first.
    """
    folded = localfold.latest(storage, [one.slice for one in due])
    with ThreadPoolExecutor(min(_THREADS, len(plans))) as pool:
        answers = [
            pool.submit(copy_context().run, publisher.publish, plan, _of_bucket(folded, due, plan.bucket))
            for plan in plans
        ]
    return complete(plans, [one for answer in answers for one in answer.result()])


def _of_bucket(folded: pa.Table, due: Sequence[Due], bucket: int) -> Iterator[pa.RecordBatch]:
    mine = [log for log, one in enumerate(due) if one.bucket == bucket]
    rows = folded.filter(pc.is_in(folded[LOG], pa.array(mine, pa.int32())))
    return iter(rows.select(RUN.names).to_batches(_ROWS))
