"""Wrong clocks are counted every time and said once."""

from __future__ import annotations

import structlog

from compactor.metrics import ClockWarnings, Counters


def test_a_stamp_in_the_future_is_said_once() -> None:
    """The first such record's partition is named; the ones after it are only counted."""
    with structlog.testing.capture_logs() as logs:
        warnings = ClockWarnings(Counters())
        warnings.future_records("t", 3, 0)
        warnings.future_records("t", 3, 9)
    (line,) = logs
    assert (line["topic"], line["partition"], line["up_to_offset"]) == ("t", 3, 0)


def test_a_stamp_that_wins_until_its_time_is_said_once_of_each_partition() -> None:
    """With the record's offset and timestamp, and what makes its key free again."""
    with structlog.testing.capture_logs() as logs:
        warnings = ClockWarnings(Counters())
        for partition, offset in ((3, 7), (3, 9), (4, 0)):
            warnings.future_winner("t", partition, offset, 99)
    assert [(line["topic"], line["partition"], line["offset"]) for line in logs] == [("t", 3, 7), ("t", 4, 0)]
    assert {line["timestamp_ms"] for line in logs} == {99}
    assert "tombstone" in logs[0]["action"]
    assert "message.timestamp.after.max.ms" in logs[0]["action"]


def test_a_clock_that_steps_back_is_counted_and_said_once() -> None:
    """Every step back counts; going forward, or standing still, does not."""
    counters = Counters()
    warnings = ClockWarnings(counters)
    with structlog.testing.capture_logs() as logs:
        for now_ms in (10, 10, 20, 15, 16, 3):
            warnings.observe(now_ms)
    assert counters.values()["clock_steps_back"] == 2
    assert [line["by_ms"] for line in logs] == [5]


def test_what_is_counted_by_topic_adds_up() -> None:
    """For the table of `run --once`; what is returned is a copy."""
    counters = Counters()
    counters.add_by_topic("records_read", [("t", 3), ("u", 0), ("t", 4)])
    counters.add_by_topic("dead_letters", [("t", 1)])
    found = counters.by_topic()
    counters.add_by_topic("records_read", [("t", 1)])
    assert found == {"t": {"records_read": 7, "dead_letters": 1}, "u": {"records_read": 0}}
