"""A snapshot and the changelog behind it: load the one, go on in the other, miss nothing."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.deployment import Deployment
from tests.support.kafka import Read, consume_all, create_topic, produce
from tests.support.records import live_records, random_records, read_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Round(NamedTuple):
    """What a run left, before the next."""

    snapshot: str
    manifest: dict[str, Any]
    table: dict[tuple[int, bytes | None], bytes]
    output: list[Read]
    live_records: dict[tuple[int, bytes | None], bytes]


@pytest.fixture(scope="module")
def ran(broker: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    topic = create_topic(broker.bootstrap, f"resume-{uuid4().hex[:10]}", 2, cleanup_policy="delete")
    return Deployment(tmp_path_factory.mktemp("resume"), broker.bootstrap, topic)


@pytest.fixture(scope="module")
def rounds(spark: SparkSession, ran: Deployment) -> list[Round]:
    """Three runs of one connector, each with new records, and two snapshots kept."""
    deployment, found = ran, []
    for seed in (1, 2, 3):
        produce(deployment.bootstrap, deployment.topic, random_records(seed, 300))
        deployment.run_once(spark, snapshot_retention_count=2)
        manifest, table = read_snapshot(deployment)
        output = consume_all(deployment.bootstrap, deployment.output)
        found.append(
            Round(
                deployment.snapshots.read("LATEST").decode().strip(),
                manifest,
                _values(table),
                output,
                _values(live_records(deployment)),
            )
        )
    return found


def _values(rows: dict[tuple[int, bytes | None], tuple[int, bytes]]) -> dict[tuple[int, bytes | None], bytes]:
    return {at: value for at, (_, value) in rows.items()}


def test_a_consumer_goes_on_from_the_very_record(rounds: list[Round]) -> None:
    """A snapshot's offsets stand right behind its last record; with the output from there on it is the newest state."""
    for earlier, later in pairwise(rounds):
        offsets = {int(partition): offset for partition, offset in earlier.manifest["output_offsets"].items()}
        assert not [one for one in earlier.output if one.offset >= offsets[one.partition]]
        table = dict(earlier.table)
        for record in later.output:
            if record.offset >= offsets[record.partition]:
                table[(record.partition, record.key)] = record.value or b""
                if record.value is None:
                    del table[(record.partition, record.key)]
        assert table == later.live_records


def test_old_snapshots_go_and_the_newest_stay(rounds: list[Round], ran: Deployment) -> None:
    """snapshot.retention.count snapshots are kept; LATEST names the newest, and `current` leads to its data."""
    kept = {info.path.partition("/")[0] for info in ran.snapshots.walk("") if "/" in info.path}
    assert kept == {one.snapshot for one in rounds[1:]}
    if ran.snapshots.is_folder:  # a store has no links
        folder = Path(ran.snapshots.location)
        assert (folder / "current").resolve() == (folder / rounds[-1].snapshot / "data").resolve()
