"""What errors.tolerance makes of a record that brokers refuse."""

from __future__ import annotations

import pyarrow as pa
import pytest

from compactor.model.record import RUN, TopicPartition
from connectors.errors import RecordRefusedError
from connectors.sinks.batching import PartitionBatch
from connectors.sinks.refused_records import ErrorTolerance
from connectors.sinks.settings import WriteRules
from connectors.sinks.transaction import Refused

TP = TopicPartition("t", 0)


def one_record() -> PartitionBatch:
    """Returns a batch of the record at offset 7."""
    row = {"topic": "t", "partition": 0, "offset": 7, "timestamp": 1, "timestamp_type": 0, "key": b"k", "value": b"v"}
    return PartitionBatch(tp=TP, rows=pa.RecordBatch.from_pylist([row], schema=RUN), bytes=2, last=True)


def test_a_refused_record_that_is_not_let_go_names_its_topic() -> None:
    """So errors.scope=topic can set that topic aside; it is the record's error, and no outage."""
    with pytest.raises(RecordRefusedError, match="record t-0 at offset 7") as raised:
        ErrorTolerance("c", WriteRules(), {}).let_go(one_record(), Refused("too large"), "t.compacted")
    assert (raised.value.topic, raised.value.is_of_record) == ("t", True)


def test_a_refused_record_is_let_go_if_the_connector_says_so() -> None:
    """It is marked, and is a dead letter of the next transaction."""
    refused: dict[TopicPartition, dict[int, str]] = {}
    ErrorTolerance("c", WriteRules(tolerate=True), refused).let_go(one_record(), Refused("too large"), "t.compacted")
    assert refused == {TP: {7: "too large"}}
