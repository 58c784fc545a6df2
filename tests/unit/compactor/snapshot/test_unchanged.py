"""`--once` leaves the newest snapshot as it is where a new one would be the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pytest
from msgspec.structs import replace

from compactor.settings import CompactionPolicy
from compactor.snapshot import manifest
from compactor.snapshot.snapshots import Snapshots
from compactor.storage.local import LocalStorage
from tests.support.brokerless import BrokerlessConnector
from tests.support.engine import row
from tests.support.local_spark import LocalSpark
from tests.support.memory.broker import MemoryBroker
from tests.support.memory.storage import MemoryStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = 86_400_000


class Repeated:
    """A connector with records of topic t that are published and folded, and its snapshot location."""

    def __init__(self, folder: Path) -> None:
        self.connector = BrokerlessConnector(cast("SparkSession", LocalSpark()), folder / "store")
        self.place = LocalStorage(str(folder / "snapshots"))
        self.broker = MemoryBroker(MemoryStorage())
        self.broker.safe_ms = DAY
        self.settings = self.connector.settings
        self.add(row(0, 0, b"a", b"1"), row(0, 1, b"b", b"2"), row(0, 2, b"c", None))

    def add(self, *rows: Any) -> None:
        """Takes records in, publishes and folds them."""
        self.connector.ingest(list(rows))
        self.connector.publish()
        self.connector.cleaner.clean(0)

    def take(self, now_ms: int, *, again: bool = False) -> int:
        """Takes a snapshot; returns how many were taken."""
        parts = (self.connector.spark, self.connector.catalog, self.connector.quarantine)
        snapshots = Snapshots(*parts, self.broker, self.settings, self.place, frozenset)
        return len(snapshots.take(now_ms, again=again))

    @property
    def folder(self) -> str:
        """Where the newest snapshot lies."""
        return self.connector.catalog.state.snapshots[-1].path

    def lose(self, name: str) -> None:
        """Deletes a file of the newest snapshot."""
        self.place.delete(f"{self.folder}/{name}")


Change: TypeAlias = Callable[[Repeated], object]


def _set(field: str, value: Any) -> Change:
    def change(repeated: Repeated) -> None:
        repeated.settings = replace(repeated.settings, **{field: value})

    return change


def _safe(ms: int | None) -> Change:
    return lambda repeated: setattr(repeated.broker, "safe_ms", ms)


@pytest.fixture
def repeated(tmp_path: Path) -> Repeated:
    return Repeated(tmp_path)


def test_a_snapshot_is_not_repeated_where_nothing_has_changed(repeated: Repeated) -> None:
    """Its files and its commit stay the only ones; a command's snapshot is taken all the same."""
    assert repeated.take(1000) == 1
    before = repeated.connector.catalog.version
    assert repeated.take(2000) == 0
    assert repeated.connector.catalog.version == before
    assert repeated.take(3000, again=True) == 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda repeated: repeated.add(row(0, 3, b"d", b"3")), id="another record"),
        pytest.param(lambda repeated: repeated.lose(manifest.NAME), id="no manifest"),
        pytest.param(
            lambda repeated: repeated.lose(manifest.read(repeated.place, repeated.folder).files[0].path), id="no data"
        ),
        pytest.param(_set("snapshot_string_columns", frozenset({"value"})), id="other columns"),
        pytest.param(_set("policy", CompactionPolicy(delete_retention_ms=1)), id="another policy"),
        pytest.param(_safe(2 * DAY), id="more time than the manifest promises"),
        pytest.param(_safe(None), id="no end of the time to go on"),
    ],
)
def test_a_snapshot_that_would_differ_is_taken(repeated: Repeated, change: Change) -> None:
    """Whatever differs, of its records, of what its manifest says, or of what is left of its files."""
    repeated.take(1000)
    change(repeated)
    assert repeated.take(2000) == 1
    assert repeated.take(3000) == 0


@pytest.mark.parametrize(("since_ms", "taken"), [(DAY // 2, 0), (DAY // 2 + 1, 1), (3 * DAY, 1)])
def test_a_snapshot_is_taken_anew_before_readers_run_out_of_time(repeated: Repeated, since_ms: int, taken: int) -> None:
    """Once half of the time is over in which the output can be resumed from where it ends."""
    repeated.take(0)
    assert repeated.take(since_ms) == taken
