"""Which logs a change of offsets is about."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from compactor.catalog.requests import Request
from compactor.generation.plan import OffsetChange
from compactor.model.actions import AddPartition, AddTopic, CloseTopic
from compactor.model.record import TopicPartition
from compactor.model.state import apply
from connectors.kafka.admin import TopicInfo
from connectors.runtime.offset_change import asked_by, at_time, every_log
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


def resync(**options: Any) -> Request:
    """A request of a resync."""
    return Request(id="r", kind="resync", asked_ms=0, **options)


def test_a_resync_asks_for_the_start_a_time_or_an_offset() -> None:
    """Of all logs, or of the one that is named."""
    state = new_state({0: 0, 1: 0})
    assert asked_by(resync())(state) == OffsetChange(offsets={T0: None, T1: None}, anew=True)
    since = asked_by(resync(since_ms=7, accepts_loss=True))(state)
    assert since == OffsetChange(offsets={T0: None, T1: None}, anew=True, accepts_loss=True, since_ms=7)
    at = asked_by(resync(topic="t", partition=1, since_offset=9))(state)
    assert at == OffsetChange(offsets={T1: 9}, anew=True)


def test_what_is_written_while_times_are_asked_for_is_read() -> None:
    """A partition without a record since begins at the end that it had before the question."""
    state = new_state({0: 0, 1: 0})
    ends = {T0: 5, T1: 5}

    def offsets_since(partitions: Iterable[TopicPartition], _: int) -> dict[TopicPartition, int]:
        ends[T1] += 1  # by a producer, at this moment
        return {T0: 3} if T0 in partitions else {}

    admin: Any = SimpleNamespace(
        describe=lambda names: {name: TopicInfo(name, f"id-{name}", 2) for name in names},
        ends=lambda partitions: {tp: ends[tp] for tp in partitions},
        offsets_since=offsets_since,
    )
    change = OffsetChange(offsets={T0: None, T1: None}, anew=True, since_ms=7)
    assert at_time(admin, state, change, 7).offsets == {T0: 3, T1: 5}
