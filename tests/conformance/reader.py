"""Readers of the engine's output: a consumer of the changelog, and a reader of the newest snapshot."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import TypeAlias

import pyarrow.parquet as pq
from msgspec.structs import replace

from compactor.model.actions import AddSnapshot
from compactor.model.publish_plan import PublishPlan, PublishTarget
from compactor.model.record import TopicPartition
from compactor.publish.executors import PublishExecutor
from compactor.snapshot import manifest
from compactor.snapshot.listing import LATEST
from compactor.snapshot.snapshots import Snapshots
from compactor.storage.local import LocalStorage
from tests.support.brokerless import BrokerlessConnector
from tests.support.memory.broker import MemoryBroker
from tests.support.memory.storage import MemoryStorage

Rows: TypeAlias = list[tuple[int, bytes | None, bytes | None]]
"""Records as (offset, key, value)."""


class Follower:
    """Consumes the changelog of one partition from its beginning into `table`."""

    def __init__(self, kept: BrokerlessConnector, folder: Path, partition: int = 0) -> None:
        self._kept = kept
        self._outside = MemoryBroker(LocalStorage(str(folder / "changelog")))
        self._tp = TopicPartition("t", partition)

    @property
    def rows(self) -> Rows:
        """All records that it has read."""
        read = self._outside.output.records.get(self._tp, [])
        return [(one.source_offset, one.key, one.value) for one in read]

    def publish(self, end: int | None = None, now_ms: int = 0) -> None:
        """Publishes a fold up to `end`, by default the log's end, consumes and commits it; does nothing if it was."""
        kept, log = self._kept, self._kept.log(self._tp.partition)
        stop = log.end if end is None else end
        if stop == log.published:
            return
        held = self._outside.positions([self._tp])[self._tp]
        target = PublishTarget(
            topic="t",
            partition=self._tp.partition,
            bucket=0,
            output="o",
            start=log.published,
            end=stop,
            committed=held.offset if held else None,
        )
        plan = PublishPlan(bucket=0, epoch=kept.catalog.epoch, catalog_id="c", targets=(target,))
        state = kept.catalog.state
        sending = PublishExecutor(kept.spark, kept.storage, self._outside, lambda: False)
        sending.send(state, [plan], replace(kept.settings, publish_local_max_records=1_000_000))
        assert self._outside.output.records.keys() <= {self._tp}
        kept.publish({self._tp.partition: stop}, now_ms)

    @property
    def table(self) -> dict[bytes | None, tuple[int, bytes]]:
        """Returns key → (offset, value) of the live records."""
        last = {key: (offset, value) for offset, key, value in self.rows}
        return {key: (offset, value) for key, (offset, value) in last.items() if value is not None}


class Shelf:
    """Takes snapshots of a connector's topic t by steps 15 to 17, and reads them by their files alone."""

    def __init__(self, folder: Path) -> None:
        self._store = LocalStorage(str(folder))

    def take(self, kept: BrokerlessConnector, now_ms: int = 0) -> tuple[AddSnapshot, ...]:
        """Takes a snapshot."""
        outside = MemoryBroker(MemoryStorage())  # a world without Kafka
        return Snapshots(
            kept.spark, kept.catalog, kept.quarantine, outside, kept.settings, self._store, frozenset
        ).take(now_ms)

    def newest(self) -> Rows:
        """Returns the records of the snapshot that LATEST names; fails if it is incomplete."""
        name = self._store.read(f"c/t/{LATEST}").decode().strip()
        found = manifest.decode(self._store.read(f"c/t/{name}/{manifest.NAME}"))
        data = [self._store.read(f"c/t/{name}/{file.path}") for file in found.files]
        assert [hashlib.sha256(one).hexdigest() for one in data] == [file.sha256 for file in found.files]
        rows = [row for one in data for row in pq.read_table(io.BytesIO(one)).to_pylist()]
        assert found.records == len(rows)
        return [(row["offset"], row["key"], row["value"]) for row in rows]
