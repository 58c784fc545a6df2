"""The Parquet of runs: many partitions in a file, one in a row group, offsets rising within a partition.

So a thousand partitions do not make a thousand files a micro-batch, and a reader of one of them still reads
no more than its own row groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from compactor import jobs, record
from compactor.failpoints import hit
from compactor.parquetfile import ParquetFile
from compactor.parts import Part, completed, joined, part_of
from compactor.record import TopicPartition
from compactor.storage import Storage

_PARTITION: Final = ("topic", "partition")

ROW_GROUP_BYTES: Final = 16 << 20
"""Arrow bytes at which a partition's buffer becomes a row group."""

TASK_BYTES: Final = 128 << 20
"""Arrow bytes that a task holds at most: beyond, its largest buffer becomes a row group, however small."""


class RunTarget(Struct, frozen=True, kw_only=True):
    """Where a job's files go: `folder`/`prefix`-<random>.parquet; a file is closed once it has `max_bytes`.

    `arrived_ms`: when the micro-batch of records that are new was planned; None where they are rewritten.
    """

    storage: Storage
    folder: str = jobs.RUNS
    prefix: str
    max_bytes: int
    arrived_ms: int | None = None


def cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """`batch` in pieces of just about ROW_GROUP_BYTES, each enough for a row group of its own."""
    step = max(1, -(-batch.num_rows * ROW_GROUP_BYTES // max(1, batch.nbytes)))
    yield from (batch.slice(first, step) for first in range(0, batch.num_rows, step))


def split(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """The rows of `batch` by partition, each by offset."""
    if batch.num_rows == 0:
        return
    if not _is_one(batch):
        order = [(name, "ascending") for name in ("topic", "partition", "offset")]
        batch = batch.take(pc.sort_indices(batch, sort_keys=order))
    starts = _starts(batch)
    for start, end in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        tp = TopicPartition(batch["topic"][start].as_py(), batch["partition"][start].as_py())
        yield tp, batch.slice(start, end - start)


def _is_one(batch: pa.RecordBatch) -> bool:
    return len(_starts(batch)) == 1


def _starts(batch: pa.RecordBatch) -> list[int]:
    """The rows at which a partition begins that is not the one of the row before."""
    changes = [pc.not_equal(batch[name].slice(1), batch[name].slice(0, len(batch) - 1)) for name in _PARTITION]
    return [0, *(row + 1 for row in pc.indices_nonzero(pc.or_(*changes)).to_pylist())]


def write(batches: Iterable[pa.RecordBatch | None], target: RunTarget, failpoint: str) -> Iterator[Part]:
    """Writes record.RUN rows as files of `target`; a part for each file and partition, as files are completed.

    None in place of a batch completes the file: what comes after it is in other parts.

    Within a partition the rows must come by rising offset. An open file is removed where anything fails.
    Raises FoldError where offsets do not rise, StorageError where the store refuses.
    """
    with _Writer(target, failpoint) as writer:
        for batch in batches:
            yield from writer.finish() if batch is None else writer.add(batch)
        yield from writer.finish()


class _Buffer:
    """Rows of one partition that wait for their row group."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.bytes += batch.nbytes


class _Writer:
    def __init__(self, target: RunTarget, failpoint: str) -> None:
        self._target = target
        self._failpoint = failpoint
        self._buffers: dict[TopicPartition, _Buffer] = {}
        self._held = 0
        self._file: ParquetFile | None = None
        self._parts: dict[TopicPartition, Part] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.__exit__(kind, error, trace)

    def add(self, batch: pa.RecordBatch) -> Iterator[Part]:
        for tp, rows in split(batch):
            buffer = self._buffers.setdefault(tp, _Buffer())
            self._held -= buffer.bytes
            buffer.add(rows)
            self._held += buffer.bytes
            if buffer.bytes >= ROW_GROUP_BYTES:
                yield from self._flush(tp)
        while self._held > TASK_BYTES:
            yield from self._flush(max(self._buffers, key=lambda tp: self._buffers[tp].bytes))

    def finish(self) -> Iterator[Part]:
        for tp in sorted(self._buffers):
            yield from self._flush(tp)
        yield from self._close()

    def _flush(self, tp: TopicPartition) -> Iterator[Part]:
        buffer = self._buffers.pop(tp)
        self._held -= buffer.bytes
        file = self._open()
        table = pa.Table.from_batches(buffer.batches, record.RUN)
        part = part_of(tp, file.path, table, self._target.arrived_ms)
        known = self._parts.get(tp)
        self._parts[tp] = joined(known, part) if known else part
        file.write(table)
        if file.bytes >= self._target.max_bytes:
            yield from self._close()

    def _open(self) -> ParquetFile:
        if self._file is None:
            path = f"{self._target.folder}/{jobs.file_name(self._target.prefix)}"
            self._file = ParquetFile(self._target.storage, path, record.RUN)
        return self._file

    def _close(self) -> Iterator[Part]:
        file, self._file = self._file, None
        if file is None:
            return
        with file:
            pass
        hit(self._failpoint)
        parts, self._parts = self._parts, {}
        for part in parts.values():
            yield completed(part, file.bytes, file.sha256, file.footer)
