"""Steady loads and the latencies of what came of them."""

from __future__ import annotations

import math
from itertools import islice

import pytest

from benchmarks.harness.latencies import Latencies
from benchmarks.harness.steady import Load, Produced

LOAD = Load(topics=("a", "b"), partitions=4, rate=1_000.0, keys=8)


def latencies() -> Latencies:
    """Returns 100 records of a: 99 take 0.1 s, one 2 s; and one of b that takes 5 s, all created in second 10."""
    found = Latencies()
    for number in range(100):
        found.add("a", 10.5, 12.5 if number == 7 else 10.6)
    found.add("b", 10.2, 15.2)
    return found


def test_percentiles_are_exact_to_a_percent() -> None:
    """Ranks are those of all records, and the values right to one percent."""
    found = latencies().of({"a"})
    assert found.records == 100
    assert found.percentile(0.5) == pytest.approx(0.1, rel=0.01)
    assert found.percentile(0.98) == pytest.approx(0.1, rel=0.01)
    assert found.percentile(0.99) == pytest.approx(2.0, rel=0.01)
    assert found.percentile(1.0) == pytest.approx(2.0, rel=0.01)
    assert latencies().slowest(("a", "b"), 0.5) == pytest.approx(5.0, rel=0.01)


def test_records_that_were_read_together_count_each() -> None:
    """Adding several at once is adding each."""
    together, each = Latencies(), Latencies()
    together.add("a", 10.5, 10.6, records=3)
    for _ in range(3):
        each.add("a", 10.5, 10.6)
    assert together == each


def test_a_topic_without_records_is_not_taken_for_a_fast_one() -> None:
    """Where nothing was read the percentile is infinite, and with it that of the slowest topic."""
    assert Latencies().percentile(0.5) == math.inf
    assert latencies().slowest(("a", "c"), 0.5) == math.inf


@pytest.mark.parametrize(("since", "until", "records"), [(10.0, 11.0, 101), (10.1, 12.0, 0), (9.2, 10.9, 0)])
def test_a_window_has_the_records_created_in_its_whole_seconds(since: float, until: float, records: int) -> None:
    """A record counts by when it was created, whenever it was read; seconds that the window cuts do not count."""
    assert latencies().during(since, until).records == records


def test_a_load_keeps_its_rate_and_its_keys_apart() -> None:
    """What is due grows with the time, never back; ticks take the partitions in turn; no key has two partitions."""
    partition, first = LOAD.batch(0, 0, 0, 0.02)
    assert (partition, first) == (0, range(20))
    assert LOAD.batch(1, 4, first.stop, 0.05) == (1, range(20, 50))
    partition, none = LOAD.batch(0, 3, 50, 0.01)
    assert (partition, none.start, none.stop) == (3, 50, 50)
    keys = [set(islice(LOAD.partition_keys(one), 100)) for one in range(LOAD.partitions)]
    assert [len(found) for found in keys] == [2] * 4
    assert len(set().union(*keys)) == LOAD.keys


def test_the_rate_of_a_load() -> None:
    """The rate is of all topics, and none where no time has passed."""
    assert (Produced(100, 4.0).rate, Produced(100, 0.0).rate) == (25.0, 0.0)
