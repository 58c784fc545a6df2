"""The samples of the last hour, and the line that is drawn of them."""

from __future__ import annotations

import re
import threading

import pytest
from msgspec.structs import replace

from connectors.metrics.measured import measured
from connectors.ui.history import EVERY_MS, MOST_SAMPLES, SampleHistory
from connectors.ui.overview import Row, row
from connectors.ui.sparkline import POINTS, points, sparkline
from tests.support.clocks import ManualClock
from tests.support.kafka import wait_until
from tests.support.measured import NOW_MS, RUNNING, connector, state
from tests.support.rest import RestWorker


def a_row(name: str, published: int) -> Row:
    made = connector(name, state(), RUNNING, {"records_published": published})
    return row(made, measured(made), NOW_MS)


def history() -> SampleHistory:
    return SampleHistory(None, ManualClock())  # type: ignore[arg-type]  # it takes what a test gives it


def test_a_sample_is_what_was_published_a_second() -> None:
    """The first look only begins to count; after a restart of the connector it counts from 0."""
    kept = history()
    for at, published in enumerate((100, 150, 150, 30)):
        kept.take([a_row("a", published)], at * EVERY_MS)
    assert kept.of("a").rates == (5.0, 0.0, 3.0)
    assert kept.of("a").lags == (0.0, 0.0, 0.0)
    assert kept.of("b").rates == ()


def test_an_hour_is_kept_of_the_connectors_that_there_are() -> None:
    """Older samples go, and all of a connector that was deleted."""
    kept = history()
    for at in range(MOST_SAMPLES + 5):
        kept.take([a_row("a", at * 10), a_row("b", 0)], at * EVERY_MS)
    assert len(kept.of("a").rates) == MOST_SAMPLES
    kept.take([a_row("a", 0)], (MOST_SAMPLES + 5) * EVERY_MS)
    assert kept.of("b").rates == ()


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([], []),
        ([1, 2, 9], [1, 2, 9]),
        ([1, *([3, 4] * 50)], [1, *([4] * 50)]),
        ([1, 2, 3, 4, 5, 9] * POINTS, [9] * POINTS),
        ([1] * (MOST_SAMPLES - 1), [1] * POINTS),
    ],
)
def test_a_line_has_a_point_for_each_few_samples(values: list[float], drawn: list[float]) -> None:
    """A line has at most 60 points, each the most of equally many samples; after an hour these are of a minute."""
    assert points(values) == drawn


def test_a_line_says_in_words_what_it_shows() -> None:
    """For who does not see it; without samples there is none."""
    drawn = sparkline([0.0] * 6 + [12.5] * 6 + [0.5], "Records <a> second")
    assert 'aria-label="Records &lt;a&gt; second, last 2 min: now 0.5, at most 12"' in drawn
    assert re.fullmatch(r"[\d., ]+", drawn.partition('<polyline points="')[2].partition('"')[0])
    assert "svg" not in sparkline([1.0], "x")


def test_samples_are_taken_while_the_worker_listens(worker: RestWorker) -> None:
    """On a thread that ends with it."""
    assert worker.url
    wait_until(lambda: "page-history" in {each.name for each in threading.enumerate()}, "the thread is there")


def test_samples_of_a_deleted_connector_are_not_those_of_one_with_its_name() -> None:
    """It begins with none."""
    kept = history()
    for at in range(3):
        kept.take([a_row("a", at * 100)], at * EVERY_MS)
    again = replace(a_row("a", 50), since_ms=7)
    for at in (3, 4):
        kept.take([again], at * EVERY_MS)
    assert (kept.of("a").rates, kept.of("a", 7).rates) == ((), (0.0, 0.0))
