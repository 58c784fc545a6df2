"""Typed snapshots of connectors without a broker, read by pyarrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq

from compactor.snapshot import manifest
from compactor.snapshot.manifest import Manifest, TypedInputs
from compactor.snapshot.partitions import parsed
from compactor.snapshot.snapshots import Snapshots
from compactor.snapshot.typed_table import METADATA
from compactor.storage.local import LocalStorage
from connectors.chain.spec import chain_spec
from connectors.placeholders import resolve
from connectors.typed.column_types import ValueTypes
from tests.support.brokerless import BrokerlessConnector
from tests.support.engine import Row
from tests.support.local_spark import LocalSpark
from tests.support.memory.broker import MemoryBroker
from tests.support.memory.storage import MemoryStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Taken(NamedTuple):
    """A snapshot: its manifest, and the rows of its files in their order."""

    manifest: Manifest
    table: pa.Table
    files: Sequence[Path]


class TypedConnector:
    """A connector `c` of topic `t` that takes typed snapshots; `settings` are those of its converters."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str],
        *,
        key: bool = False,
        metadata: Sequence[str] = tuple(METADATA),
        partitions: int = 1,
    ) -> None:
        spark = cast("SparkSession", LocalSpark())
        self.connector = BrokerlessConnector(spark, folder / "store", partitions=partitions)
        self.shelf = LocalStorage(str(folder / "snapshots"))
        self.key = key
        self.metadata = tuple(metadata)
        self._now_ms = 0
        self.set(settings)

    def set(self, settings: Mapping[str, str], **changes: Any) -> None:
        """Continues with other settings, as after a restart."""
        chain = chain_spec(settings)
        values = ValueTypes(side="value", chain=chain, resolve=resolve, given=changes.get("given"))
        keys = ValueTypes(side="key", chain=chain, resolve=resolve)
        by = changes.get("partitions", "none")
        partitions = () if by == "none" else parsed(by)
        typed = TypedInputs(key=keys if self.key else None, value=values, metadata=self.metadata, partitions=partitions)
        owner = self.connector
        engine = changes.get("engine", owner.settings)
        broker = changes.get("broker") or MemoryBroker(MemoryStorage())
        self.snapshots = Snapshots(owner.spark, owner.catalog, owner.quarantine, broker, engine, self.shelf, frozenset)
        self.snapshots.typed = typed

    def fold(self, rows: Sequence[Row]) -> None:
        """Ingests, publishes and folds `rows`."""
        self.connector.ingest(rows)
        self.connector.publish()
        self.connector.cleaner.clean(0)

    def take(self, *, again: bool = True) -> Taken:
        """Takes a snapshot of what is folded."""
        self._now_ms += 1_000  # ids begin with the second
        self.snapshots.take(self._now_ms, again=again)
        return self.newest()

    def newest(self) -> Taken:
        """Returns the newest snapshot."""
        newest = self.connector.catalog.state.snapshots[-1]
        said = manifest.read(self.shelf, newest.path)
        files = [Path(self.shelf.location, newest.path, file.path) for file in said.files]
        return Taken(said, pa.concat_tables([pq.read_table(file) for file in files]), files)
