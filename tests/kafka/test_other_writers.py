"""Records of other writers in an output: found by reading, never guessed from offsets."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import OutputError
from connectors.sinks.settings import TransactionLimits
from tests.support.kafka import Headers, produce, produce_transaction
from tests.support.publishing import Changelog, RunRecord, source_offsets


@pytest.fixture
def changelog(broker: EmbeddedKafka, tmp_path: Path, topic_name: str) -> Changelog:
    return Changelog(broker.bootstrap, tmp_path, topic_name)


def named(topic: str, offset: int) -> Headers:
    """The headers of a record that keyfold publishes."""
    return (
        ("keyfold.source.topic", topic.encode()),
        ("keyfold.source.partition", b"0"),
        ("keyfold.source.offset", b"%d" % offset),
    )


def began(changelog: Changelog) -> int:
    """Publishes the first ten offsets; the output offset reached."""
    (sent,) = changelog.publish(changelog.target(0, 10), [RunRecord(2), RunRecord(7)])
    assert sent.output_offset is not None
    return sent.output_offset


@pytest.mark.parametrize(("source", "offset"), [("another", 3), (None, 12)], ids=["its own source", "our source"])
def test_another_connector_in_the_output_is_named(changelog: Changelog, source: str | None, offset: int) -> None:
    """Whoever publishes next is told of the other's record and of its source; nothing more is sent."""
    reached = began(changelog)
    headers = named(source or changelog.topic, offset)
    produce_transaction(changelog.bootstrap, changelog.output, [(0, b"k", b"v", headers)])
    with pytest.raises(OutputError, match=f"another connector publishes to {changelog.output}-0") as raised:
        changelog.publish(changelog.target(10, 20, output_offset=reached), [RunRecord(15)])
    assert f"{source or changelog.topic}-0 at offset {offset}" in raised.value.message
    held = changelog.position()
    assert held is not None
    assert held.offset == 10


def test_another_connector_is_found_before_the_first_record(changelog: Changelog) -> None:
    """Two that begin at the same time on an empty output: the second one to publish finds the first."""
    produce(changelog.bootstrap, changelog.output, [(0, b"k", b"v", named("another", 0))])
    with pytest.raises(OutputError, match="another-0 at offset 0"):
        changelog.publish(changelog.target(0, 10), [RunRecord(2)])


def test_markers_and_aborted_records_are_no_other_writer(changelog: Changelog) -> None:
    """They take any number of offsets above what we hold, and belong to nobody."""
    reached = began(changelog)
    for _ in range(3):
        produce_transaction(changelog.bootstrap, changelog.output, [(0, b"k", b"v", named("a", 1))] * 5, commit=False)
    changelog.publish(changelog.target(10, 20, output_offset=reached), [RunRecord(15)])
    assert source_offsets(changelog.read()) == [2, 7, 15]


def test_a_plan_of_several_transactions_is_no_other_writer(changelog: Changelog) -> None:
    """Nor is what we sent after a position that was lost and found again in the output."""
    small = changelog.publisher(limits=TransactionLimits(transaction_bytes=1, batch_records=1))
    changelog.publish(changelog.target(0, 10), [RunRecord(at) for at in range(10)], small)
    changelog.publish(changelog.target(10, 20, output_offset=1), [RunRecord(15)])
    assert source_offsets(changelog.read()) == [*range(10), 15]


def test_strays_are_passed_with_a_warning(changelog: Changelog) -> None:
    """A record of no connector may be a mistake that is over: it is told where it lies, and publishing goes on."""
    reached = began(changelog)
    produce(changelog.bootstrap, changelog.output, [(0, b"k", b"v")] * 2)
    with capture_logs() as logs:
        changelog.publish(changelog.target(10, 20, output_offset=reached), [RunRecord(15)])
    (warning,) = (log for log in logs if log["event"] == "output has records of another writer")
    assert (warning["records"], warning["first_offset"], warning["last_offset"]) == (2, reached + 1, reached + 2)
    assert len(changelog.read()) == 5
