"""What a clean of a topic with one winner per key keeps, and when there is one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from compactor.clean.record_filter import RecordFilter
from compactor.clean.winners import Winners, is_settled, whole_topics
from compactor.model.log import PartitionLog
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from compactor.runs.scan import LOG, SCAN
from compactor.storage.local import LocalStorage
from tests.support.engine import Row, ingested, new_state, row, with_range_reports

NOW = 1_000


@pytest.fixture
def logs(tmp_path: Path) -> tuple[LocalStorage, tuple[PartitionLog, ...]]:
    """Two logs: the first has a tombstone past its horizon and a loser, the second a winner and a record that waits."""
    storage = LocalStorage(str(tmp_path))
    rows = [
        row(0, 0, b"gone", None, timestamp=5),
        row(0, 1, b"a", b"old", timestamp=1),
        row(1, 0, b"a", b"new", timestamp=2),
        row(1, 1, b"gone", b"waits", timestamp=3),
    ]
    state = new_state({0: 0, 1: 0})
    first, second = ingested(storage, state, [with_range_reports(rows, {0: (0, 2), 1: (0, 2)})], is_indexed=True).logs
    return storage, (replace(first, published=2, folded_end=2), replace(second, published=1, folded_end=1))


def survivors(*rows: Row) -> pa.RecordBatch:
    named = [{**dict.fromkeys(SCAN.names), LOG: each["partition"], **each} for each in rows]
    return pa.RecordBatch.from_pylist(named, schema=SCAN)


def kept(keep: RecordFilter) -> list[tuple[int, int]]:
    """Returns partition and offset of what is kept; the tombstone has a horizon that has passed."""
    expired = {**row(0, 0, b"gone", None, timestamp=5), "delete_horizon": NOW - 1}
    batch = survivors(expired, row(0, 1, b"a", b"old", timestamp=1), row(1, 0, b"a", b"new", timestamp=2))
    return [(each["partition"], each["offset"]) for each in keep.of_batch(batch).to_pylist()]


def test_losers_go_and_a_tombstone_stays_while_its_key_waits(
    logs: tuple[LocalStorage, tuple[PartitionLog, ...]],
) -> None:
    """What waits to be published in another log would bring the key back; once it is published, the tombstone goes."""
    storage, (first, second) = logs
    keep = RecordFilter(horizons=(NOW, NOW), now_ms=NOW)
    waits = replace(keep, winners=Winners.of(storage, "timestamp", [first, second]))
    assert kept(waits) == [(0, 0), (1, 0)]
    published = replace(second, published=2, folded_end=2)
    assert kept(replace(keep, winners=Winners.of(storage, "timestamp", [first, published]))) == [(1, 0)]
    assert kept(keep) == [(0, 1), (1, 0)], "each log by itself keeps its own last record"


def test_a_topic_is_cleaned_as_a_whole_if_no_fold_of_it_is_under_way(
    logs: tuple[LocalStorage, tuple[PartitionLog, ...]],
) -> None:
    """Of a topic with a fold that is planned or sent in part no log is cleaned; others are, with all their logs."""
    _, (first, second) = logs
    third = replace(first, topic="u")
    state = CatalogState(logs=(first, second, third))
    assert [log.tp for log in whole_topics(state, [second])] == [TopicPartition("t", 0), TopicPartition("t", 1)]
    begun = replace(second, folded_end=2)
    assert not is_settled([first, begun])
    state = CatalogState(logs=(first, begun, third))
    assert [log.tp for log in whole_topics(state, [first, third])] == [TopicPartition("u", 0)]
