from __future__ import annotations

import pytest

from benchmarks.harness.row import starting
from benchmarks.peers.kafka_streams import KafkaStreams
from benchmarks.peers.reading_only import ReadingOnly
from benchmarks.rows.registry import COMPARISONS


@pytest.mark.parametrize(
    ("variant", "name", "start"),
    [
        (KafkaStreams(), "Kafka Streams", "Kafka Streams"),
        (KafkaStreams(commit_ms=1_000), "Kafka Streams, commits each 1 s", "Kafka Streams"),
        (KafkaStreams("table", 30_000), "Kafka Streams, table, commits each 30 s", "Kafka Streams, table"),
    ],
)
def test_variants_have_names_of_their_own(variant: KafkaStreams, name: str, start: str) -> None:
    """Results are kept by name: each variant has its own; its start is that of the topology with default commits."""
    assert variant.name == name
    assert starting(variant).name == start


def test_what_has_no_late_commits_starts_as_itself() -> None:
    """A peer without another to start as is its own start."""
    peer = ReadingOnly()
    assert starting(peer) is peer


def test_no_row_compares_two_programs_of_one_name() -> None:
    """Runs are kept by row and name: within a row names differ."""
    assert [row.id for row in COMPARISONS.values() if row.ours.name == row.other.name] == []
