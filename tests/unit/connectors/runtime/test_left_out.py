"""What a connector leaves out while it runs is said: in the log by topic, in status and describe in all."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from compactor.model.record import RangeRead, TopicPartition
from connectors.progress.rare_warnings import PAUSES_MS, RareWarnings
from connectors.runtime.left_out import lines, warn_of_truncates
from tests.support.clocks import ManualClock


def read(topic: str, truncates: int, last: int | None = None) -> RangeRead:
    """Returns the report of a range in which so many truncates were."""
    tp = TopicPartition(topic, 1)
    return RangeRead(tp=tp, topic_id="i", lo=0, hi=9, start=0, records=9, truncates=truncates, last_truncate=last)


def test_a_truncate_is_warned_of_with_its_place_and_the_next_ones_rarely() -> None:
    """A table may be emptied every night: each line says how many there were since the last."""
    clock = ManualClock()
    warnings = RareWarnings(clock)
    with capture_logs() as logged:
        warn_of_truncates("c", [read("t", 1, 7), read("u", 0)], warnings)
        warn_of_truncates("c", [read("t", 2, 8)], warnings)
        clock.advance(PAUSES_MS[0])
        warn_of_truncates("c", [read("t", 1, 20)], warnings)
    said = [(line["topic"], line["partition"], line["offset"], line["truncates"]) for line in logged]
    assert said == [("t", 1, 7, 1), ("t", 1, 20, 3)]
    assert "DELETE" in logged[0]["next"]


@pytest.mark.parametrize(
    ("counters", "begins"),
    [
        ({"records_rejected": 0, "truncates": 0}, []),
        ({"truncates": 1}, ["1 truncate was dropped"]),
        ({"records_rejected": 1_234, "records_without_key": 1_234}, ["1,234 records were without a key"]),
        (
            {"records_rejected": 5, "records_without_key": 3, "records_refused": 2},
            ["3 records were", "4 records were let"],
        ),
    ],
    ids=["nothing", "a truncate", "a table without a key", "of both kinds"],
)
def test_what_is_left_out_is_said_in_a_line_each(counters: dict[str, int], begins: list[str]) -> None:
    """With what helps; nothing is said of what has not happened."""
    assert [line[: len(begin)] for line, begin in zip(lines(counters), begins, strict=True)] == begins
