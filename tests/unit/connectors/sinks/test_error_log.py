"""Records that are let go are logged in Kafka Connect's words."""

from __future__ import annotations

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from compactor.model.record import RUN, TopicPartition
from connectors.rejection import Rejection, Stage
from connectors.sinks.error_log import log_letters

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
