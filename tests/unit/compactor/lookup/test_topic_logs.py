"""The best record of a key over the logs of a topic: by the order's value, then by partition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from compactor.lookup import topic_logs
from compactor.lookup.topic_logs import NOWHERE, TopicLogs
from compactor.model.log import PartitionLog, below
from compactor.model.record import RUN, TopicPartition
from compactor.storage.local import LocalStorage
from tests.support.engine import Row, ingested, new_state, row, with_range_reports


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


def logs(storage: LocalStorage, *partitions: list[Row], is_indexed: bool = True) -> tuple[PartitionLog, ...]:
    """Returns the logs of these records, by partition."""
    rows = [each for own in partitions for each in own]
    ranges = {number: (0, own[-1]["offset"] + 1) for number, own in enumerate(partitions)}
    state = new_state(dict.fromkeys(ranges, 0))
    return ingested(storage, state, [with_range_reports(rows, ranges)], is_indexed=is_indexed).logs


def batch(*rows: Row) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"delete_horizon": None, "rejected": None, **each} for each in rows], schema=RUN)


def at(partition: int, offset: int, key: bytes, timestamp: int) -> Row:
    return row(partition, offset, key, b"v", timestamp=timestamp)


@pytest.mark.parametrize("is_indexed", [True, False])
@pytest.mark.parametrize("held", [topic_logs.HELD_BYTES, 1], ids=["together", "a key at a time"])
def test_the_highest_time_wins_then_the_higher_partition(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, is_indexed: bool, held: int
) -> None:
    """With an index and without, and however few records are held at a time; a key that none has is nowhere."""
    monkeypatch.setattr(topic_logs, "HELD_BYTES", held)
    first = [at(0, 0, b"a", 5), at(0, 1, b"b", 7), at(0, 2, b"c", 1)]
    second = [at(1, 0, b"a", 6), at(1, 1, b"b", 7)]
    own = logs(storage, first, second, is_indexed=is_indexed)
    known = TopicLogs(storage=storage, order="timestamp", logs={"t": own})
    best = known.best("t", pa.array([b"a", b"b", b"c", b"d"], pa.binary()))
    assert best.log.tolist() == [1, 1, 0, NOWHERE]
    assert best.offset.tolist()[:3] == [0, 1, 2]
    assert known.are_late(TopicPartition("t", 0), batch(*first)).tolist() == [True, True, False]
    assert known.are_late(TopicPartition("t", 1), batch(*second)).tolist() == [False, False]


def test_a_log_counts_as_far_as_it_is_given(storage: LocalStorage) -> None:
    """What lies above the end of a plan beats nothing: no reader has it yet."""
    first, second = logs(storage, [at(0, 0, b"a", 5)], [at(1, 0, b"a", 6), at(1, 1, b"a", 9)])
    survivor = batch(at(0, 7, b"a", 8))
    for end, is_late in ((2, True), (1, False)):
        known = TopicLogs(storage=storage, order="timestamp", logs={"t": (first, below(second, end))})
        assert known.are_late(TopicPartition("t", 0), survivor).tolist() == [is_late]


def test_a_tombstone_of_a_reset_loses_to_each_record_of_the_source(storage: LocalStorage) -> None:
    """Whatever its partition and time; what was rejected is never late."""
    known = TopicLogs(
        storage=storage, order="timestamp", logs={"t": logs(storage, [at(0, 0, b"a", 5)], [at(1, 0, b"x", 1)])}
    )
    reset = row(1, -1, b"a", None, timestamp=1_000)
    rejected = {**row(1, 1, b"a", b"v", timestamp=1), "rejected": "no JSON"}
    assert known.are_late(TopicPartition("t", 1), batch(reset, rejected)).tolist() == [True, False]
    assert not known.are_late(TopicPartition("t", 0), batch(at(0, 0, b"a", 5))).any()
    assert known.are_late(TopicPartition("t", 0), batch()).dtype == np.bool_
