"""A connector without a broker that takes snapshots, and its files: for commands about the snapshots that are there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from compactor.snapshot.snapshots import Snapshots
from compactor.storage.local import LocalStorage
from tests.support.brokerless import BrokerlessConnector
from tests.support.cli import worker_file, write_json
from tests.support.engine import Row
from tests.support.local_spark import LocalSpark
from tests.support.memory.broker import MemoryBroker
from tests.support.memory.storage import MemoryStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class KeptSnapshots:
    """Connector `c` of topic `t`: the folder has its two files, and its snapshots in `snapshots`."""

    def __init__(self, folder: Path, partitions: int = 1, **changes: Any) -> None:
        self.owner = BrokerlessConnector(cast("SparkSession", LocalSpark()), folder / "store", partitions)
        self.shelf = LocalStorage(str(folder / "snapshots"))
        self.topic = folder / "snapshots" / "c" / "t"
        settings = {"topics": "t", "snapshot.location": str(folder / "snapshots")}
        self.connector = write_json(
            folder / "c.json", {"name": "c", "connector.class": "keyfold.CompactedTopic", **settings}
        )
        self.worker = worker_file(folder)
        self._settings = replace(self.owner.settings, **changes)
        self.now_ms = 1_795_228_200_123

    def keep(self, rows: Sequence[Row]) -> str:
        """Folds `rows` and takes a snapshot; returns its id."""
        self.owner.ingest(rows)
        self.owner.publish()
        self.owner.cleaner.clean(0)
        return self.take()

    def take(self) -> str:
        """Takes a snapshot of what is folded, a minute after the last one; returns its id."""
        self.now_ms += 60_000
        (taken,) = self.snapshots().take(self.now_ms)
        return taken.id

    def snapshots(self) -> Snapshots:
        """Returns what takes and removes the connector's snapshots."""
        owner, broker = self.owner, MemoryBroker(MemoryStorage())
        return Snapshots(owner.spark, owner.catalog, owner.quarantine, broker, self._settings, self.shelf, frozenset)

    @property
    def ids(self) -> list[str]:
        """The snapshots that there are, the oldest first."""
        return sorted(path.name for path in self.topic.iterdir() if path.is_dir() and not path.is_symlink())
