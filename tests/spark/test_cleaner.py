from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compactor.clean.cleaner import Cleaner
from compactor.clean.recount import recount
from compactor.errors import FailpointError, FoldFailedError, StorageError
from compactor.fold.latest_per_key import FoldJob
from compactor.model.log import BASE
from compactor.runs import writer
from compactor.settings import CompactionPolicy, FoldPolicy
from tests.support.brokerless import BrokerlessConnector, before_next_rewrite
from tests.support.dict_model import DictModel
from tests.support.engine import Row, row

HOUR = 3_600_000

KeptOf = Callable[..., BrokerlessConnector]


@pytest.fixture
def kept_of(spark: SparkSession, tmp_path: Path) -> KeptOf:
    return lambda **settings: BrokerlessConnector(spark, tmp_path / "kept", **settings)


def some(lo: int, hi: int, keys: int = 5, partition: int = 0) -> list[Row]:
    return [row(partition, offset, b"k%d" % (offset % keys), b"v%d" % offset) for offset in range(lo, hi)]


def test_a_log_is_folded_once_it_is_dirty_enough_and_not_before(kept_of: KeptOf) -> None:
    """The dirty ratio has to be greater than the limit: at 0.5 a head as large as the base is not folded."""
    connector = kept_of()
    connector.ingest([row(0, 0, b"a", b"1"), row(0, 1, b"b", b"1")])
    connector.publish()
    assert connector.cleaner.round(0).cleaned == 1
    connector.ingest([row(0, 2, b"a", b"2"), row(0, 3, b"b", b"2")])
    connector.publish()
    assert not connector.cleaner.round(0)
    connector.ingest([row(0, 4, b"a", b"3")])
    connector.publish()
    assert connector.cleaner.round(0).cleaned == 1
    assert connector.rows() == [(3, b"b", b"2"), (4, b"a", b"3")]


def test_an_idle_log_is_folded_when_its_oldest_record_is_too_old(kept_of: KeptOf) -> None:
    """max.compaction.lag.ms counts from the oldest dirty record, with or without new ones, whatever the ratio."""
    connector = kept_of(policy=CompactionPolicy(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=6 * HOUR))
    connector.ingest(
        [row(0, 0, b"a", b"1", timestamp=1000), row(0, 1, b"a", b"2", timestamp=5 * HOUR)], now_ms=5 * HOUR
    )
    connector.publish()
    assert not connector.cleaner.round(6 * HOUR + 1000)
    assert connector.cleaner.round(6 * HOUR + 1001).cleaned == 1
    assert connector.rows() == [(1, b"a", b"2")]


def test_tombstones_of_an_idle_log_go_when_their_time_is_over(kept_of: KeptOf) -> None:
    """Kafka never comes back to an idle log; here the horizon is enough."""
    connector = kept_of(policy=CompactionPolicy(delete_retention_ms=10), fold=FoldPolicy(full_interval_ms=20))
    connector.ingest([row(0, 0, b"a", b"1"), row(0, 1, b"a", None)])
    connector.publish()
    assert connector.cleaner.round(100).cleaned == 1
    assert connector.rows() == [(1, b"a", None)]
    assert not connector.cleaner.round(119)
    assert connector.cleaner.round(120).cleaned == 1
    assert connector.rows() == []


def test_runs_are_merged_by_levels_and_stay_what_they_were(kept_of: KeptOf) -> None:
    """Level-0 runs that wait become one of level 1, those one of level 2; what survives is the last record of a key."""
    never = CompactionPolicy(min_cleanable_dirty_ratio=1.0)
    connector = kept_of(partitions=2, policy=never, fold=FoldPolicy(level0_files=2, tier_runs=2, full_interval_ms=-1))
    rows = [one for partition in (0, 1) for one in some(0, 80, partition=partition)]
    for lo in range(0, 80, 10):
        connector.ingest([one for one in rows if lo <= one["offset"] < lo + 10])
        connector.publish()
        while connector.cleaner.round(0):
            pass
    levels = [[run.level for run in connector.log(partition).runs] for partition in (0, 1)]
    assert levels == [[3], [3]]
    latest = DictModel(rows).survivors(0, 80)
    assert [one for p in (0, 1) for one in connector.rows(p)] == [
        (one["offset"], one["key"], one["value"]) for one in latest
    ]
    assert connector.counters.values()["merges"] == 14


def test_a_merge_keeps_tombstones_and_stamps_none(kept_of: KeptOf) -> None:
    """Only a full fold knows that nothing lies before a tombstone: a merge keeps it, without a horizon."""
    never = CompactionPolicy(min_cleanable_dirty_ratio=1.0, delete_retention_ms=0)
    connector = kept_of(policy=never, fold=FoldPolicy(level0_files=2, full_interval_ms=-1))
    connector.ingest([row(0, 0, b"a", b"1")])
    connector.ingest([row(0, 1, b"a", None)])
    connector.publish()
    assert connector.cleaner.round(5).merged == 1
    (run,) = connector.log().runs
    assert (run.tombstones, run.horizons, connector.rows()) == (1, 0, [(1, b"a", None)])


def test_the_ratio_counts_what_is_foldable_to_the_byte(kept_of: KeptOf) -> None:
    """Where published lies inside a micro-batch, its files are counted anew at that offset before it is decided."""
    connector = kept_of(policy=CompactionPolicy(min_cleanable_dirty_ratio=0.5))
    connector.ingest([row(0, 0, b"a", b"x" * 9)])
    connector.publish()
    connector.cleaner.round(0)
    connector.ingest([row(0, 1, b"b", b"y" * 9), row(0, 2, b"c", b"z" * 900)])
    connector.publish({0: 2})
    assert not connector.cleaner.round(0)
    assert [(run.start, run.end, run.bytes) for run in connector.log().runs] == [(1, 2, 10), (2, 3, 901)]
    connector.publish({0: 3})
    assert connector.cleaner.round(0).cleaned == 1


def test_retention_moves_the_start_by_whole_files(kept_of: KeptOf) -> None:
    """With delete in the policy the oldest files go once the youngest record of each is too old; the rest stays."""
    policy = CompactionPolicy(cleanup_policy=("compact", "delete"), min_cleanable_dirty_ratio=1.0, retention_ms=100)
    connector = kept_of(policy=policy, fold=FoldPolicy(full_interval_ms=-1))
    connector.ingest([row(0, 0, b"a", b"1", timestamp=10), row(0, 1, b"b", b"1", timestamp=50)], now_ms=50)
    connector.ingest([row(0, 2, b"c", b"1", timestamp=60)], now_ms=60)
    connector.publish()
    assert not connector.cleaner.round(150)
    assert connector.cleaner.round(151).expired == 1
    assert (connector.log().start, connector.rows()) == (2, [(2, b"c", b"1")])
    assert connector.cleaner.round(500).expired == 1
    assert (connector.log().start, connector.rows()) == (3, [])


def test_a_raw_copy_is_merged_without_folding(kept_of: KeptOf) -> None:
    """cleanup.policy=delete keeps every record, also those without a key; files are still gathered."""
    policy = CompactionPolicy(cleanup_policy=("delete",), retention_ms=1000)
    connector = kept_of(policy=policy, fold=FoldPolicy(level0_files=2))
    connector.ingest([row(0, 0, b"a", b"1"), row(0, 1, None, b"n")])
    connector.ingest([row(0, 2, b"a", b"2")])
    connector.publish()
    assert connector.cleaner.round(0).merged == 1
    assert connector.cleaner.clean(0) == ()
    assert connector.rows() == [(0, b"a", b"1"), (1, None, b"n"), (2, b"a", b"2")]
    assert [run.level for run in connector.log().runs] == [1]


def test_what_was_kept_without_a_key_is_not_folded(kept_of: KeptOf) -> None:
    """A log that was raw and is compacted from now on loses its records without a key at the next full fold."""
    connector = kept_of(policy=CompactionPolicy(cleanup_policy=("delete",)))
    connector.ingest([row(0, 0, None, b"n"), row(0, 1, b"", b"empty key")])
    connector.publish()
    connector.configure(CompactionPolicy())
    (done,) = connector.cleaner.clean(0)
    assert (done.records_before, done.records) == (2, 1)
    assert connector.rows() == [(1, b"", b"empty key")]


def test_records_without_a_key_are_counted_once(kept_of: KeptOf) -> None:
    """Whether a merge drops them, or folds of which the first ends inside their file: four are gone, four counted."""
    raw = CompactionPolicy(cleanup_policy=("delete",))
    connector = kept_of(policy=raw)
    for lo in (0, 2):
        connector.ingest([row(0, lo, None, b"n"), row(0, lo + 1, b"k", b"v")])
    connector.publish()
    connector.ingest([row(0, 4, b"a", b"v"), row(0, 5, None, b"n"), row(0, 6, b"b", b"v"), row(0, 7, None, b"n")])
    connector.configure(
        CompactionPolicy(min_cleanable_dirty_ratio=1.0), FoldPolicy(level0_files=2, full_interval_ms=-1)
    )
    counted = []
    assert connector.cleaner.round(0).merged == 1
    for end in (6, 7, 8):
        counted.append(connector.counters.values()["records_rejected"])
        connector.publish({0: end})
        connector.cleaner.clean(0)
    assert [*counted, connector.counters.values()["records_rejected"]] == [2, 3, 3, 4]
    assert connector.rows() == [(3, b"k", b"v"), (4, b"a", b"v"), (6, b"b", b"v")]


def test_a_commit_has_its_own_time(kept_of: KeptOf) -> None:
    """What a fold of an hour replaced is dropped when it commits, not when its round began: the grace begins then."""
    connector = kept_of()
    times = iter([5, HOUR + 5, HOUR + 5, 3, 3, 3])  # of each clean: it begins, commits, has ended
    cleaner = Cleaner(
        connector.rewriter,
        connector.catalog,
        connector.quarantine,
        connector.settings,
        connector.counters,
        frozenset,
        lambda: next(times),
    )
    connector.ingest(some(0, 6, keys=2))
    connector.publish()
    (old,) = connector.log().paths
    cleaner.clean(5)
    assert (connector.catalog.unreferenced_since(old), connector.log().last_full_fold_ms) == (HOUR + 5, 5)
    (old,) = connector.log().paths
    connector.ingest(some(6, 9, keys=2))
    connector.publish()
    cleaner.clean(5)
    assert connector.catalog.unreferenced_since(old) == 5


def test_a_fold_is_committed_on_what_came_meanwhile(kept_of: KeptOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a fold runs, ingest and publish go on; its commit leaves what they did, and knows its own output offset."""
    connector = kept_of()
    connector.ingest(some(0, 6, keys=2))
    connector.publish()

    def more() -> None:
        connector.ingest(some(6, 9, keys=2))
        connector.publish()

    before_next_rewrite(connector, more)
    assert connector.cleaner.round(0).cleaned == 1
    log = connector.log()
    assert (log.clean_end, log.published, log.end, [(run.start, run.end) for run in log.runs]) == (6, 9, 9, [(6, 9)])
    assert log.base is not None
    assert (log.base.level, log.base_output.output_offset if log.base_output else None) == (BASE, 1006)
    assert [one[0] for one in connector.rows()] == [4, 5, 6, 7, 8]


@pytest.mark.long  # it waits for the limit
def test_a_limit_slows_reading_and_writing_together(kept_of: KeptOf) -> None:
    """fold.io.max.bytes.per.second bounds the bytes read plus the bytes written."""
    rng = random.Random(1)
    rows = [row(0, offset, b"k%d" % offset, rng.randbytes(1000)) for offset in range(200)]
    connector = kept_of(limit=200_000)
    connector.ingest(rows)
    connector.publish()
    began = time.monotonic()
    assert connector.cleaner.round(0).cleaned == 1
    assert time.monotonic() - began >= 400 * 1000 / 200_000
    assert len(connector.rows()) == 200


def test_an_interrupted_fold_leaves_the_old_runs(kept_of: KeptOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fold that ends before its commit never happened: the same records are kept, and the next life folds them."""
    connector = kept_of()
    connector.ingest(some(0, 10))
    connector.publish()
    before = connector.log()
    monkeypatch.setenv("KEYFOLD_FAILPOINTS", "clean.before-commit=error")
    with pytest.raises(FailpointError):
        connector.cleaner.round(0)
    monkeypatch.delenv("KEYFOLD_FAILPOINTS")
    connector.restart()
    assert connector.log() == before
    assert connector.cleaner.round(0).cleaned == 1
    assert [one[0] for one in connector.rows()] == [5, 6, 7, 8, 9]


def damage_page(connector: BrokerlessConnector, partition: int) -> Callable[[], None]:
    """Flips bytes in the pages of one partition's row group of its first file; gives what puts them back."""
    import pyarrow.parquet as pq

    file = connector.log(partition).runs[0].files[0]
    path = Path(connector.storage.location) / file.path
    original = path.read_bytes()
    metadata = pq.ParquetFile(path).metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    (group,) = [one for one in groups if one.column(1).statistics.min == partition]
    column = next(group.column(n) for n in range(group.num_columns) if group.column(n).path_in_schema == "value")
    end = column.data_page_offset + column.total_compressed_size - (column.data_page_offset - _start(column))
    broken = bytearray(original)
    broken[end - 6 : end - 2] = bytes(byte ^ 0xFF for byte in broken[end - 6 : end - 2])
    path.chmod(0o644)
    path.write_bytes(broken)

    def restore() -> None:
        path.write_bytes(original)

    return restore


def _start(column: object) -> int:
    dictionary = getattr(column, "dictionary_page_offset", None)
    return int(dictionary if dictionary is not None else column.data_page_offset)  # type: ignore[attr-defined]


def test_a_damaged_page_sets_its_partition_aside_alone(kept_of: KeptOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three partitions in one file the two that are intact are folded; the third waits, shown with its error."""
    monkeypatch.setattr(writer, "SHARED_BYTES", 0)  # with more records each has row groups of its own
    connector = kept_of(partitions=3)
    connector.ingest([one for p in range(3) for one in some(0, 20, partition=p)])
    connector.publish()
    assert len({connector.log(p).runs[0].files[0].path for p in range(3)}) == 1
    restore = damage_page(connector, 1)
    assert connector.cleaner.round(1000).cleaned == 2
    held = connector.log(1).quarantine
    assert held is not None
    assert (held.failures, held.since_ms, held.retry_ms) == (1, 1000, 61_000)
    assert "t-1, offsets [0, 20)" in held.error
    assert "is damaged" in held.error
    assert [connector.log(p).clean_end for p in range(3)] == [20, 0, 20]
    connector.cleaner.round(61_000)
    again = connector.log(1).quarantine
    assert again is not None
    assert (again.failures, again.since_ms, again.retry_ms) == (2, 1000, 61_000 + 120_000)
    restore()
    assert connector.cleaner.round(61_000 + 120_000).cleaned == 1
    assert connector.log(1).quarantine is None
    assert [one[0] for one in connector.rows(1)] == [15, 16, 17, 18, 19]


def test_a_damaged_footer_is_known_before_anything_is_folded(kept_of: KeptOf) -> None:
    """A footer whose statistics are wrong would let a reader leave records out: no fold begins with such a file."""
    connector = kept_of(partitions=2)
    connector.ingest([one for p in range(2) for one in some(0, 20, partition=p)])
    connector.ingest(some(20, 40, partition=1))
    connector.publish()
    file = connector.log(0).runs[0].files[0]
    path = Path(connector.storage.location) / file.path
    data = bytearray(path.read_bytes())
    assert file.footer is not None
    data[len(data) - int(file.footer.partition(":")[0]) // 2] ^= 0x10
    path.chmod(0o644)
    path.write_bytes(data)
    assert not connector.cleaner.round(0)
    assert ["is damaged" in held.error for p in range(2) if (held := connector.log(p).quarantine)] == [True, True]


def test_a_store_that_fails_is_no_damage(kept_of: KeptOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """No room left, and every file is sound: nothing is set aside, and the error reaches whoever runs the connector."""
    connector = kept_of(partitions=2)
    connector.ingest([one for p in range(2) for one in some(0, 20, partition=p)])
    connector.publish()

    def full(*_: object) -> object:
        raise StorageError("No space left on device.")

    connector.before_rewrite = full
    with pytest.raises(StorageError, match="No space"):
        connector.cleaner.round(0)
    assert [connector.log(p).quarantine for p in range(2)] == [None, None]


def test_who_asks_for_a_fold_hears_that_it_failed(kept_of: KeptOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the background a fold may fail and be tried again; on command it is an error at once."""
    connector = kept_of()
    connector.ingest(some(0, 20))
    connector.publish()

    def breaks(*_: object) -> object:
        raise RuntimeError("out of luck")

    connector.before_rewrite = breaks
    assert not connector.cleaner.round(0)
    assert connector.cleaner.clean(0, asked=False) == ()
    with pytest.raises(FoldFailedError, match="t-0 failed: out of luck"):
        connector.cleaner.clean(0)


@pytest.mark.parametrize("partitions", [1, 40])
def test_a_file_that_was_counted_in_parts_is_still_read_once(kept_of: KeptOf, partitions: int) -> None:
    """Whatever lies on either side of a bound inside a file by then, in runs merged or folded: no record twice."""
    connector = kept_of(partitions=partitions, policy=CompactionPolicy(min_cleanable_dirty_ratio=0.99))
    connector.ingest([one for p in range(partitions) for one in some(0, 6, keys=6, partition=p)])
    connector.publish({0: 3})
    restated = connector.catalog.state.log(connector.log(0).tp)
    run = restated.runs[0]
    connector.catalog.commit(lambda _: [recount(connector.storage, restated, run)], 0)
    assert [(one.start, one.end, one.records, one.bytes) for one in connector.log(0).runs] == [
        (0, 3, 3, 12),
        (3, 6, 3, 12),
    ]
    connector.publish()
    done = connector.cleaner.clean(0)
    assert {(one.records_before, one.records) for one in done} == {(6, 6)}
    assert [len(connector.rows(p)) for p in range(partitions)] == [6] * partitions


def test_nothing_is_folded_of_a_log_whose_position_is_not_known(kept_of: KeptOf) -> None:
    """Until it is, cleaning could pass what was never sent; by then even a command leaves the log alone."""
    connector = kept_of(partitions=2)
    connector.ingest([one for p in range(2) for one in some(0, 20, partition=p)])
    connector.publish()
    unsure = frozenset({connector.log(1).tp})
    cleaner = Cleaner(
        connector.rewriter,
        connector.catalog,
        connector.quarantine,
        connector.settings,
        connector.counters,
        lambda: unsure,
    )
    assert [one.partition for one in cleaner.clean(0)] == [0]


def test_release_takes_up_what_is_whole_again_and_nothing_else(kept_of: KeptOf) -> None:
    """By command before its time: refused with the file while that is missing, done once it is back."""
    connector = kept_of(partitions=2)
    connector.ingest([one for p in range(2) for one in some(0, 4, partition=p)])
    connector.publish()
    path = Path(connector.storage.location) / connector.log().runs[0].files[0].path
    aside = path.rename(path.with_suffix(".aside"))
    assert not connector.cleaner.round(0)
    assert [connector.log(p).quarantine is None for p in range(2)] == [False, False]
    with pytest.raises(StorageError, match=path.name):
        connector.quarantine.release([connector.log(1)], 1)
    aside.rename(path)
    assert connector.quarantine.release([connector.log(1)], 1) == 1
    assert [connector.log(p).quarantine is None for p in range(2)] == [False, True]
    assert connector.cleaner.round(1).cleaned == 1


def test_a_fold_that_keeps_failing_sets_its_partition_aside(kept_of: KeptOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the files are sound and one log's fold fails for another reason, it is set aside after the third time."""
    connector = kept_of(partitions=2)

    def fails(job: FoldJob) -> None:
        if any(part.tp.partition == 1 for part in job.ranges):
            raise RuntimeError("of partition 1")

    connector.before_rewrite = fails
    connector.ingest([one for p in range(2) for one in some(0, 4, partition=p)])
    connector.publish()
    assert [connector.cleaner.round(now).cleaned for now in (0, 1, 2)] == [1, 0, 0]
    held = connector.log(1).quarantine
    assert held is not None
    assert held.error == "of partition 1"
    assert connector.log(0).quarantine is None
