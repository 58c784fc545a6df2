"""Logs of run metadata without files, for tables of decisions."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from compactor.model.log import BASE, PartitionLog, Run, RunFile, empty
from compactor.model.record import TopicPartition

TP = TopicPartition("t", 0)
HOUR = 3_600_000
DAY = 24 * HOUR


def file(first: int, last: int, size: int, *, path: str = "", newest_ms: int | None = None) -> RunFile:
    """Returns a file with a record at every offset from `first` to `last`, of `size` bytes in all."""
    name = path or f"runs/{first}-{last}-{size}.parquet"
    records = last - first + 1
    return RunFile(
        path=name, first=first, last=last, records=records, bytes=size, file_bytes=size, sha256="0", newest_ms=newest_ms
    )


def run(
    start: int, end: int, size: int | Sequence[RunFile], *, level: int = 0, arrived: int = 0, oldest: int | None = None
) -> Run:
    """Returns a run of the files `size`, or of one file of `size` bytes with all offsets."""
    files = (file(start, end - 1, size),) if isinstance(size, int) else tuple(size)
    return Run(
        start=start,
        end=end,
        level=level,
        files=files,
        records=sum(one.records for one in files),
        bytes=sum(one.bytes for one in files),
        max_timestamp=arrived,
        arrived_ms=arrived,
        oldest_ms=oldest,
    )


def base(end: int, size: int, *, tombstones: int = 0, horizons: int = 0, next_horizon: int | None = None) -> Run:
    """Returns a base run of [0, end)."""
    made = run(0, end, size, level=BASE) if size else run(0, end, (), level=BASE)
    return replace(made, tombstones=tombstones, horizons=horizons, next_horizon_ms=next_horizon)


def log(
    *runs: Run,
    clean: Run | None = None,
    published: int | None = None,
    end: int | None = None,
    tp: TopicPartition = TP,
    folded_ms: int | None = None,
) -> PartitionLog:
    """Returns a log of `runs` above the base run `clean`, by default published to its end."""
    clean_end = clean.end if clean else 0
    last = end if end is not None else max([clean_end, *(one.end for one in runs)])
    sent = last if published is None else published
    made = replace(empty(tp, 0, 0, None), end=last, folded_end=sent, published=sent, clean_end=clean_end)
    return replace(made, base=clean, runs=runs, last_full_fold_ms=folded_ms)
