"""Compares the logs with the model: offsets, every record, and the counts of the runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from compactor.model.log import PartitionLog, Run
from compactor.model.record import RECORDS
from compactor.model.state import CatalogState
from compactor.runs.reader import read
from compactor.runs.scan import whole
from compactor.storage.base import Storage
from tests.support.engine import Row
from tests.support.oracle.model import KeptRecord, LogModel, Model
from tests.support.oracle.steps import Settings


class LogContents:
    """Reads the records of logs; reads a log again only once it has changed."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[Any, tuple[PartitionLog, list[Row]]] = {}

    def of(self, log: PartitionLog) -> list[Row]:
        """Returns the records of `log`, by offset."""
        known = self._known.get(log.tp)
        if known is None or (known[0].base, known[0].runs, known[0].start) != (log.base, log.runs, log.start):
            rows = [row for batch in read(self._storage, whole(log)) for row in batch.to_pylist()]
            self._known[log.tp] = known = (log, rows)
        return known[1]


def violations(state: CatalogState, model: Model, dumps: LogContents) -> Iterator[str]:
    """Yields every difference between the catalog's `state` and the model."""
    for log in state.logs:
        mine = model.logs[log.tp]
        yield from (f"{log.tp}: {wrong}" for wrong in _offsets(log, mine))
        yield from (f"{log.tp}: {wrong}" for wrong in _records(log, mine, dumps.of(log)))
        yield from (f"{log.tp}: {wrong}" for wrong in _counts(log, dumps.of(log)))
        if log.quarantine:
            yield f"{log.tp} was set aside: {log.quarantine.error}"


def _offsets(log: PartitionLog, mine: LogModel) -> Iterator[str]:
    names = ("start", "clean_end", "published", "folded_end", "end")
    offsets = [getattr(log, name) for name in names]
    if offsets != sorted(offsets):
        yield f"{names} are {offsets}"
    expected = [getattr(mine, name) for name in names]
    if offsets != expected:
        yield f"{names} are {offsets}, by the commits {expected}"
    if log.last_full_fold_ms != mine.last_fold_ms:
        yield f"the last full fold was given at {log.last_full_fold_ms}, not at {mine.last_fold_ms}"


def _records(log: PartitionLog, mine: LogModel, dump: Sequence[Row]) -> Iterator[str]:
    found = [KeptRecord({name: row[name] for name in RECORDS.names}, row["delete_horizon"]) for row in dump]
    expected = [one for one in mine.kept(log) if one in found or not mine.may_miss(one.row)]
    if found != expected:
        yield from (f"is kept, and should not be: {one}" for one in found if one not in expected)
        yield from (f"should be kept: {one}" for one in expected if one not in found)
        yield f"is kept in the order {[one.row['offset'] for one in found]}"
    rejected = [row["offset"] for row in dump if (row["rejected"] is not None) != (row["key"] is None)]
    if rejected and not mine.keeps_all:
        yield f"only records without a key are rejected, not {rejected}"


def _counts(log: PartitionLog, dump: Sequence[Row]) -> Iterator[str]:
    """Compares the counts of runs whose files lie within them with their records."""
    for run in (log.base, *log.runs) if log.base else log.runs:
        if all(run.start <= file.first and file.last < run.end for file in run.files):
            rows = [row for row in dump if run.start <= row["offset"] < run.end]
            said = (run.records, run.bytes)
            true = (len(rows), sum(map(size, rows)))
            if said != true:
                yield f"the run [{run.start}, {run.end}) says {said} records and bytes, it has {true}"
    if log.base:
        yield from _horizons(log.base, dump)


def _horizons(base: Run, dump: Sequence[Row]) -> Iterator[str]:
    times = [row["delete_horizon"] for row in dump if row["delete_horizon"] is not None]
    if base.next_horizon_ms is not None and times and base.next_horizon_ms > min(times):
        yield f"the base run says that its first horizon is {base.next_horizon_ms}, it is {min(times)}"
    if len(times) > base.horizons or (times and base.next_horizon_ms is None):
        yield f"the base run says that it has {base.horizons} horizons, it has {times}"


def size(row: Row) -> int:
    """Returns the bytes of a record as dirty ratios count them."""
    headers = sum(len(one["key"].encode()) + len(one["value"] or b"") for one in row["headers"] or ())
    return len(row["key"] or b"") + len(row["value"] or b"") + headers


def missed_cleaning(
    logs: Iterable[PartitionLog], model: Model, dumps: LogContents, now_ms: int, settings: Settings
) -> Iterator[str]:
    """Yields what a round of the cleaner at `now_ms` should have cleaned in `logs`."""
    for log in logs:
        mine, dump = model.logs[log.tp], dumps.of(log)
        dirty = [row for row in dump if log.clean_end <= row["offset"] < log.published]
        yield from (f"{log.tp}: {wrong}" for wrong in _undone(mine, dirty, now_ms, settings))
        clean = sum(size(row) for row in dump if row["offset"] < log.clean_end)
        head = sum(map(size, dirty))
        if head > settings.ratio * (clean + head):
            yield f"{log.tp}: {head} dirty bytes beside {clean} clean ones are left at ratio {settings.ratio}"


def _undone(mine: LogModel, dirty: Sequence[Row], now_ms: int, settings: Settings) -> Iterator[str]:
    late = [row for row in dirty if mine.dirty_age(row, now_ms) > settings.max_lag]
    if late:
        yield f"{late[0]} is dirty and older than max.compaction.lag.ms"
    turn = settings.interval >= 0 and mine.last_fold_ms is not None and now_ms >= mine.last_fold_ms + settings.interval
    over = [kept for kept in mine.base() if kept.horizon is not None and kept.horizon <= now_ms]
    if turn and (dirty or over):
        yield f"its turn has come (fold.full.interval.ms), and there are {dirty} dirty and {over} expired"
