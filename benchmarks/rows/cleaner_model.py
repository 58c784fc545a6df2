"""Commits what the cleaner would, without files: keyfold's own rules decide, sizes are computed from the keys."""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

from compactor.catalog.catalog import Catalog
from compactor.clean import schedule, tiers
from compactor.clean.due import Queue
from compactor.clean.tiers import MergePick
from compactor.model.actions import AnyAction, Clean, Merge
from compactor.model.log import BASE, PartitionLog, Run, RunFile
from compactor.runs.file_stats import FileStats
from compactor.settings import CompactionPolicy, FoldPolicy
from connectors.runtime.maintenance_thread import VACUUM_GRACE_MS

RECORD_BYTES: Final = 113
"""Bytes of key and value of a record with a value of 100 bytes."""


class CleanerModel:
    """Models the logs of `topic` under the default settings, each with `keys` uniformly distributed keys."""

    def __init__(self, topic: str, keys: int) -> None:
        self._topic = topic
        self._keys = keys
        self._policy, self._fold = CompactionPolicy(), FoldPolicy()
        self._last: Queue | None = None
        self._names = count()
        self._dropped: deque[tuple[int, str]] = deque()

    def parts(self, number: int, partitions: int, records: int) -> list[FileStats]:
        """Returns what micro-batch `number` would have written: one file, `records` records of each partition."""
        path, first = self._path("ingest"), number * records
        return [
            FileStats(
                topic=self._topic, partition=one, file=self._file(path, first, first + records, records, partitions)
            )
            for one in range(partitions)
        ]

    def clean(self, catalog: Catalog, now_ms: int) -> None:
        """Commits the cleaning, then the merges, that are due; has the catalog forget old files, as vacuum does."""
        before = catalog.state.paths
        decisions = schedule.evaluate_all(catalog.state.logs, self._policy, self._fold, now_ms, {})
        choice = schedule.choose(decisions, self._last, self._fold.job_bytes)
        self._last = choice.last
        cleaned = {decision.tp for decision in choice.picked}
        self._commit(catalog, [self._clean(catalog.state.log(tp), now_ms) for tp in sorted(cleaned)], now_ms)
        picks = tiers.pick_merges(catalog.state.logs, self._fold, cleaned, self._fold.job_bytes)
        self._commit(catalog, [self._merge(pick) for pick in picks], now_ms)
        self._dropped.extend((now_ms, path) for path in before - catalog.state.paths)
        for path in self._past_grace(now_ms):
            catalog.forget(path)

    def _commit(self, catalog: Catalog, actions: Sequence[AnyAction], now_ms: int) -> None:
        catalog.commit(lambda _: actions, now_ms)

    def _past_grace(self, now_ms: int) -> Iterator[str]:
        while self._dropped and now_ms - self._dropped[0][0] > VACUUM_GRACE_MS:
            yield self._dropped.popleft()[1]

    def _clean(self, log: PartitionLog, now_ms: int) -> Clean:
        end = log.published
        kept = distinct(self._keys, end - log.start)
        file = self._file(self._path("clean"), log.start, end, kept, 1)
        base = Run(start=log.start, end=end, level=BASE, files=(file,), records=kept, bytes=file.bytes)
        return Clean(topic=log.topic, partition=log.partition, end=end, base=base, at_ms=now_ms)

    def _merge(self, pick: MergePick) -> Merge:
        most = sum(run.records for run in pick.runs)  # rounding must not make a merge larger than what it replaces
        kept = min(distinct(self._keys, pick.end - pick.start), most)
        file = self._file(self._path("merge"), pick.start, pick.end, kept, 1)
        stats = FileStats(topic=pick.tp.topic, partition=pick.tp.partition, file=file)
        return Merge(topic=pick.tp.topic, partition=pick.tp.partition, run=pick.result([stats]))

    def _path(self, job: str) -> str:
        """Returns a path as long as a real one, because the size of commits counts."""
        return f"runs/1-{job}{next(self._names)}-{'0' * 16}.parquet"

    def _file(self, path: str, start: int, end: int, records: int, partitions: int) -> RunFile:
        size = records * RECORD_BYTES
        checksum = hashlib.sha256(path.encode()).hexdigest()
        return RunFile(
            path=path, first=start, last=end - 1, records=records, bytes=size, file_bytes=size * partitions,
            sha256=checksum, newest_ms=0, footer=f"{size}:{checksum}",
        )  # fmt: skip


def distinct(keys: int, records: int) -> int:
    """Returns how many of `keys` equally likely keys `records` records have on average; at least one."""
    return max(1, round(keys * -math.expm1(-records / keys)))
