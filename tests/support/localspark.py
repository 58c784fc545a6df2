"""As much of Spark as the engine asks for behind reading, in this process: what takes Spark 100 ms takes 2."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle

from compactor.clean.rewriteplan import RewritePlan
from compactor.errors import DamagedFileError
from compactor.fold import in_memory
from compactor.model.publish_plan import PublishPlan, PublishResult
from compactor.model.record import RUN
from compactor.ports import Publisher
from compactor.publish.plan import Due, complete
from compactor.runs import file_stats, writer
from compactor.runs.file_stats import FileStats
from compactor.runs.scan import LOG, SCAN, OffsetRange, plan_wide_reads
from compactor.storage.base import Storage
from tests.support.localframe import LocalRow

Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class LocalSpark:
    """A session whose only jobs are those of numbered tasks (`compactor.spark.tasks`)."""

    def __init__(self, cores: int = 2) -> None:
        self.sparkContext = SimpleNamespace(defaultParallelism=cores)

    def range(self, start: int, end: int, step: int, partitions: int) -> _Numbers:
        """The numbers from `start` to `end`, each in a partition of its own."""
        assert (step, partitions) == (1, end - start)
        return _Numbers(start, end)


class _Numbers:
    def __init__(self, start: int, end: int) -> None:
        self._numbers = range(start, end)
        self._work: bytes | None = None

    def mapInArrow(self, work: Work, _schema: str) -> _Numbers:  # noqa: N802 - Spark's name
        self._work = cloudpickle.dumps(work)  # type: ignore[no-untyped-call]  # a task has copies of what it was given, as on Spark
        return self

    def collect(self) -> list[LocalRow]:
        assert self._work is not None
        found: list[LocalRow] = []
        for number in self._numbers:
            work = cast("Work", cloudpickle.loads(self._work))
            numbers = pa.RecordBatch.from_pydict({"id": [number]})
            found.extend(LocalRow(row) for batch in work(iter([numbers])) for row in batch.to_pylist())
        return found


def rewrite(_spark: Any, storage: Storage, what: RewritePlan) -> tuple[tuple[FileStats, ...], ...]:
    """Stands for `foldjob.rewrite`."""
    found = _latest(storage, what.slices) if what.keep.by_key else _scan(storage, what.slices)
    kept = (what.keep.of_batch(batch).select(RUN.names) for batch in found.to_batches())
    written = writer.write((piece for batch in kept for piece in writer.cut(batch)), what.target, what.failpoint)
    return file_stats.by_range(what.slices, list(written))


def send(
    _spark: Any,
    storage: Storage,
    due: Sequence[Due],
    plans: Sequence[PublishPlan],
    _buckets: int,
    publisher: Publisher,
) -> tuple[PublishResult, ...]:
    """Stands for `publishjob.send`."""
    found = _latest(storage, [one.slice for one in due])
    sent: list[PublishResult] = []
    for plan in plans:
        mine = [log for log, one in enumerate(due) if one.bucket == plan.bucket]
        own = found.filter(pc.is_in(found[LOG], pa.array(mine, pa.int32())))
        sent.extend(publisher.publish(plan, in_memory.batches(own)))
    return complete(plans, sent)


def _scan(storage: Storage, slices: Sequence[OffsetRange]) -> pa.Table:
    files = in_memory.load(storage, slices)
    if files is None:
        raise DamagedFileError("A file is not what was written.", "No history damages one.")
    found = [one for path, wants in plan_wide_reads(slices).items() for one in in_memory._of_bytes(files[path], wants)]
    read = pa.Table.from_batches(found, SCAN)
    return read.sort_by([(LOG, "ascending"), ("offset", "ascending")])


def _latest(storage: Storage, slices: Sequence[OffsetRange]) -> pa.Table:
    """What `fold.latest` gives, found as it finds it: the largest offset of each key, then all rows that have one."""
    read = _scan(storage, slices)
    rows = read.select([LOG, "key", "rejected", "offset"]).to_pylist()
    alone = [one["offset"] if one["rejected"] is not None else None for one in rows]
    keys = [(one[LOG], one["key"], rejected) for one, rejected in zip(rows, alone, strict=True)]
    last = dict(zip(keys, (one["offset"] for one in rows), strict=True))  # offsets rise
    wanted = {(key[0], offset) for key, offset in last.items()}
    return read.filter(pa.array([(one[LOG], one["offset"]) in wanted for one in rows], pa.bool_()))
