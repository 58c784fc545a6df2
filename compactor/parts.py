"""What one file holds of one partition, counted while it is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from compactor import record
from compactor.errors import DEFECT, FoldError
from compactor.log import RunFile
from compactor.reading import Slice
from compactor.record import OfPartition, TopicPartition


class Part(OfPartition, Struct, frozen=True, kw_only=True):
    """What one file holds of one partition; counts of records, times in ms.

    `min_timestamp` is the smallest above 0 (KIP-354 leaves out what says nothing), None where all are 0 or -1.
    `future` counts records that are stamped more than a minute after they arrived: no mere difference of clocks.
    """

    topic: str
    partition: int
    file: RunFile
    tombstones: int = 0
    rejected: int = 0
    future: int = 0
    max_timestamp: int = -1
    min_timestamp: int | None = None
    horizons: int = 0
    next_horizon_ms: int | None = None
    first_rejected_offset: int | None = None
    first_rejected_reason: str | None = None


FUTURE_MS: Final = 60_000
"""A record that is stamped so much later than it arrived is stamped in the future."""

_TEXT: Final = ("topic", "path", "sha256", "footer", "first_rejected_reason")
_FILE: Final = tuple(RunFile.__struct_fields__)
_OWN: Final = tuple(name for name in Part.__struct_fields__ if name != "file")

PARTS: Final = pa.schema([pa.field(name, pa.string() if name in _TEXT else pa.int64()) for name in (*_OWN, *_FILE)])
"""A part as a task reports it: one flat row."""


def to_batch(parts: Iterable[Part]) -> pa.RecordBatch:
    """`parts` as rows of PARTS."""
    rows = [{**_fields(part, _OWN), **_fields(part.file, _FILE)} for part in parts]
    return pa.RecordBatch.from_pylist(rows, schema=PARTS)


def from_row(row: dict[str, Any]) -> Part:
    """The part that a row of PARTS stands for."""
    file = RunFile(**{name: row[name] for name in _FILE})
    return Part(file=file, **{name: row[name] for name in _OWN})


def _fields(value: Struct, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def part_of(tp: TopicPartition, path: str, table: pa.Table, arrived_ms: int | None = None) -> Part:
    """What `table`, the rows of one partition by offset, comes to; the file's own figures are not known yet.

    `arrived_ms` is when they were ingested; None where they are only rewritten.
    """
    offsets = table["offset"]
    _check_rising(tp, offsets)
    refused = pc.is_valid(table["rejected"])
    tombstones = pc.and_not(pc.is_null(table["value"]), refused)
    keyless = pc.and_not(pc.is_null(table["key"]), refused)
    horizons = table["delete_horizon"]
    first = pc.index(refused, True).as_py()
    newest_ms = pc.max(table["timestamp"]).as_py()
    return Part(
        topic=tp.topic,
        partition=tp.partition,
        file=RunFile(
            path=path,
            first=offsets[0].as_py(),
            last=offsets[-1].as_py(),
            records=len(offsets),
            bytes=record.measure(table),
            file_bytes=0,
            sha256="",
            newest_ms=newest_ms,
            keyless=pc.sum(keyless).as_py(),
        ),
        tombstones=pc.sum(tombstones).as_py(),
        rejected=pc.sum(refused).as_py(),
        future=0 if arrived_ms is None else _later(table["timestamp"], arrived_ms + FUTURE_MS),
        max_timestamp=newest_ms,
        min_timestamp=_smallest(table["timestamp"]),
        horizons=len(horizons) - horizons.null_count,
        next_horizon_ms=pc.min(horizons).as_py(),
        first_rejected_offset=offsets[first].as_py() if first >= 0 else None,
        first_rejected_reason=table["rejected"][first].as_py() if first >= 0 else None,
    )


def _later(timestamps: pa.ChunkedArray, than_ms: int) -> int:
    return int(pc.sum(pc.greater(timestamps, than_ms)).as_py() or 0)


def _smallest(timestamps: pa.ChunkedArray) -> int | None:
    return pc.min(timestamps.filter(pc.greater(timestamps, 0))).as_py()


def _check_rising(tp: TopicPartition, offsets: pa.ChunkedArray) -> None:
    rising = pc.all(pc.greater(offsets.slice(1), offsets.slice(0, len(offsets) - 1))).as_py()
    if rising is False:
        raise FoldError(f"{tp}: offsets do not rise in a run that is being written.", DEFECT)


def within(part: Slice, written: Iterable[Part]) -> tuple[Part, ...]:
    """Those of `written` that hold records of the slice `part`, by offset."""
    own = (one for one in written if one.tp == part.tp and part.start <= one.file.first < part.end)
    return tuple(sorted(own, key=lambda one: one.file.first))


def joined(part: Part, later: Part) -> Part:
    """Two row groups of one partition in one file, as one part."""
    if later.file.first <= part.file.last:
        raise FoldError(
            f"{part.tp}: offset {later.file.first} comes after {part.file.last} in a run that is being written.",
            DEFECT,
        )
    first = part if part.first_rejected_offset is not None else later
    return Part(
        topic=part.topic,
        partition=part.partition,
        file=replace(
            part.file,
            last=later.file.last,
            records=part.file.records + later.file.records,
            bytes=part.file.bytes + later.file.bytes,
            newest_ms=_latest(part.file.newest_ms, later.file.newest_ms),
            keyless=part.file.keyless + later.file.keyless,
        ),
        tombstones=part.tombstones + later.tombstones,
        rejected=part.rejected + later.rejected,
        future=part.future + later.future,
        max_timestamp=max(part.max_timestamp, later.max_timestamp),
        min_timestamp=_earliest(part.min_timestamp, later.min_timestamp),
        horizons=part.horizons + later.horizons,
        next_horizon_ms=_earliest(part.next_horizon_ms, later.next_horizon_ms),
        first_rejected_offset=first.first_rejected_offset,
        first_rejected_reason=first.first_rejected_reason,
    )


def _earliest(*times: int | None) -> int | None:
    return min((time for time in times if time is not None), default=None)


def _latest(*times: int | None) -> int | None:
    return max((time for time in times if time is not None), default=None)


def completed(part: Part, file_bytes: int, sha256: str, footer: str | None) -> Part:
    """`part` once the file that it is in is closed."""
    return replace(part, file=replace(part.file, file_bytes=file_bytes, sha256=sha256, footer=footer))
