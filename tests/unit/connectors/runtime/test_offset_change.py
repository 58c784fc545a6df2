"""Which logs a change of offsets is about."""

from __future__ import annotations

import pytest

from compactor.model.actions import AddPartition, AddTopic, CloseTopic
from compactor.model.record import TopicPartition
from compactor.model.state import apply
from connectors.runtime.offset_change import every_log
from connectors.source.source_errors import RECREATED, UNNAMED
from tests.support.engine import new_state

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.mark.parametrize(
    ("topic", "partition", "closed", "expected"),
    [
        (None, None, None, [T0, T1, U0]),
        (None, None, RECREATED, [T0, T1, U0]),
        (None, None, UNNAMED, [T0, T1]),
        ("u", None, UNNAMED, [U0]),
        ("t", None, None, [T0, T1]),
        ("t", 1, None, [T1]),
        ("t", 7, None, []),
    ],
)
def test_what_is_not_named_any_more_is_left_as_it_is(
    topic: str | None, partition: int | None, closed: str | None, expected: list[TopicPartition]
) -> None:
    """Unless it is asked for: read anew and closed again, it would only lose what was kept."""
    state = apply(
        new_state({0: 0, 1: 0}),
        [
            AddTopic(topic="u", topic_id="id-u", output="u.compacted", output_id="out-u"),
            AddPartition(topic="u", partition=0, bucket=0, start=0),
            *([] if closed is None else [CloseTopic(topic="u", reason=closed)]),
        ],
    )
    assert list(every_log(topic, partition)(state).offsets) == expected
