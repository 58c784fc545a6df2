"""Folds in this process, with Arrow, what it can hold: does what `on_spark.latest` does, without a Spark job.

All files are in memory at once; `chooser` has checked that they fit. Only files that are, byte for byte,
what was written are decoded here: a damaged page can end the process that reads it (`quarantine.verify`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from numpy.typing import NDArray

from compactor.errors import FencedError, ForeignContentError
from compactor.fold.arrow_kernel import last_rows
from compactor.fold.latest_per_key import Folded, FoldJob, Work
from compactor.model.record import KEY_IDENTITY, RUN, as_compared
from compactor.runs.reader import read_ranges
from compactor.runs.scan import LOG, SCAN, FileRange, OffsetRange, files_of, plan_reads
from compactor.spark.errors import briefly
from compactor.storage.base import Storage

# Records a batch: a consumer of batches holds one at a time in addition to what was folded.
_ROWS: Final = 10_000
# Tasks that run at the same time in this process; they wait for brokers most of the time.
_THREADS: Final = 8
# What decides which record is the latest; only these columns are put in order.
_COMPARED: Final = [LOG, "key", KEY_IDENTITY, "rejected"]
_log = structlog.get_logger()

Files = Mapping[str, bytes]
"""Whole files, by path."""


class InMemory:
    """`LatestPerKey` in this process: no Spark job, which takes longer than everything that it would do for little."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def run(self, job: FoldJob) -> Folded:
        """See `LatestPerKey.run`. Tasks run at the same time, as they wait for brokers.

        All of the job is left if a file is not, byte for byte, what was written. If several tasks fail, a FencedError
        is raised if there is one, else the error of the first task; the others are logged.
        """
        files = load(self._storage, job.ranges)
        if files is None or job.work_here is None or job.tasks is None:
            return Folded([], job)
        rows, work = _Latest.of(files, job.ranges), job.work_here()
        if not job.tasks:
            return Folded([])
        *others, last = ((number, rows.of_logs(logs)) for number, logs in job.tasks.items())
        with ThreadPoolExecutor(_THREADS) as pool:  # which starts no thread if there is one task
            answers = [pool.submit(copy_context().run, _answer, job, work, *task) for task in others]
            answers.append(_done_here(lambda: _answer(job, work, *last)))
        _raise_failure(answers)
        return Folded([row for answer in answers for row in answer.result()])


def _done_here(call: Callable[[], list[dict[str, Any]]]) -> Future[list[dict[str, Any]]]:
    """Calls in this thread, which would only wait."""
    done: Future[list[dict[str, Any]]] = Future()
    try:
        done.set_result(call())
    except Exception as error:  # noqa: BLE001 - it is raised with regard to those of the other tasks
        done.set_exception(error)
    return done


def _answer(job: FoldJob, work: Work, number: int, rows: pa.Table) -> list[dict[str, Any]]:
    kept = (job.keep.of_batch(batch).select(RUN.names) for batch in rows.to_batches(_ROWS))
    return [row for batch in work(number, kept) for row in batch.to_pylist()]


def _raise_failure(answers: Sequence[Future[list[dict[str, Any]]]]) -> None:
    failures = [error for answer in answers if (error := answer.exception()) is not None]
    if not failures:
        return
    first = next((error for error in failures if isinstance(error, FencedError)), failures[0])
    for error in failures:
        if error is not first:
            _log.warning("another task of a fold failed too", error=briefly(error))
    raise first


def load(storage: Storage, ranges: Iterable[OffsetRange]) -> Files | None:
    """Reads every file that holds anything of `ranges`; None if one is not what was written. Raises StorageError."""
    contents: dict[str, bytes] = {}
    for path, file in files_of(ranges).items():
        try:
            contents[path] = storage.read(path, file.file_bytes)
        except ForeignContentError:
            return None
        if hashlib.sha256(contents[path]).hexdigest() != file.sha256:
            return None
    return contents


def latest(files: Files, ranges: Sequence[OffsetRange]) -> pa.Table:
    """Returns the latest record of every key of each range, and every rejected record (SCAN), by range and offset."""
    return _Latest.of(files, ranges).table()


class _Latest(NamedTuple):
    """What was read, and which of its `rows` are the latest or rejected, by range and offset; `logs` are their ranges.

    Rows are copied once, by `table` or `of_logs`.
    """

    read: pa.Table
    rows: NDArray[np.int64]
    logs: NDArray[np.int32]

    @classmethod
    def of(cls, files: Files, ranges: Sequence[OffsetRange]) -> _Latest:
        """Reads `ranges` and folds them."""
        pieces = (piece for path, own in plan_reads(ranges).items() for piece in read_bytes(files[path], own))
        read = pa.Table.from_batches(pieces, SCAN)
        logs, offsets = read[LOG].to_numpy(), read["offset"].to_numpy()
        order = np.lexsort((offsets, logs))
        last = last_rows(as_compared(read.select(_COMPARED)).take(pa.array(order)), [LOG])
        rows = order[last]
        return cls(read, rows, logs[rows])

    def table(self) -> pa.Table:
        """Returns all of them."""
        return self.read.take(pa.array(self.rows))

    def of_logs(self, numbers: Sequence[int]) -> pa.Table:
        """Returns those of the ranges with these numbers."""
        return self.read.take(pa.array(self.rows[np.isin(self.logs, np.array(numbers, np.int32))]))


def batches(folded: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yields the records of `folded` (SCAN), some thousands at a time."""
    return iter(folded.to_batches(_ROWS))


def read_bytes(data: bytes, ranges: Sequence[FileRange]) -> Iterator[pa.RecordBatch]:
    """Reads `ranges` of the file that is `data` (SCAN), in the file's order."""
    with pq.ParquetFile(pa.BufferReader(data)) as opened:
        yield from read_ranges(opened, ranges, RUN.names)
