"""Runs the engine's Spark jobs in this process: as much of SparkSession and DataFrame as the engine uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from compactor.errors import DamagedFileError
from compactor.fold import in_memory
from compactor.fold.latest_per_key import Folded, FoldJob
from compactor.fold.on_spark import OnSpark
from compactor.ingest.ingest import Intake, write_level0
from compactor.model.record import KEY_ENCODING, KEY_IDENTITY, ORDER_VALUE, RUN, SOURCE, as_compared
from compactor.runs.scan import LOG, SCAN, OffsetRange, plan_wide_reads
from compactor.storage.base import Storage

Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def source_batch(rows: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    """Returns rows as a source yields them (record.SOURCE), with identities of keys and what is ordered by, if any."""
    found = [*rows]
    more = [RUN.field(name) for name in (KEY_IDENTITY, KEY_ENCODING, ORDER_VALUE) if any(name in row for row in found)]
    return pa.RecordBatch.from_pylist(found, schema=pa.schema([*SOURCE, *more]))


class LocalFrame:
    """The DataFrame of a micro-batch: runs the reading tasks `tasks` in this process, 50 times as fast as Spark."""

    def __init__(self, tasks: Sequence[Sequence[dict[str, Any]]], intake: Intake) -> None:
        self._tasks = tasks
        self._intake = intake

    def collect(self) -> list[LocalRow]:
        """Returns the rows that the tasks yield."""
        batches = (source_batch(rows) for rows in self._tasks)
        return [
            LocalRow(row) for batch in batches for one in write_level0([batch], self._intake) for row in one.to_pylist()
        ]


class LocalRow:
    """Stands for pyspark.sql.Row."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def asDict(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._fields


class LocalSpark:
    """A session whose only jobs are numbered tasks (`compactor.spark.tasks`); one takes 2 ms instead of 100."""

    def __init__(self, cores: int = 2) -> None:
        self.sparkContext = SimpleNamespace(defaultParallelism=cores)
        # How many tasks each job has had.
        self.tasks: list[int] = []

    def range(self, start: int, end: int, step: int, partitions: int) -> _Numbers:
        """Returns the numbers from `start` to `end`, in so many partitions."""
        assert step == 1
        assert 1 <= partitions <= end - start
        self.tasks.append(partitions)
        return _Numbers([range(start + at, end, partitions) for at in range(partitions)])


class _Numbers:
    def __init__(self, tasks: Sequence[range]) -> None:
        self._tasks = tasks
        self._work: bytes | None = None

    def mapInArrow(self, work: Work, _schema: str) -> _Numbers:  # noqa: N802 - Spark's name
        from pyspark import cloudpickle

        self._work = cloudpickle.dumps(work)  # type: ignore[no-untyped-call]  # a task has copies of what it was given, as on Spark
        return self

    def collect(self) -> list[LocalRow]:
        from pyspark import cloudpickle

        assert self._work is not None
        found: list[LocalRow] = []
        for task in self._tasks:
            work = cast("Work", cloudpickle.loads(self._work))
            numbers = pa.RecordBatch.from_pydict({"id": list(task)})
            found.extend(LocalRow(row) for batch in work(iter([numbers])) for row in batch.to_pylist())
        return found


def run(self: OnSpark, job: FoldJob) -> Folded:
    """Replaces `OnSpark.run`: folds in this process."""
    found = _latest(self._storage, job.ranges) if job.keep.by_key else _scan(self._storage, job.ranges)
    work = job.work()
    rows: list[dict[str, Any]] = []
    for number, logs in (job.tasks or {0: range(len(job.ranges))}).items():
        own = found.filter(pc.is_in(found[LOG], pa.array(logs, pa.int32())))
        kept = (job.keep.of_batch(batch).select(RUN.names) for batch in in_memory.batches(own))
        rows.extend(row for batch in work(number, kept) for row in batch.to_pylist())
    return Folded(rows)


def _scan(storage: Storage, ranges: Sequence[OffsetRange]) -> pa.Table:
    files = in_memory.load(storage, ranges)
    if files is None:
        raise DamagedFileError("A file is not what was written.", "No history damages one.")
    found = [one for path, own in plan_wide_reads(ranges).items() for one in in_memory.read_bytes(files[path], own)]
    read = pa.Table.from_batches(found, SCAN)
    return read.sort_by([(LOG, "ascending"), ("offset", "ascending")])


def _latest(storage: Storage, ranges: Sequence[OffsetRange]) -> pa.Table:
    """Returns what `on_spark.latest` does, in its way: the largest offset of each key, then the rows that have it."""
    read = _scan(storage, ranges)
    rows = as_compared(read).select([LOG, "key", "rejected", "offset"]).to_pylist()
    alone = [one["offset"] if one["rejected"] is not None else None for one in rows]
    keys = [(one[LOG], one["key"], rejected) for one, rejected in zip(rows, alone, strict=True)]
    last = dict(zip(keys, (one["offset"] for one in rows), strict=True))  # offsets rise
    wanted = {(key[0], offset) for key, offset in last.items()}
    return read.filter(pa.array([(one[LOG], one["offset"]) in wanted for one in rows], pa.bool_()))
