from __future__ import annotations

import pytest

from compactor.clean.tombstones import Fate, fate, horizon, passed, unstamped
from compactor.settings import FOREVER, CompactionPolicy
from tests.support.logs import base, log


@pytest.mark.parametrize(
    ("stamped", "now", "expected"),
    [
        pytest.param(None, 10**15, Fate.STAMP, id="rule 44, testCleanTombstone: however old, it gets its full time"),
        pytest.param(1000, 999, Fate.KEEP, id="rule 43: kept at the horizon - 1"),
        pytest.param(1000, 1000, Fate.DROP, id="rule 43: gone at the horizon"),
        pytest.param(1000, 1001, Fate.DROP, id="rule 43: and after it"),
        pytest.param(1000, 5, Fate.KEEP, id="a clock that steps back keeps it"),
    ],
)
def test_a_tombstone_is_stamped_first_and_dropped_later(stamped: int | None, now: int, expected: Fate) -> None:
    """A full fold never stamps and drops a tombstone at once; one that has a horizon goes at it, not before."""
    assert fate(stamped, now) is expected


@pytest.mark.parametrize(
    ("last", "retention", "now", "expected"),
    [
        pytest.param(None, 100, 1000, 1100, id="rule 42: time of the fold + delete.retention.ms"),
        pytest.param(900, 100, 1000, 1100, id="rule 42: again"),
        pytest.param(None, 0, 1000, 1000, id="rule 43: a retention of 0 still needs the next fold"),
        pytest.param(None, FOREVER, 1000, FOREVER, id="saturating"),
        pytest.param(5000, 100, 1000, 5100, id="a clock that steps back takes no time from it"),
    ],
)
def test_the_horizon_counts_from_the_fold(last: int | None, retention: int, now: int, expected: int) -> None:
    """The first full fold gives delete.retention.ms from its own time, never beyond Kafka's largest long."""
    assert horizon(log(folded_ms=last), CompactionPolicy(delete_retention_ms=retention), now) == expected


@pytest.mark.parametrize(
    ("next_horizon", "now", "expected"), [(None, 10**15, False), (50, 49, False), (50, 50, True), (50, 51, True)]
)
def test_the_base_run_tells_when_its_first_tombstone_goes(next_horizon: int | None, now: int, expected: bool) -> None:
    """An idle log needs no new records for its tombstones to expire."""
    assert passed(base(10, 10, tombstones=1, horizons=1, next_horizon=next_horizon), now) is expected
    assert passed(None, now) is False


def test_tombstones_without_a_horizon_are_counted() -> None:
    """What is left to stamp is the tombstones less the horizons."""
    assert [unstamped(base(9, 9, tombstones=3, horizons=count)) for count in (0, 2, 3)] == [3, 1, 0]
    assert unstamped(None) == 0
