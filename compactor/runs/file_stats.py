"""Counts what one file holds of each partition, while it is written, and builds runs from these counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from compactor.errors import DEFECT, FoldError
from compactor.model import record
from compactor.model.log import Run, RunFile, aged_from
from compactor.model.record import PARTITION, OfPartition, TopicPartition, partition_starts, partitions_of
from compactor.model.times import earliest, latest
from compactor.runs.scan import OffsetRange


class FileStats(OfPartition, Struct, frozen=True, kw_only=True):
    """What one file holds of one partition; counts of records, times in ms.

    `min_timestamp` is the smallest above 0 (KIP-354 leaves out what says nothing), None if all are 0 or -1.
    `future` counts records that are stamped more than a minute after they arrived: no mere difference of clocks.
    `first_future_offset` is that of the first of them. `without_key` counts those of `rejected` that have no key.
    """

    topic: str
    partition: int
    file: RunFile
    tombstones: int = 0
    rejected: int = 0
    without_key: int = 0
    future: int = 0
    first_future_offset: int | None = None
    max_timestamp: int = -1
    min_timestamp: int | None = None
    horizons: int = 0
    next_horizon_ms: int | None = None
    first_rejected_offset: int | None = None
    first_rejected_reason: str | None = None


FUTURE_MS: Final = 60_000
"""A record that is stamped so much later than it arrived is stamped in the future."""

_MOST_ENCODINGS: Final = 8
"""How many encodings of keys a file names at most."""

_MOST: Final = np.iinfo(np.int64).max
"""No value is larger."""

# FILE_STATS: which columns are text, and which belong to the file and which to its partition.
_TEXT: Final = ("topic", "path", "sha256", "footer", "first_rejected_reason", "key_encodings", "index")
_FILE: Final = tuple(name for name in RunFile.__struct_fields__ if name != "entire")
_OWN: Final = tuple(name for name in FileStats.__struct_fields__ if name != "file")

FILE_STATS: Final = pa.schema(
    [pa.field(name, pa.string() if name in _TEXT else pa.int64()) for name in (*_OWN, *_FILE)]
)
"""FileStats as a task reports them: one flat row each."""


def to_batch(stats: Iterable[FileStats]) -> pa.RecordBatch:
    """Returns `stats` as rows of FILE_STATS."""
    return pa.RecordBatch.from_pylist(rows_of(stats), schema=FILE_STATS)


def rows_of(stats: Iterable[FileStats]) -> list[dict[str, Any]]:
    """Returns `stats` as dicts with the fields of FILE_STATS."""
    return [{**_fields(part, _OWN), **_fields(part.file, _FILE)} for part in stats]


def from_row(row: dict[str, Any]) -> FileStats:
    """Returns the FileStats of a row of FILE_STATS: all that the file holds of the partition."""
    file = RunFile(**{name: row[name] for name in _FILE}, entire=True)
    return FileStats(file=file, **{name: row[name] for name in _OWN})


def _fields(value: Struct, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def stats_of(path: str, batch: pa.RecordBatch, arrived_ms: int | None = None) -> list[FileStats]:
    """Counts `batch` (record.RUN, by partition and offset) for each partition; figures of the file are still empty.

    `arrived_ms` is when the records were ingested; None if they are only rewritten. FoldError if offsets do not
    rise.
    """
    first = partition_starts(batch)
    last = np.append(first[1:], batch.num_rows) - 1
    rows = _Rows(batch, first)
    rows.check_rising()
    refused = _flags(pc.is_valid(batch["rejected"]))
    stamps, horizons = rows.longs("timestamp"), batch["delete_horizon"]
    stamped = _flags(pc.is_valid(horizons))
    future = np.zeros(len(refused), np.bool_) if arrived_ms is None else stamps > arrived_ms + FUTURE_MS
    offsets = rows.longs("offset")
    size = len(first)
    at = np.arange(len(refused))
    refusals, futures = rows.least(at, refused), rows.least(at, future)
    newest_ms = rows.most(stamps)
    columns: dict[str, Sequence[Any]] = {
        **{name: batch[name].take(pa.array(first)).to_pylist() for name in PARTITION},
        "path": [path] * size,
        "first": offsets[first].tolist(),
        "last": offsets[last].tolist(),
        "records": (last - first + 1).tolist(),
        "bytes": rows.total(record.sizes(batch)),
        "file_bytes": [0] * size,
        "sha256": [""] * size,
        "newest_ms": newest_ms,
        "footer": [None] * size,
        "key_encodings": _encodings(batch, first, last),
        "index": [None] * size,
        "keyless": rows.total(_flags(pc.is_null(batch["key"])) & ~refused),
        "tombstones": rows.total(_flags(pc.is_null(batch["value"])) & ~refused),
        "rejected": rows.total(refused),
        "without_key": rows.total(_flags(pc.is_in(batch["rejected"], pa.array([record.NULL_KEY])))),
        "future": rows.total(future),
        "first_future_offset": [None if row is None else int(offsets[row]) for row in futures],
        "max_timestamp": newest_ms,
        "min_timestamp": rows.least(stamps, stamps > 0),
        "horizons": rows.total(stamped),
        "next_horizon_ms": rows.least(pc.fill_null(horizons, 0).to_numpy(), stamped),
        "first_rejected_offset": [None if row is None else int(offsets[row]) for row in refusals],
        "first_rejected_reason": [None if row is None else batch["rejected"][row].as_py() for row in refusals],
    }
    return [from_row(dict(zip(columns, values, strict=True))) for values in zip(*columns.values(), strict=True)]


def _encodings(batch: pa.RecordBatch, first: NDArray[np.int64], last: NDArray[np.int64]) -> Sequence[str | None]:
    """Returns for each partition the encodings of its keys; its rows are from `first` to `last`."""
    column = batch[record.KEY_ENCODING]
    if column.null_count == len(column):
        return [None] * len(first)
    foldable = pc.is_null(batch["rejected"])
    spans = zip(first.tolist(), (last + 1 - first).tolist(), strict=True)
    parts = (column.slice(start, size).filter(foldable.slice(start, size)) for start, size in spans)
    return [None if part.null_count else _joined(part.unique().to_pylist()) for part in parts]


def _joined(encodings: Iterable[str]) -> str | None:
    names = sorted(set(encodings))
    return ",".join(names) if len(names) <= _MOST_ENCODINGS else None


def encodings_of(files: Iterable[RunFile]) -> frozenset[str] | None:
    """Returns the encodings of all keys in `files`; None if that is not known."""
    listed = [file.key_encodings for file in files]
    if None in listed:
        return None
    return frozenset(name for encodings in listed if encodings for name in encodings.split(",") if name)


class _Rows:
    """The rows of a batch, and sums over those of each partition, which begin at the rows `first`."""

    def __init__(self, batch: pa.RecordBatch, first: NDArray[np.int64]) -> None:
        self._batch = batch
        self._first = first

    def longs(self, name: str) -> NDArray[np.int64]:
        return self._batch[name].to_numpy()

    def total(self, values: NDArray[Any]) -> list[int]:
        return np.add.reduceat(values.astype(np.int64), self._first).tolist()

    def least(self, values: NDArray[np.int64], among: NDArray[np.bool_]) -> list[int | None]:
        """Returns the smallest of those `among` them; None if none is."""
        smallest = np.minimum.reduceat(np.where(among, values, _MOST), self._first).tolist()
        return [value if count else None for value, count in zip(smallest, self.total(among), strict=True)]

    def most(self, values: NDArray[np.int64]) -> list[int]:
        return np.maximum.reduceat(values, self._first).tolist()

    def check_rising(self) -> None:
        falls = np.diff(self.longs("offset")) <= 0
        falls[self._first[1:] - 1] = False
        if falls.any():
            row = int(np.argmax(falls))
            (tp,) = partitions_of(self._batch, np.array([row]))
            raise FoldError(f"{tp}: offsets do not rise in a run that is being written.", DEFECT)


def _flags(column: pa.Array) -> NDArray[np.bool_]:
    return column.to_numpy(zero_copy_only=False)


def by_range(ranges: Iterable[OffsetRange], written: Iterable[FileStats]) -> tuple[tuple[FileStats, ...], ...]:
    """Returns for each of `ranges` those of `written` that hold records of it, by offset."""
    by_partition: dict[TopicPartition, list[FileStats]] = {}
    for stats in sorted(written, key=lambda stats: stats.file.first):
        by_partition.setdefault(stats.tp, []).append(stats)
    return tuple(
        tuple(stats for stats in by_partition.get(part.tp, ()) if part.start <= stats.file.first < part.end)
        for part in ranges
    )


def run_of(start: int, end: int, stats: Sequence[FileStats], *, level: int, arrived_ms: int) -> Run:
    """Builds the run of [start, end) that `stats` hold, by offset: their sums, largest and smallest figures.

    Of a file that begins below `start` all records are counted.
    """
    return Run(
        start=start,
        end=end,
        level=level,
        files=tuple(part.file for part in stats),
        records=sum(part.file.records for part in stats),
        bytes=sum(part.file.bytes for part in stats),
        tombstones=sum(part.tombstones for part in stats),
        rejected=sum(part.rejected for part in stats),
        max_timestamp=max((part.max_timestamp for part in stats), default=-1),
        arrived_ms=arrived_ms,
        horizons=sum(part.horizons for part in stats),
        next_horizon_ms=earliest(*(part.next_horizon_ms for part in stats)),
    )


def level0_run(start: int, end: int, stats: Sequence[FileStats], arrived_ms: int, *, folded: bool = False) -> Run:
    """Builds the run of [start, end) as a micro-batch brought it: it ages from its oldest record."""
    built = run_of(start, end, stats, level=0, arrived_ms=arrived_ms)
    smallest_ms = earliest(*(part.min_timestamp for part in stats))
    return replace(built, oldest_ms=aged_from(smallest_ms, arrived_ms), folded=folded)


def combine(earlier: FileStats, later: FileStats) -> FileStats:
    """Combines the counts of two row groups of one partition in one file. FoldError if offsets do not rise."""
    if later.file.first <= earlier.file.last:
        raise FoldError(
            f"{earlier.tp}: offset {later.file.first} comes after {earlier.file.last} in a run that is being written.",
            DEFECT,
        )
    first = earlier if earlier.first_rejected_offset is not None else later
    encodings = encodings_of((earlier.file, later.file))
    return FileStats(
        topic=earlier.topic,
        partition=earlier.partition,
        file=replace(
            earlier.file,
            last=later.file.last,
            records=earlier.file.records + later.file.records,
            bytes=earlier.file.bytes + later.file.bytes,
            newest_ms=latest(earlier.file.newest_ms, later.file.newest_ms),
            keyless=earlier.file.keyless + later.file.keyless,
            key_encodings=None if encodings is None else _joined(encodings),
        ),
        tombstones=earlier.tombstones + later.tombstones,
        rejected=earlier.rejected + later.rejected,
        without_key=earlier.without_key + later.without_key,
        future=earlier.future + later.future,
        first_future_offset=earliest(earlier.first_future_offset, later.first_future_offset),
        max_timestamp=max(earlier.max_timestamp, later.max_timestamp),
        min_timestamp=earliest(earlier.min_timestamp, later.min_timestamp),
        horizons=earlier.horizons + later.horizons,
        next_horizon_ms=earliest(earlier.next_horizon_ms, later.next_horizon_ms),
        first_rejected_offset=first.first_rejected_offset,
        first_rejected_reason=first.first_rejected_reason,
    )


def with_checksum(stats: FileStats, file_bytes: int, sha256: str, footer: str | None) -> FileStats:
    """Returns `stats` with the figures of its file, which is closed."""
    return replace(stats, file=replace(stats.file, file_bytes=file_bytes, sha256=sha256, footer=footer))


def with_index(stats: FileStats, section: str) -> FileStats:
    """Returns `stats` with the `section` of the index file that has the keys of its records."""
    return replace(stats, file=replace(stats.file, index=section))
