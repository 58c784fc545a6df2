"""Fills values over the partitions of a topic, in plain dicts: what must become of the records of a commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from compactor.model.actions import Append
from compactor.model.record import TopicPartition
from tests.support.engine import Row
from tests.support.oracle.filling import filled

if TYPE_CHECKING:
    from tests.support.oracle.model import LogModel


def fill_topics(logs: Mapping[TopicPartition, LogModel], appends: Sequence[Append]) -> None:
    """Fills the records that `appends`, those of one commit, have brought; the logs have them by now."""
    starts: dict[TopicPartition, int] = {}
    for action in appends:
        starts[action.tp] = min(action.start, starts.get(action.tp, action.start))
    for topic in {tp.topic for tp in starts}:
        _fill([log for tp, log in logs.items() if tp.topic == topic], starts)


def _fill(logs: Iterable[LogModel], starts: Mapping[TopicPartition, int]) -> None:
    """Goes through the records of a topic by the order; what is published is of one record a key, the winner."""
    published: dict[bytes | None, tuple[LogModel, Row]] = {}
    every: list[tuple[LogModel, Row]] = []
    for log in logs:
        end = starts.get(log.tp, log.end)
        for row in (*log.base_rows(), *log.held(log.clean_end, log.published)):
            key = log.compared(row)
            if key not in published or log.place(row) > published[key][0].place(published[key][1]):
                published[key] = log, row
        every += [(log, row) for row in log.rows(log.published, end)]
        every += [(log, row) for row in log.rows(end, log.end)]
    before: dict[bytes | None, bytes | None] = {}
    for log, row in sorted([*published.values(), *every], key=lambda each: each[0].place(each[1])):
        key = log.compared(row)
        if row["key"] is None:
            continue
        value = row["value"]
        if row["offset"] >= starts.get(log.tp, log.end):
            value = filled(value, before.get(key))
            log.give_values({row["offset"]: value})
        before[key] = value
