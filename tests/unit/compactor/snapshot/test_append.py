"""`snapshot.mode=append`: a snapshot is every record that is kept up to the published offset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pandas as pd
import pytest
from msgspec.structs import replace

from compactor.errors import SnapshotError
from compactor.settings import CompactionPolicy, FoldPolicy
from compactor.snapshot import listing, manifest
from compactor.snapshot.snapshots import Snapshots
from compactor.storage.local import LocalStorage
from tests.support.brokerless import BrokerlessConnector
from tests.support.engine import Row, row
from tests.support.local_spark import LocalSpark
from tests.support.memory.broker import MemoryBroker
from tests.support.memory.storage import MemoryStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY: Final = 86_400_000
DELETE: Final = CompactionPolicy(cleanup_policy=("delete",), retention_ms=DAY)
ROWS: Final = [
    row(0, 0, None, b"visit"),
    row(0, 1, None, b"visit"),
    row(0, 2, b"k", b"1"),
    row(0, 4, b"k", b"2"),
    row(1, 0, b"k", None),
    row(1, 1, None, None),
]


class Copied:
    """A raw copy of topic t, two partitions, and its snapshot location."""

    def __init__(self, folder: Path) -> None:
        spark = cast("SparkSession", LocalSpark())
        self.connector = BrokerlessConnector(spark, folder / "store", partitions=2, policy=DELETE)
        self.shelf = LocalStorage(str(folder / "snapshots"))
        self.strings: frozenset[str] = frozenset()

    def add(self, *rows: Row, ends: dict[int, int] | None = None, now_ms: int = 0) -> None:
        """Takes records in; publishes up to `ends`, by default all of them."""
        self.connector.ingest(list(rows), now_ms=now_ms)
        self.connector.publish(ends, now_ms)

    def take(self, now_ms: int = 0, *, again: bool = False) -> int:
        """Takes a snapshot as the end of `--once` does; returns how many were taken."""
        settings = replace(
            self.connector.settings,
            snapshot_mode="append",
            snapshot_string_columns=self.strings,
            snapshot_interval_ms=1,
        )
        parts = (self.connector.spark, self.connector.catalog, self.connector.quarantine)
        broker = MemoryBroker(MemoryStorage())
        snapshots = Snapshots(*parts, broker, settings, self.shelf, frozenset)
        return len(snapshots.take(now_ms, again=again))

    @property
    def manifest(self) -> manifest.Manifest:
        """The newest snapshot's."""
        return manifest.read(self.shelf, self.connector.catalog.state.snapshots[-1].path)

    def rows(self) -> list[tuple[Any, ...]]:
        """Reads the newest snapshot as a tool does: (partition, offset, key, value), in the files' order."""
        frame = pd.read_parquet(f"{self.shelf.location}/{self.connector.catalog.state.snapshots[-1].path}")
        return [tuple(each) for each in frame[["partition", "offset", "key", "value"]].to_numpy().tolist()]


def _of(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(each["partition"], each["offset"], each["key"], each["value"]) for each in rows]


@pytest.fixture
def copied(tmp_path: Path) -> Copied:
    return Copied(tmp_path)


def test_every_record_is_a_row(copied: Copied) -> None:
    """By partition and offset: equal ones, those without a key, and those without a value."""
    copied.add(*ROWS)
    assert copied.take() == 1
    assert copied.rows() == _of(ROWS)


def test_its_manifest_says_which_offsets_it_has(copied: Copied) -> None:
    """The first offset that is kept and the offset after the last one, by partition, and that nothing is folded."""
    copied.add(*ROWS)
    copied.take()
    written = copied.manifest
    assert (written.snapshot_mode, written.policy["cleanup.policy"]) == ("append", "delete")
    assert (written.start_offsets, written.source_offsets) == ({"0": 0, "1": 0}, {"0": 5, "1": 2})
    assert (written.records, written.tombstones_excluded, written.rejected_excluded) == (6, 0, 0)
    assert sum(file.records for file in written.files) == 6


def test_a_record_that_could_not_be_read_is_in_none(copied: Copied) -> None:
    """It became a dead letter; the manifest counts it."""
    bad = {**row(0, 1, None, b"\xff"), "rejected": "VALUE_CONVERTER keyfold.Json: no"}
    copied.add(row(0, 0, None, b"a"), bad, row(0, 2, None, b"b"))
    assert copied.take() == 1
    assert [each[1] for each in copied.rows()] == [0, 2]
    assert (copied.manifest.records, copied.manifest.rejected_excluded) == (2, 1)
    assert copied.take() == 0


def test_what_waits_to_be_published_comes_later(copied: Copied) -> None:
    """Above the published offset dead letters may not be sent yet: the snapshot ends there, inside a run too."""
    copied.add(*ROWS, ends={0: 2, 1: 1})
    assert copied.take() == 1
    assert [each[:2] for each in copied.rows()] == [(0, 0), (0, 1), (1, 0)]
    assert copied.manifest.source_offsets == {"0": 2, "1": 1}
    copied.connector.publish({0: 5, 1: 2})
    assert copied.take() == 1
    assert copied.rows() == _of(ROWS)


def test_what_retention_has_removed_is_gone_from_the_next(copied: Copied) -> None:
    """Down to a snapshot without records, from the same end on; and none is taken without a change."""
    copied.add(row(0, 0, None, b"old"), now_ms=0)
    copied.add(row(0, 1, None, b"new"), now_ms=DAY)
    copied.take()
    assert copied.take() == 0
    copied.connector.cleaner.round(DAY + 1)
    assert copied.take() == 1
    assert copied.rows() == [(0, 1, None, b"new")]
    assert (copied.manifest.start_offsets, copied.manifest.source_offsets) == ({"0": 1, "1": 0}, {"0": 2, "1": 0})
    copied.connector.cleaner.round(3 * DAY)
    assert copied.take() == 1
    assert (copied.rows(), copied.manifest.records) == ([], 0)
    assert copied.take() == 0


def test_runs_that_are_gathered_have_the_same_records(copied: Copied) -> None:
    """A merge of a raw copy leaves nothing out, so that a snapshot after it repeats the one before it."""
    copied.connector.configure(DELETE, FoldPolicy(level0_files=2))
    for offset in range(4):
        copied.add(row(0, offset, b"same", b"%d" % offset))
    copied.take()
    before = copied.rows()
    assert copied.connector.cleaner.round(0).merged == 1
    assert copied.take() == 0
    assert copied.take(again=True) == 1
    assert copied.rows() == before == [(0, number, b"same", b"%d" % number) for number in range(4)]


def test_a_topic_of_which_nothing_is_published_has_none(copied: Copied) -> None:
    """A first snapshot comes with the first records."""
    assert copied.take(again=True) == 0
    copied.connector.ingest(ROWS)
    assert copied.take(again=True) == 0


def test_what_a_fold_has_left_stays_a_row(copied: Copied) -> None:
    """Of a log that was compacted before there are the last records of its keys, tombstones too, then every record."""
    copied.connector.configure(CompactionPolicy())
    copied.add(row(0, 0, b"a", b"1"), row(0, 1, b"a", b"2"), row(0, 2, b"b", None))
    copied.connector.cleaner.clean(0)
    copied.connector.configure(DELETE)
    copied.add(row(0, 3, b"a", b"3"), row(0, 4, b"a", b"4"))
    copied.take()
    assert copied.rows() == [(0, 1, b"a", b"2"), (0, 2, b"b", None), (0, 3, b"a", b"3"), (0, 4, b"a", b"4")]


def test_text_is_text_and_nothing_stays_nothing(copied: Copied) -> None:
    """`snapshot.string.columns` holds as with `latest`; a record that is no text makes no snapshot."""
    copied.strings = frozenset({"value"})
    copied.add(row(0, 0, None, "ä".encode()), row(0, 1, None, None))
    copied.take()
    assert [each[3] for each in copied.rows()] == ["ä", None]
    copied.add(row(0, 2, None, b"\xff"))
    with pytest.raises(SnapshotError, match="partition 0 at offset 2 is not UTF-8"):
        copied.take()
    assert len(listing.list_ids(copied.shelf, copied.connector.catalog.state, "t")) == 1
