"""What the cleaner counts of its work, for describe and the metrics, and what it logs of a round."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from structlog.testing import capture_logs

from compactor.settings import CompactionPolicy
from tests.support.brokerless import BrokerlessConnector
from tests.support.engine import row
from tests.support.local_spark import LocalSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_full_folds_are_counted_by_partition_and_by_job(tmp_path: Path) -> None:
    """One job folds both partitions, with what it read, kept and removed; a round with nothing to fold counts none."""
    connector = BrokerlessConnector(cast("SparkSession", LocalSpark()), tmp_path / "store", partitions=2)
    connector.ingest([row(number, offset, b"k", b"v") for number in (0, 1) for offset in range(2)])
    connector.publish()
    for _ in range(2):
        connector.cleaner.clean(0)
    counts = connector.counters.values()
    names = ("fold_jobs", "full_folds", "fold_records_removed")
    assert [counts[name] for name in names] == [1, 2, 2]
    assert counts["fold_bytes_read"] == 2 * counts["fold_bytes_written"] > 0


def test_a_round_names_its_first_logs_and_counts_the_others(tmp_path: Path) -> None:
    """Each with why it is cleaned; of ten thousand, a line each would take as long as the cleaning."""
    connector = BrokerlessConnector(cast("SparkSession", LocalSpark()), tmp_path / "store", partitions=102)
    connector.ingest([row(number, offset, b"k", b"v") for number in range(102) for offset in range(2)])
    connector.publish()
    with capture_logs() as logs:
        assert connector.cleaner.round(0).cleaned == 102
    lines = [line for line in logs if line["event"] == "cleaning"]
    named, others = [line for line in lines if "why" in line], [line["others"] for line in lines if "others" in line]
    assert (len({line["partition"] for line in named}), others) == (100, [2])


def test_retention_names_its_first_logs_and_counts_the_others(tmp_path: Path) -> None:
    """A line each, once for what goes: of ten thousand logs the log of the worker would be these lines."""
    policy = CompactionPolicy(cleanup_policy=("compact", "delete"), retention_ms=100)
    spark = cast("SparkSession", LocalSpark())
    connector = BrokerlessConnector(spark, tmp_path / "store", partitions=102, policy=policy)
    connector.ingest([row(number, 0, b"k", b"v") for number in range(102)])
    connector.publish()
    connector.cleaner.clean(0)
    with capture_logs() as logs:
        connector.cleaner.round(1_000_000)
        connector.cleaner.round(1_000_001)
    lines = [line for line in logs if line["event"] == "retention"]
    named, others = [line for line in lines if "why" in line], [line["others"] for line in lines if "others" in line]
    assert (len(named), len({line["partition"] for line in named}), others) == (100, 100, [2])
