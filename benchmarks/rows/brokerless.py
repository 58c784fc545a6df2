"""A connector without a broker: storage and catalog of one topic, written and committed as a worker does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from compactor.catalog.catalog import Catalog
from compactor.ingest.appends import Batch, appends
from compactor.model.actions import AddPartition, AddTopic, AnyAction, PlanFold, Publish, SetBuckets
from compactor.model.log import OutputPoint
from compactor.model.record import RUN, RangeRead, TopicPartition
from compactor.runs import writer as runfile
from compactor.runs.file_stats import FileStats
from compactor.runs.writer import RunTarget
from compactor.storage.local import LocalStorage

TOPIC: Final = "source"
_TOPIC_ID: Final = "source-id"
_CONNECTOR: Final = "bench"
LEVEL0: Final = "ingest"
"""First part of the names of jobs that ingest a micro-batch; names of other jobs are hexadecimal."""


class BrokerlessConnector:
    """Owner of a new catalog in `folder` with `partitions` empty logs."""

    def __init__(self, folder: Path, partitions: int, now_ms: int) -> None:
        self.storage = LocalStorage(str(folder))
        self.catalog = Catalog.open(self.storage, _CONNECTOR)
        self.catalog.take_over("benchmark", now_ms)
        topic = AddTopic(topic=TOPIC, topic_id=_TOPIC_ID, output="output", output_id="output-id")
        logs = [AddPartition(topic=TOPIC, partition=one, bucket=one, start=0) for one in range(partitions)]
        self.catalog.commit(lambda _: (SetBuckets(count=partitions), topic, *logs), now_ms)
        self._jobs = 0

    def write(self, tables: Sequence[pa.Table], max_bytes: int, now_ms: int) -> list[FileStats]:
        """Writes `tables` (record.RUN, by offset) as the level-0 files of one job, as ingest does."""
        self._jobs += 1
        prefix = f"{self.catalog.epoch}-{LEVEL0}{self._jobs}"
        target = RunTarget(storage=self.storage, prefix=prefix, max_bytes=max_bytes, arrived_ms=now_ms)
        batches = (batch for table in tables for batch in table.cast(RUN).to_batches())
        return list(runfile.write(batches, target, "ingest.write"))

    def append(self, parts: Sequence[FileStats], ends: Mapping[int, int], now_ms: int) -> None:
        """Commits `parts` as a micro-batch up to `ends` (partition → offset), steps 3 and 4 of docs/protocol.md."""
        ranges = tuple(self._read(parts, partition, end) for partition, end in ends.items())
        batch = Batch(ranges=ranges, parts=tuple(parts))
        self.catalog.commit(lambda state: appends(state, batch, now_ms), now_ms)

    def publish(self, now_ms: int) -> None:
        """Commits that all of the logs is to be published, then that it is; nothing is sent."""
        logs = self.catalog.state.logs
        plans: list[AnyAction] = [
            PlanFold(topic=log.topic, partition=log.partition, end=log.end, at_ms=now_ms) for log in logs
        ]
        self.catalog.commit(lambda _: plans, now_ms)
        done: list[AnyAction] = [
            Publish(topic=log.topic, partition=log.partition, end=log.end, output=OutputPoint(log.end, log.end))
            for log in logs
        ]
        self.catalog.commit(lambda _: done, now_ms)

    def _read(self, parts: Sequence[FileStats], partition: int, end: int) -> RangeRead:
        tp = TopicPartition(TOPIC, partition)
        start = self.catalog.state.log(tp).end
        records = sum(part.file.records for part in parts if part.tp == tp)
        return RangeRead(tp=tp, topic_id=_TOPIC_ID, lo=start, hi=end, start=start, records=records)
