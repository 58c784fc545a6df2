"""A record that is not let go stops its connector with one whole sentence."""

from __future__ import annotations

import pyarrow as pa
import pytest

from compactor.errors import RejectedRecordError
from compactor.model.record import TopicPartition
from connectors.sinks.dead_letter import refuse_rejected


@pytest.mark.parametrize("reason", ["There is no schema 7", "There is no schema 7."])
def test_the_reason_is_part_of_a_sentence(reason: str) -> None:
    """Which ends with one full stop, whether the reason has one or not."""
    letters = pa.RecordBatch.from_pylist([{"offset": 3, "rejected": reason}])
    with pytest.raises(RejectedRecordError) as found:
        refuse_rejected("c", TopicPartition("t", 0), letters, {})
    assert found.value.message.endswith("cannot be folded: There is no schema 7.")
    assert found.value.topic == "t"  # errors.scope=topic sets that topic aside
