"""Writes the Parquet files of runs: many partitions in a file, each in row groups of its own, by rising offset.

So a thousand partitions do not make a thousand files a micro-batch, and a reader of one of them still reads
little more than its own row groups: only partitions with few bytes share some, as each takes a reader's and
a writer's time, however few records it has.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from types import TracebackType
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from msgspec import Struct

from compactor.bin_packing import AtMost, pack, unit_weight
from compactor.failpoints import hit
from compactor.index import section
from compactor.index.builder import HELD, IndexBuilder
from compactor.model import record
from compactor.model.log import Run
from compactor.model.record import TopicPartition, partition_spans, split_by_partition
from compactor.runs import file_stats, paths
from compactor.runs.file_stats import FileStats, combine, level0_run, stats_of, with_checksum
from compactor.runs.group_notes import GroupNotes
from compactor.runs.parquet_file import ParquetFile, run_options
from compactor.storage.base import Storage

ROW_GROUP_BYTES: Final = 16 << 20
"""Arrow bytes at which a partition's buffer becomes a row group."""

SHARED_BYTES: Final = 64 << 10
"""A partition's buffer of fewer bytes shares a row group with its neighbours."""

SHARED_GROUP_BYTES: Final = 1 << 20
"""How many bytes a shared row group has at most."""

SHARING: Final = 16
"""How many partitions share a row group at most: a reader of one reads all, and damage concerns all."""

INDEXED_GROUP_BYTES: Final = 256 << 10
"""Arrow bytes of a row group of rewritten records with an index: one that is looked up costs one, 0.5 ms and not 20.

With 64 KiB it costs 0.4 ms, as each column has its price, and reading all of them takes three times as long as in
large ones (with 256 KiB, 1.6 times). In an object store each is a request: there they stay large. So they do at level
0, as small ones take a quarter more of the time to write."""

_INDEXED_AT: Final = {
    "ingest.write": "ingest.index",
    "ingest.wait": "ingest.index",
    "ingest.admit": "ingest.index",
    "ingest.fill": "ingest.index",
    "merge.write": "merge.index",
    "clean.write": "clean.index",
}
"""By the failpoint of a job's files that of its index; other jobs write none."""

_LOOSE: Final = 4 << 20
"""How many bytes of other rows a slice may keep alive; beyond that it is copied."""

_FIRST_KEYS: Final = 4_096
"""How many keys of a file's first row group are counted before it is known whether keys get a dictionary.

That holds for the whole file: Parquet's writer takes it when it begins."""

_log = structlog.get_logger()


class RunTarget(Struct, frozen=True, kw_only=True):
    """A job's files: `folder`/`prefix`-<random>.parquet of `storage`; a file is closed once it has `max_bytes`.

    `arrived_ms`: when the micro-batch of records that are new was planned; None if they are rewritten.
    `held_bytes`: Arrow bytes that a task holds at most: beyond, its largest buffer becomes a row group; if even that is
    small, all buffers are written.
    `is_indexed`: the keys of all files go into an index file in addition, once the last of them is closed;
    `held_entries` of it are in memory at most. `has_identities`: keys are compared by an identity.
    """

    storage: Storage
    folder: str = paths.RUNS
    prefix: str
    max_bytes: int
    arrived_ms: int | None = None
    held_bytes: int = 128 << 20
    is_indexed: bool = False
    held_entries: int = HELD
    has_identities: bool = False

    def index(self) -> IndexBuilder | None:
        """Returns a builder for an index of what is written; None if there is to be none."""
        return IndexBuilder(self.held_entries, has_spellings=self.has_identities) if self.is_indexed else None


def cut(batch: pa.RecordBatch, group_bytes: int = ROW_GROUP_BYTES) -> Iterator[pa.RecordBatch]:
    """Cuts `batch` into pieces of about `group_bytes`, each enough for a row group of its own."""
    step = max(1, -(-batch.num_rows * group_bytes // max(1, batch.nbytes)))
    yield from (batch.slice(first, step) for first in range(0, batch.num_rows, step))


def write(
    batches: Iterable[pa.RecordBatch | None],
    target: RunTarget,
    failpoint: str,
    note_written: Callable[[int], None] = lambda _: None,
) -> Iterator[FileStats]:
    """Writes record.RUN rows as files of `target`; yields the statistics of each file's partitions as files are closed.

    None in place of a batch closes the file: what comes after it is in another one. With an index, all statistics come
    at the end, when the index file is complete. `note_written` is called with the bytes of all files after each batch.

    Within a partition the rows must come by rising offset. An open file is removed if anything fails.
    Raises FoldError if offsets do not rise, StorageError if the store refuses.
    """
    with RunWriter(target, failpoint) as writer:
        for batch in batches:
            yield from writer.finish() if batch is None else writer.add(batch)
            note_written(writer.written)
        yield from writer.finish()


def write_run(
    batches: Iterable[pa.RecordBatch], target: RunTarget, failpoint: str, start: int, end: int, now_ms: int
) -> Run | None:
    """Writes `batches` as `write` does; returns their run of [start, end), None if it has no record.

    No fold ends inside the run: `batches` have what an output holds, without the records that were superseded there.
    The first clean makes it the base run, and stamps its tombstones. Raises as `write` does.
    """
    stats = sorted(write(batches, target, failpoint), key=lambda part: part.file.first)
    return level0_run(start, end, stats, now_ms, folded=True) if stats else None


class _Buffer:
    """Rows of one partition that wait for their row group."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.bytes = 0

    def add(self, batch: pa.RecordBatch, kept_alive: int) -> None:
        """Adds a slice that keeps so many bytes alive: those of what it was cut from."""
        size = batch.nbytes  # which takes as long as all the rest
        if kept_alive - size > _LOOSE:
            batch = batch.take(pa.array(np.arange(batch.num_rows)))
        self.batches.append(batch)
        self.bytes += size


class RunWriter:
    """Writes the files of one job, one after the other; each partition's rows wait in a buffer for their row group."""

    def __init__(self, target: RunTarget, failpoint: str) -> None:
        self._target = target
        self._failpoint = failpoint
        # Rows that wait, by partition; `held` is their sum in Arrow bytes, at most `held_bytes` after `add`.
        self._buffers: dict[TopicPartition, _Buffer] = {}
        self.held = 0
        # The open file, None before the first row group and after a close; what was written to it, by partition; the
        # first and last partition of each of its shared row groups.
        self._file: ParquetFile | None = None
        self._parts: dict[TopicPartition, FileStats] = {}
        self._shared: list[tuple[TopicPartition, TopicPartition]] = []
        # The index of what was written, None without one; and the statistics that wait until it is complete.
        self._index = target.index()
        self._closed: list[FileStats] = []
        # Bytes of the files that were closed, see `written`.
        self._closed_bytes = 0

    @property
    def written(self) -> int:
        """The bytes in all its files so far, without those that wait in buffers, and without the index."""
        return self._closed_bytes + (self._file.bytes if self._file is not None else 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.__exit__(kind, error, trace)

    def add(self, batch: pa.RecordBatch) -> Iterator[FileStats]:
        """Takes rows, and yields the statistics of the files that are closed by it."""
        whole = batch.get_total_buffer_size()
        for tp, rows in split_by_partition(batch):
            buffer = self._buffers.setdefault(tp, _Buffer())
            self.held -= buffer.bytes
            buffer.add(rows, whole)
            self.held += buffer.bytes
            if buffer.bytes >= ROW_GROUP_BYTES:
                yield from self._flush_all([[tp]])
        while self.held > self._target.held_bytes:
            largest = max(self._buffers, key=lambda tp: self._buffers[tp].bytes)
            yield from self._flush_all([[largest]] if self._is_large(largest) else self._groups())

    def finish(self) -> Iterator[FileStats]:
        """Writes what waits, closes the file, and writes the index; yields the statistics that were not yielded yet."""
        yield from self._flush_all(self._groups())
        yield from self._close()
        closed, self._closed = self._closed, []
        if self._index is None or not closed:
            yield from closed
            return
        path = f"{self._target.folder}/{paths.file_name(self._target.prefix, paths.INDEX)}"
        try:
            sections = self._index.write(self._target.storage, path, _INDEXED_AT.get(self._failpoint))
        except OSError as error:
            self._without_index(error)
            yield from closed
        else:
            self._index = self._target.index()
            yield from (file_stats.with_index(part, section.to_text(sections[part.tp])) for part in closed)

    def _add_to_index(self, index: IndexBuilder, rows: pa.RecordBatch) -> None:
        try:
            for tp, start, end in partition_spans(rows):
                index.add(tp, rows.slice(start, end - start))
        except OSError as error:
            self._without_index(error)

    def _without_index(self, error: OSError) -> None:
        """Goes on without an index: the disk for what waits to be sorted is full, and records are kept all the same."""
        self._index = None
        _log.warning("no index written", job=self._target.prefix, reason=error.strerror or str(error))

    def _is_large(self, tp: TopicPartition) -> bool:
        return self._buffers[tp].bytes >= SHARED_BYTES

    def _groups(self) -> list[list[TopicPartition]]:
        """Groups the partitions that wait to be written by the row group that they share.

        Between those that share a row group lies no other partition that has come so far.
        """
        limits = AtMost(SHARED_GROUP_BYTES, lambda tp: self._buffers[tp].bytes), AtMost(SHARING, unit_weight)
        groups: list[list[TopicPartition]] = []
        for (_, is_small), tps in groupby(sorted({*self._buffers, *self._parts}), self._sharing):
            waiting = [tp for tp in tps if tp in self._buffers]
            groups.extend(pack(waiting, *limits) if is_small else ([tp] for tp in waiting))
        return groups

    def _sharing(self, tp: TopicPartition) -> tuple[str, bool]:
        """Returns the topic of `tp`, and whether it shares a row group with its neighbours: little of it waits."""
        return tp.topic, tp in self._buffers and not self._is_large(tp)

    def _flush_all(self, groups: Sequence[Sequence[TopicPartition]]) -> Iterator[FileStats]:
        """Writes `groups`, a row group each. No other partition of a file lies within the bounds of a row group.

        So damage in a row group concerns no other partition. A partition that first comes after the neighbours on both
        sides were written together goes into another file.
        """
        if self._are_around(sorted({tp for tps in groups for tp in tps} - self._parts.keys())):
            yield from self._close()
        for tps in groups:
            yield from self._flush(tps)

    def _are_around(self, new: Sequence[TopicPartition]) -> bool:
        """Returns whether a shared row group of the file has any of `new`, which are in order, within its bounds."""
        return any(bisect(new, first) < bisect(new, last) for first, last in self._shared)

    def _flush(self, tps: Sequence[TopicPartition]) -> Iterator[FileStats]:
        """Writes one row group of all that waits of `tps`, which are in order."""
        buffers = [self._buffers.pop(tp) for tp in tps]
        self.held -= sum(buffer.bytes for buffer in buffers)
        rows = pa.concat_batches([batch for buffer in buffers for batch in buffer.batches])
        file = self._open(rows["key"])
        for part in stats_of(file.path, rows, self._target.arrived_ms):
            known = self._parts.get(part.tp)
            self._parts[part.tp] = combine(known, part) if known else part
        if self._index is not None:
            self._add_to_index(self._index, rows)
        file.write(pa.Table.from_batches([rows]), self._group_rows(rows) if len(tps) == 1 else rows.num_rows)
        if len(tps) > 1:
            self._shared.append((tps[0], tps[-1]))
        if file.bytes >= self._target.max_bytes:
            yield from self._close()

    def _group_rows(self, rows: pa.RecordBatch) -> int:
        """Returns how many of `rows`, which are of one partition, become a row group."""
        target = self._target
        if not target.is_indexed or target.arrived_ms is not None or not target.storage.is_folder:
            return rows.num_rows
        return max(1, rows.num_rows * INDEXED_GROUP_BYTES // max(1, rows.nbytes))

    def _open(self, keys: pa.BinaryArray) -> ParquetFile:
        """Returns the open file; if there is none, opens one, of which `keys` are those of the first row group."""
        if self._file is None:
            path = f"{self._target.folder}/{paths.file_name(self._target.prefix)}"
            notes = GroupNotes() if self._target.is_indexed else None
            options = run_options(keys_repeat=_repeat(keys))
            self._file = ParquetFile(self._target.storage, path, record.RUN, options, notes)
        return self._file

    def _close(self) -> Iterator[FileStats]:
        file, self._file = self._file, None
        if file is None:
            return
        with file:
            pass
        hit(self._failpoint)
        parts, self._parts, self._shared = self._parts, {}, []
        size, sha256, footer = file.bytes, file.sha256, file.footer
        self._closed_bytes += size
        stats = [with_checksum(part, size, sha256, footer) for part in parts.values()]
        if self._index is None:
            yield from stats
        else:
            self._closed.extend(stats)


def _repeat(keys: pa.BinaryArray) -> bool:
    """Returns whether at least half of the first keys have come before among them.

    A dictionary of keys that come once takes a fifth of the time in which a record is written, and a tenth of that of a
    look-up.
    """
    first = keys.slice(0, _FIRST_KEYS)
    return 2 * pc.count_distinct(first, mode="all").as_py() <= len(first)
