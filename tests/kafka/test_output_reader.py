"""The last record of ours in an output partition, however its end looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from compactor.errors import PositionError
from compactor.model.log import Generation
from compactor.model.position import Tail, Unknown
from compactor.model.record import TopicPartition
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import UnreachableError
from connectors.sinks.output_reader import FIRST_STEP, last_source_offset
from connectors.sinks.settings import WriteRules
from tests.support.kafka import create_topic, delete_records, open_transaction, produce, produce_transaction
from tests.support.publishing import Changelog, RunRecord


@pytest.fixture
def changelog(broker: EmbeddedKafka, tmp_path: Path, topic_name: str) -> Changelog:
    return Changelog(broker.bootstrap, tmp_path, topic_name)


def last(changelog: Changelog, topic: str | None = None) -> Tail:
    changelog.read()
    tp = TopicPartition(topic or changelog.topic, 0)
    return last_source_offset({"bootstrap.servers": changelog.bootstrap}, changelog.output, tp)


def test_an_empty_output_has_no_last_record(changelog: Changelog) -> None:
    """Nothing was published: None."""
    assert last(changelog) is None


def test_the_last_record_is_found_behind_markers(changelog: Changelog) -> None:
    """Transactions end with markers, and positions alone leave them too: they are passed."""
    changelog.publish(changelog.target(0, 10), [RunRecord(2), RunRecord(7)])
    changelog.publish(changelog.target(10, 20, output_offset=2), [])
    produce_transaction(changelog.bootstrap, changelog.output, [(0, b"k", b"v")] * 3, commit=False)
    assert last(changelog) == 7


def test_only_markers_and_aborted_records(changelog: Changelog) -> None:
    """An output that holds no committed record has no last one."""
    produce_transaction(changelog.bootstrap, changelog.output, [(0, b"k", b"v")] * 3, commit=False)
    assert last(changelog) is None


def test_records_of_others_are_passed(changelog: Changelog) -> None:
    """Records without our headers, or with those of another source, do not count, however many there are."""
    changelog.publish(changelog.target(0, 10), [RunRecord(2), RunRecord(7)])
    other = (
        ("keyfold.source.topic", b"other"),
        ("keyfold.source.partition", b"0"),
        ("keyfold.source.offset", b"99"),
    )
    many = 2 * FIRST_STEP  # several looks back
    produce(changelog.bootstrap, changelog.output, [(0, b"k", b"v")] * many + [(0, b"k", b"v", other)] * many)
    assert last(changelog) == 7
    assert last(changelog, "other") == 99
    assert last(changelog, "absent") is Unknown.UNKNOWN


def test_only_the_generation_of_the_log_counts(changelog: Changelog) -> None:
    """Source offsets of an earlier one say nothing, wherever that ended; a later one is more than the catalog knows."""
    second = Generation(number=2, start=0, first_end=5, output_offset=0)
    config, tp = {"bootstrap.servers": changelog.bootstrap}, TopicPartition(changelog.topic, 0)
    changelog.publish(changelog.target(0, 10), [RunRecord(2), RunRecord(7)])
    assert last(changelog) == 7
    assert last_source_offset(config, changelog.output, tp, second) is None
    ours = [("keyfold.source.topic", changelog.topic.encode()), ("keyfold.source.partition", b"0")]
    named = (*ours, ("keyfold.source.offset", b"3"), ("keyfold.generation", b"2"))
    produce(changelog.bootstrap, changelog.output, [(0, b"k", b"v", named)])
    assert last_source_offset(config, changelog.output, tp, second) == 3
    with pytest.raises(PositionError, match="generation 2, the catalog knows generation 1: it is an older copy"):
        last_source_offset(config, changelog.output, tp)


def test_an_open_transaction_does_not_count(changelog: Changelog) -> None:
    """What is not committed may still vanish."""
    changelog.publish(changelog.target(0, 10), [RunRecord(7)])
    changelog.read()
    ours = (
        ("keyfold.source.topic", changelog.topic.encode()),
        ("keyfold.source.partition", b"0"),
        ("keyfold.source.offset", b"8"),
    )
    with open_transaction(changelog.bootstrap, changelog.output, [(0, b"k", b"v", ours)]) as producer:
        tp = TopicPartition(changelog.topic, 0)
        assert last_source_offset({"bootstrap.servers": changelog.bootstrap}, changelog.output, tp) == 7
        producer.commit_transaction(10)
    assert last(changelog) == 8


def test_what_was_deleted_does_not_count(changelog: Changelog) -> None:
    """Retention may have taken all records: then the output says nothing."""
    changelog.publish(changelog.target(0, 10), [RunRecord(2), RunRecord(7)])
    changelog.read()
    delete_records(changelog.bootstrap, changelog.output, 0, 2)
    assert last(changelog) is None


def test_without_source_headers_nothing_is_found(changelog: Changelog) -> None:
    """Records that carry no source offset tell nothing, and are not taken for an empty output."""
    changelog.publish(changelog.target(0, 10), [RunRecord(2)], changelog.publisher(WriteRules(source_headers=False)))
    assert last(changelog) is Unknown.UNKNOWN


def test_a_missing_output_is_an_error(broker: EmbeddedKafka, topic_name: str) -> None:
    """An output topic that is gone is not an empty one."""
    create_topic(broker.bootstrap, topic_name)
    with pytest.raises(UnreachableError, match="does not know the topic at the moment"):
        last_source_offset(
            {"bootstrap.servers": broker.bootstrap}, f"{topic_name}.compacted", TopicPartition(topic_name, 0)
        )
