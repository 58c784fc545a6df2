"""Records that are let go are logged in Kafka Connect's words."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from compactor.model.record import RUN, TopicPartition
from connectors.progress.rare_warnings import RareWarnings
from connectors.rejection import Rejection, Stage
from connectors.sinks import error_log
from connectors.sinks.error_log import log_letters
from tests.support.clocks import ManualClock

TP = TopicPartition("orders", 3)


@pytest.mark.parametrize(
    ("messages", "where"),
    [
        (False, ""),
        (
            True,
            ", where consumed record is {topic='orders', partition=3, offset=7, timestamp=5, timestampType=CreateTime}",
        ),
    ],
)
def test_a_line_names_stage_and_class_and_with_messages_the_record(where: str, *, messages: bool) -> None:
    """As operators grep for it."""
    rejection = Rejection(Stage.VALUE_CONVERTER, "keyfold.Avro", "DataError", "no schema 7")
    row = {"offset": 7, "timestamp": 5, "timestamp_type": 0, "key": b"k", "value": b"v", "rejected": str(rejection)}
    letters = pa.RecordBatch.from_pylist([row], schema=RUN)
    with capture_logs() as lines:
        log_letters("c", 1, TP, letters, {}, messages=messages)
    (line,) = lines
    assert line["event"] == (
        f"Error encountered in task c-1. Executing stage 'VALUE_CONVERTER' with class 'keyfold.Avro'{where}."
    )
    assert (line["error"], line["log_level"]) == ("no schema 7", "error")


def test_what_the_broker_refused_is_of_its_stage() -> None:
    """Whatever the run says of the record."""
    row = {"offset": 7, "timestamp": 5, "timestamp_type": 1, "key": b"k", "value": b"v"}
    with capture_logs() as lines:
        log_letters("c", 0, TP, pa.RecordBatch.from_pylist([row], schema=RUN), {TP: {7: "too large"}}, messages=True)
    assert "'KAFKA_PRODUCE' with class 'keyfold.CompactedTopic'" in lines[0]["event"]
    assert "timestampType=LogAppendTime" in lines[0]["event"]


def test_the_first_of_each_class_and_topic_is_a_warning_and_the_next_ones_come_rarely() -> None:
    """Without errors.log.enable too; what a record holds is not in it."""
    clock = ManualClock()
    warnings = RareWarnings(clock)
    rejected = "VALUE_CONVERTER keyfold.Avro DataError: geheim is no number"
    rows = [
        {"timestamp": 5, "timestamp_type": 0, "key": b"k", "value": b"v", "offset": at, "rejected": why}
        for at, why in enumerate([rejected, rejected, "null key"])
    ]
    letters = pa.RecordBatch.from_pylist(rows, schema=RUN)

    def warned(tp: TopicPartition = TP) -> list[Any]:
        with capture_logs() as logged:
            error_log.warn_of_letters("c", tp, letters, {}, topic="dlq", explained=True, warnings=warnings)
        return logged

    first, second = warned()
    assert (first["log_level"], first["refused_by"], first["offset"], first["records"]) == (
        "warning",
        "keyfold.Avro",
        0,
        2,
    )
    assert (second["refused_by"], second["offset"], second["records"]) == ("keyfold.CompactedTopic", 2, 1)
    assert "geheim" not in str(first)
    assert warned() == []
    assert len(warned(TopicPartition("other", 0))) == 2
    times = []
    for minute in range(1, 200):
        clock.advance(60_000)
        times += [(minute, lines[0]["records"])] if (lines := warned()) else []
    assert times == [(1, 4), (11, 20), (71, 120), (131, 120), (191, 120)]


@pytest.mark.parametrize(("topic", "event"), [("dlq", "go to the dead letter topic"), (None, "are let go")])
def test_records_without_a_key_are_warned_of_with_what_gives_them_one(topic: str | None, event: str) -> None:
    """It is so with all records of a table without a key: each of them is out of the output."""
    row = {"offset": 7, "timestamp": 5, "timestamp_type": 0, "key": None, "value": b"v", "rejected": "null key"}
    letters = pa.RecordBatch.from_pylist([row], schema=RUN)
    with capture_logs() as lines:
        error_log.warn_of_letters(
            "c", TP, letters, {}, topic=topic, explained=True, warnings=RareWarnings(ManualClock())
        )
    assert lines[0]["event"] == f"records without a key {event}"
    for way in ("message.key.columns", "REPLICA IDENTITY FULL", "ValueToKey", "cleanup.policy=delete"):
        assert way in lines[0]["next"]


@pytest.mark.parametrize(
    ("topic", "explained", "action"),
    [
        ("dlq", True, "keyfold dlq list CONNECTOR.json says why"),
        (
            "dlq",
            False,
            "errors.log.enable=true logs each, errors.deadletterqueue.context.headers.enable=true has letters say why",
        ),
        (None, False, "errors.log.enable=true logs each"),
    ],
)
def test_the_warning_names_what_says_why(
    topic: str | None, explained: bool, action: str
) -> None:  # a parameter of the table
    """Letters without context headers hold no reason, so that `dlq list` has none to show."""
    row = {"offset": 7, "timestamp": 5, "timestamp_type": 0, "key": b"k", "value": b"v", "rejected": "too long"}
    letters = pa.RecordBatch.from_pylist([row], schema=RUN)
    warnings = RareWarnings(ManualClock())
    with capture_logs() as lines:
        error_log.warn_of_letters("c", TP, letters, {}, topic=topic, explained=explained, warnings=warnings)
    assert [line["next"] for line in lines] == [action]
