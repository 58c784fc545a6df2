from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from msgspec import Struct

from benchmarks.peers import flink
from benchmarks.peers.flink import Query, State, published, settings, statements


class Offset(Struct):
    offset: int


class Broker:
    """An output topic with two partitions of five records, of which those before `stable` are committed."""

    def __init__(self, stable: int) -> None:
        self.stable = stable

    def list_offsets(self, asked: dict[TopicPartition, Any], **options: Any) -> dict[TopicPartition, Future[Offset]]:
        assert options["isolation_level"] is IsolationLevel.READ_COMMITTED
        answers = {one: Future[Offset]() for one in asked}
        for one, answer in answers.items():
            answer.set_result(Offset(self.stable if one.partition == 1 else 5))
        return answers


def condition(monkeypatch: pytest.MonkeyPatch, *, positions: bool, stable: int) -> Callable[[], bool]:
    broker = Broker(stable)
    monkeypatch.setattr(flink, "committed_to_end", lambda *_: lambda: positions)
    monkeypatch.setattr(flink, "end_offsets", lambda *_: {0: 5, 1: 5})
    monkeypatch.setattr(flink, "admin", lambda _: broker)
    return published("broker", "group", "source", "output")


@pytest.mark.parametrize(
    ("positions", "stable", "done"),
    [(False, 5, False), (True, 4, False), (True, 5, True)],
)
def test_output_counts_once_its_last_transaction_has_ended(
    monkeypatch: pytest.MonkeyPatch, positions: bool, stable: int, done: bool
) -> None:
    """Committed positions are not enough: no partition of the output may have records that are not committed yet."""
    assert condition(monkeypatch, positions=positions, stable=stable)() is done


@pytest.mark.parametrize(
    ("state", "managed", "incremental"),
    [("hashmap", "0", "false"), ("rocksdb", "1g", "true")],
)
def test_each_state_has_the_memory_that_it_can_use(
    tmp_path: Path, state: State, managed: str, incremental: str
) -> None:
    """Managed memory and incremental checkpoints are RocksDB's; the heap's state has neither."""
    found = settings(state, 10, tmp_path / "connector.jar", tmp_path)
    assert found["state.backend.type"] == state
    assert found["taskmanager.memory.managed.size"] == managed
    assert found["execution.checkpointing.incremental"] == incremental
    assert found["execution.checkpointing.interval"] == "10 s"


@pytest.mark.parametrize(
    ("query", "kind", "charset"),
    [("deduplicate", "BYTES", False), ("last_value", "STRING", True)],
)
def test_bytes_go_through_unchanged(query: Query, kind: str, charset: bool) -> None:
    """Where columns are no bytes they are strings in the one character set that has every byte, in both tables."""
    source, output, _ = statements(query, "broker:1", "in", "out", "group")
    for table in (source, output):
        assert f"k {kind}, v {kind}" in table
        assert ("'key.raw.charset' = 'ISO-8859-1', 'value.raw.charset' = 'ISO-8859-1'" in table) is charset


@pytest.mark.parametrize("query", ["deduplicate", "last_value"])
def test_output_is_written_exactly_once(query: Query) -> None:
    """The output is transactional, with a prefix of its own, and a timeout that a broker takes by default."""
    _, output, _ = statements(query, "broker:1", "in", "out", "group")
    assert "'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'group'" in output
    assert "'properties.transaction.timeout.ms' = '900000'" in output
