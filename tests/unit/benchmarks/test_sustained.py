"""What sustained rows decide: whether a rate stays flat, and which is the highest."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from benchmarks.harness.latencies import Latencies
from benchmarks.harness.steady import Produced
from benchmarks.harness.watch import MIB, Sample, Watched
from benchmarks.rows.highest_rate import behind, highest_flat, stays_flat
from benchmarks.rows.sustained import memory


def watched(first: float, last: float, produced: int = 900, seen: float = 1.0) -> Watched:
    """Returns a window of 9 seconds at 100 records/s: `first` and `last` are the latencies of its outer thirds."""
    found = Latencies()
    for second, took in ((100, first), (104, first), (107, last), (108, last)):
        found.add("a", second + 0.5, second + 0.5 + took)
    made = Produced(produced, 9.0)
    return Watched(since=100.0, seconds=9.0, latencies=found, produced=made, seen=seen, cores=1.0, rss=1, pss=1)


@pytest.mark.parametrize(
    ("found", "flat"),
    [
        (watched(0.8, 1.6), True),
        (watched(0.8, 1.8), False),
        (watched(2.0, 2.0), True),
        (watched(2.1, 2.1), False),
        (watched(0.1, 0.6), True),
        (watched(1.0, 1.0, produced=880), False),
        (watched(1.0, 1.0, seen=0.97), False),
    ],
)
def test_a_rate_is_flat(found: Watched, flat: bool) -> None:
    """A rate is flat if p99 is at most 2 s, its last third about as fresh as its first, and all was seen."""
    assert stays_flat(found, 100.0) is flat


def test_a_third_without_records_is_not_flat() -> None:
    """Where nothing that was created in the first third was seen, or in the last, it is not flat."""
    for part, seconds in ((0, (100,)), (2, (107, 108))):
        found = watched(1.0, 1.0)
        for second in seconds:
            found.latencies.counts.pop(("a", second))
        assert found.part(part, 3).percentile(0.5) == math.inf
        assert not stays_flat(found, 100.0)


@pytest.mark.parametrize(
    ("most", "known", "place", "tries"),
    [(0, -1, -1, 3), (1, -1, 0, 3), (3.5, -1, 2, 3), (9, -1, 4, 3), (3.5, 2, 2, 1), (4, 2, 3, 2), (9, 4, 4, 0)],
)
def test_the_highest_flat_rate(most: float, known: int, place: int, tries: int) -> None:
    """The highest rate is found among few that are tried, above one that is known; none if not even the lowest is."""
    tried: list[float] = []

    def flat(rate: float) -> bool:
        tried.append(rate)
        return rate <= most

    assert highest_flat([1.0, 2.0, 3.0, 4.0, 5.0], flat, known) == place
    assert len(tried) <= tries


@pytest.mark.parametrize(
    ("is_published", "longest_s", "expected"), [(False, 0.0, True), (False, 60.0, False), (True, 60.0, False)]
)
def test_what_is_behind(is_published: bool, longest_s: float, expected: bool) -> None:
    """A program is behind once what was there at some moment is not published so many seconds later."""
    asked: list[int] = []

    def published() -> Callable[[], bool]:
        asked.append(len(asked))
        return lambda: is_published

    is_behind = behind(published, longest_s)
    assert [is_behind(), is_behind()] == [expected] * 2
    assert len(asked) == (3 if is_published else 1)


def test_memory_over_time() -> None:
    """Growth is that of the second half, per minute; a warm-up does not count."""
    samples = [Sample(second, (100 + 10 * min(second, 5) + 2 * max(0, second - 5)) * MIB) for second in range(11)]
    found = memory(samples)
    assert list(found.values()) == pytest.approx([100.0, 150.0, 160.0, 120.0])
    assert memory(samples[:1])["RSS growth in the second half, MiB/min"] == 0.0
