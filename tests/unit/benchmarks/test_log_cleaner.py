from __future__ import annotations

from datetime import datetime

import pytest

from benchmarks.peers.log_cleaner import Pass, busy_seconds, passes, passes_to

LOG = """[2026-11-21T12:00:00,001] INFO Cleaner 0: Beginning cleaning of log small-1 (org.apache.kafka.X)
[2026-11-21T12:00:03,214] INFO [kafka-log-cleaner-thread-0]:
\tLog cleaner thread 0 cleaned log small-1 (dirty section = [0, 2500000])
\t1,251.4 MB of log processed in 3.2 seconds (391.1 MB/sec).
\tIndexed 1,250.0 MB in 1.6 seconds (781.3 Mb/sec, 50.1% of total time)
\tBuffer utilization: 5.6%
\tCleaned 1,251.4 MB in 1.6 seconds (782.1 Mb/sec, 49.9% of total time)
\tStart size: 1,251.4 MB (2,500,001 messages)
\tEnd size: 29.0 MB (245,000 messages)
\t97.7% size reduction (90.2% fewer messages)
 (org.apache.kafka.storage.internals.log.LogCleaner)
"""


def test_a_pass_is_parsed_from_the_log() -> None:
    """A pass's log, times, dirty section, MB and messages are taken from the broker's log, commas and all."""
    since, until = (datetime.fromisoformat(f"2026-11-21T12:00:{at}").timestamp() for at in ("00.001", "03.214"))
    first = Pass(log="small-1", since=since, until=until, start=0, end=2500000, mb=1251.4, read=2500001, kept=245000)
    second = Pass(log="other-0", since=since, until=until, start=0, end=2500000, mb=1251.4, read=2500001, kept=245000)
    assert list(passes(LOG + LOG.replace("small-1", "other-0"))) == [first, second]


def test_a_pass_begins_with_the_last_line_of_its_own_log_before_it() -> None:
    """A second pass over a log begins with its own line, not with that of the first pass or of another log."""
    later = LOG.replace("12:00:0", "12:00:1")
    other = LOG[: LOG.index("\n") + 1].replace("small-1", "other-0").replace("12:00:00", "12:00:12")
    begun = datetime.fromisoformat("2026-11-21T12:00:10.001").timestamp()
    first, later_line = later.split("\n", 1)
    assert [one.since for one in passes(f"{LOG}{first}\n{other}{later_line}")][1] == begun


def test_a_pass_without_its_beginning_is_left_out() -> None:
    """A pass of which the beginning is not in the log has no time, and does not count."""
    assert list(passes(LOG[LOG.index("\n") + 1 :])) == []


def test_an_incomplete_pass_does_not_take_the_sizes_of_the_next() -> None:
    """A pass whose sizes are missing is left out, and does not get those of the next one."""
    torn = LOG[: LOG.index("\tStart size")]
    assert [one.log for one in passes(torn + LOG.replace("small-1", "other-0"))] == ["other-0"]


@pytest.mark.parametrize(
    ("ends", "found"),
    [
        ({"small-1": 2500000}, [3.213]),
        ({"small-1": 2500001}, None),
        ({"small-1": 1, "small-0": 1}, None),
    ],
)
def test_a_topic_is_cleaned_once_passes_have_reached_all_its_ends(
    ends: dict[str, int], found: list[float] | None
) -> None:
    """Passes over a topic count once each of its partitions is cleaned up to its end, and those of others never."""
    found_passes = passes_to(passes(LOG + LOG.replace("small-1", "other-0")), ends)
    seconds = None if found_passes is None else [round(one.until - one.since, 3) for one in found_passes]
    assert seconds == found


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([(0, 3), (1, 2), (2, 5)], 5.0),
        ([(4, 5), (0, 1)], 2.0),
        ([], 0.0),
    ],
)
def test_seconds_in_which_two_threads_clean_count_once(spans: list[tuple[int, int]], seconds: float) -> None:
    """The cleaner's time is that in which any thread cleaned, pauses apart, not the sum of the threads' times."""
    found = [
        Pass(log="a-0", since=100.0 + since, until=100.0 + until, start=0, end=1, mb=1.0, read=1, kept=1)
        for since, until in spans
    ]
    assert busy_seconds(found) == pytest.approx(seconds)
