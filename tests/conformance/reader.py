"""Who reads what the engine makes: a follower of the changelog, and whoever opens the newest snapshot."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias, cast

import pyarrow.parquet as pq

from compactor import manifest, publish
from compactor.actions import AddSnapshot, State
from compactor.local import LocalStorage
from compactor.outside import Outside
from compactor.publish import BucketPlan, Target
from compactor.snapshot import LATEST
from compactor.snapshots import Snapshots
from tests.support.cleaning import Kept
from tests.support.engine import FilePublisher

Rows: TypeAlias = list[tuple[int, bytes | None, bytes | None]]
"""Records as (offset, key, value)."""


class Follower:
    """Reads the changelog of one partition from its beginning: everything in `rows`, what it then knows in `table`."""

    def __init__(self, kept: Kept, folder: Path, partition: int = 0) -> None:
        self.rows: Rows = []
        self._kept = kept
        self._folder = folder
        self._partition = partition

    def publish(self, end: int | None = None, now_ms: int = 0) -> None:
        """A fold up to `end`, or to the end of the log, is sent, read, and known to the catalog; nothing, if it was."""
        kept, log = self._kept, self._kept.log(self._partition)
        stop = log.end if end is None else end
        if stop == log.published:
            return
        target = Target(topic="t", partition=self._partition, bucket=0, output="o", start=log.published, end=stop)
        plan = BucketPlan(bucket=0, epoch=kept.catalog.epoch, catalog_id="c", targets=(target,))
        reader = FilePublisher(self._folder)
        publish.send(kept.spark, kept.storage, kept.catalog.state, [plan], 1, reader)
        found = reader.buckets()[0]
        assert {(one["topic"], one["partition"]) for one in found} <= {("t", self._partition)}
        self.rows += [(one["offset"], one["key"], one["value"]) for one in found]
        kept.publish({self._partition: stop}, now_ms)

    @property
    def table(self) -> dict[bytes | None, tuple[int, bytes]]:
        """Key → (offset, value) of what is not deleted."""
        last = {key: (offset, value) for offset, key, value in self.rows}
        return {key: (offset, value) for key, (offset, value) in last.items() if value is not None}


class _Nothing:
    """What a snapshot asks of a world without Kafka."""

    def output_starts(self, state: State, topic: str) -> Mapping[int, int]:
        return {}

    def resume_safe_ms(self, state: State, topic: str) -> int | None:
        return None


class Shelf:
    """The snapshots of a connector's topic t: made by steps 15 to 17, read as anyone would who knows only files."""

    def __init__(self, folder: Path) -> None:
        self._store = LocalStorage(str(folder))

    def take(self, kept: Kept, now_ms: int = 0) -> tuple[AddSnapshot, ...]:
        """A new one."""
        outside = cast("Outside", _Nothing())
        return Snapshots(kept.spark, kept.isolation, outside, kept.settings, self._store, frozenset).take(now_ms)

    def newest(self) -> Rows:
        """The records of the snapshot that LATEST names; it is complete, or this fails."""
        name = self._store.read(f"c/t/{LATEST}").decode().strip()
        found = manifest.decode(self._store.read(f"c/t/{name}/{manifest.NAME}"))
        data = [self._store.read(f"c/t/{name}/{file.path}") for file in found.files]
        assert [hashlib.sha256(one).hexdigest() for one in data] == [file.sha256 for file in found.files]
        rows = [row for one in data for row in pq.read_table(io.BytesIO(one)).to_pylist()]
        assert found.records == len(rows)
        return [(row["offset"], row["key"], row["value"]) for row in rows]
