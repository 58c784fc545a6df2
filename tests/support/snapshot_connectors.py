"""Connectors with base runs to take snapshots of, and a snapshot location that tests can share or make fail."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from msgspec.structs import replace

from compactor.catalog.catalog import Catalog
from compactor.errors import SnapshotError, SnapshotStorageError
from compactor.model.actions import AddPartition, AddSnapshot, AddTopic, AnyAction, Append, Publish, SetBuckets
from compactor.model.log import OutputPoint
from compactor.model.state import CatalogState
from compactor.quarantine.quarantine import QuarantineManager
from compactor.settings import CompactionPolicy, EngineSettings
from compactor.snapshot import listing, location, manifest, write
from compactor.snapshot.manifest import WrittenFiles
from compactor.snapshot.snapshots import Snapshots
from compactor.storage.base import Storage
from tests.support.catalogs import clean
from tests.support.logs import run
from tests.support.memory.broker import MemoryBroker
from tests.support.memory.storage import FailingStorage, MemoryStorage

HOUR = 3_600_000
SETTINGS = EngineSettings(
    connector="c", policy=CompactionPolicy(), snapshot_interval_ms=HOUR, snapshot_retention_count=1
)


class SnapshotConnector:
    """A connector `c` with a catalog of its own; snapshots of the topics in `refused` fail with its errors."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, place: Storage | None = None, topics: tuple[str, ...] = ("t",)
    ) -> None:
        self.storage = MemoryStorage()
        self.place = FailingStorage(place or MemoryStorage())
        self.refused: dict[str, SnapshotError] = {}
        self.tried: list[str] = []
        self.broker = MemoryBroker(self.storage)
        self.catalog = Catalog.open(self.storage, "c")
        self.catalog.take_over("test", 0)
        self.catalog.commit(lambda _: [SetBuckets(count=1), *(act for topic in topics for act in _filled(topic))], 0)
        self.snapshots = self.begin()
        monkeypatch.setattr(write, "write_data", _no_data)
        monkeypatch.setattr(write, "_check_counts", lambda *_: None)

    def begin(self, **changes: Any) -> Snapshots:
        """Starts the snapshots of a new task with changed settings."""
        settings = replace(SETTINGS, **changes)
        quarantine = QuarantineManager(self.catalog, threading.Event(), _unread)
        begun = _Snapshots(cast("Any", self), self.catalog, quarantine, self.broker, settings, self.place, frozenset)
        begun.begin()
        return begun

    def take(self, now_ms: int) -> bool:
        """Takes a due snapshot as the maintenance thread does; returns whether one was taken."""
        if not self.snapshots.due(now_ms):
            return False
        try:
            return bool(self.snapshots.take(now_ms, asked=False))
        except (SnapshotStorageError, SnapshotError) as error:
            self.snapshots.failed(error, now_ms)
            return False

    def latest(self, topic: str = "t") -> str:
        """Returns the content of LATEST."""
        return self.place.read(f"c/{topic}/{listing.LATEST}").decode().strip()

    def complete(self) -> list[str]:
        """Returns the snapshots of topic t that have a manifest."""
        return [name for name in self.place.list("c/t") if manifest.path_of(self.place, f"c/t/{name}")]

    @property
    def catalog_id(self) -> str:
        """The id of its catalog."""
        return self.catalog.state.catalog_id


class _Snapshots(Snapshots):
    """Gets the connector in place of Spark, to refuse what it says."""

    def _take(self, folders: Any, topic: str, now_ms: int, *, asked: bool, again: bool) -> AddSnapshot | None:
        connector = cast("SnapshotConnector", self._spark)
        connector.tried.append(topic)
        if topic in connector.refused:
            raise connector.refused[topic]
        return super()._take(folders, topic, now_ms, asked=asked, again=again)


def _no_data(_spark: Any, _storage: Storage, folder: Storage, _logs: Any, _inputs: Any) -> WrittenFiles:
    folder.write("data/1.parquet", b"data")
    return WrittenFiles(files=(), left_out=0, schema=())


def _filled(topic: str) -> list[AnyAction]:
    return [
        AddTopic(topic=topic, topic_id=topic.upper(), output="o", output_id="O"),
        AddPartition(topic=topic, partition=0, bucket=0, start=0),
        Append(topic=topic, partition=0, start=0, end=2, run=run(0, 2, 10)),
        Publish(topic=topic, partition=0, end=2, output=OutputPoint(2, 2)),
        replace(clean(2, f"runs/1-base-{topic}.parquet"), topic=topic),
    ]


def begin_snapshot(state: CatalogState, place: Storage, storage: Storage, name: str) -> str:
    """Begins a snapshot of topic t for this catalog without completing it; returns its folder."""
    location.write_mark(place, f"c/t/{name}", state, storage)
    place.write(f"c/t/{name}/data/1.parquet", b"half")
    return f"c/t/{name}"


def _unread(*_: object) -> list[None]:
    raise AssertionError("files were read")
