"""Records that cannot be folded: which one is named, what helps, and what is left of a batch without their topics."""

from __future__ import annotations

import pytest

from compactor.ingest.appends import Batch
from compactor.ingest.rejected import GIVE_IT_A_KEY, LET_GO, Rejected, action_for, rejected_topics, without_topics
from compactor.model.log import RunFile
from compactor.model.record import NULL_KEY, RangeRead, TopicPartition
from compactor.runs.file_stats import FileStats


def part(topic: str, partition: int, first: int, rejected: int | None = None, why: str = NULL_KEY) -> FileStats:
    """Returns what a file of ten offsets holds of a partition; its record at `rejected` cannot be folded."""
    file = RunFile(path="f", first=first, last=first + 9, records=10, bytes=1, file_bytes=1, sha256="")
    reason = None if rejected is None else why
    return FileStats(
        topic=topic, partition=partition, file=file, first_rejected_offset=rejected, first_rejected_reason=reason
    )


def read(topic: str) -> RangeRead:
    """Returns the report of ten offsets of a topic's first partition."""
    return RangeRead(tp=TopicPartition(topic, 0), topic_id="i", lo=0, hi=10, start=0, records=10)


def test_of_each_topic_the_first_bad_record_is_named() -> None:
    """The lowest offset of its first partition, without a full stop: the sentence that it is put into has one."""
    parts = (part("a", 0, 0), part("a", 0, 10, 12), part("a", 1, 0, 3), part("b", 0, 0, 5, "No schema 7."))
    assert rejected_topics(Batch(ranges=(), parts=parts)) == {
        "a": Rejected(TopicPartition("a", 0), 12, "null key"),
        "b": Rejected(TopicPartition("b", 0), 5, "No schema 7"),
    }
    assert rejected_topics(Batch(ranges=(), parts=())) == {}


def test_the_error_names_the_record_and_its_topic() -> None:
    """By the topic it is decided what goes on."""
    error = Rejected(TopicPartition("a", 1), 3, "null key").error("c")
    assert error.message == "Connector c: the record at topic a, partition 1, offset 3 cannot be folded: null key."
    assert (error.topic, error.is_of_record) == ("a", True)


@pytest.mark.parametrize(
    ("reason", "action"), [("null key", f"{GIVE_IT_A_KEY} {LET_GO}"), ("VALUE_CONVERTER keyfold.Avro E: no", LET_GO)]
)
def test_what_helps_depends_on_the_reason(reason: str, action: str) -> None:
    """To let records without a key go is to keep none of the table."""
    assert action_for(reason) == action


def test_what_was_read_of_some_topics_can_be_left_out() -> None:
    """Ranges as well as files: the log of such a topic stays at its end."""
    batch = Batch(ranges=(read("a"), read("b")), parts=(part("a", 0, 0), part("b", 0, 0)), bytes_read=7)
    left = without_topics(batch, {"a"})
    assert ([one.tp.topic for one in left.ranges], [one.topic for one in left.parts], left.bytes_read) == (
        ["b"],
        ["b"],
        7,
    )
