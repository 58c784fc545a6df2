"""How far connectors are behind their sources, from looks at the ends that the worker takes for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from compactor.model.log import empty
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState, Topic
from connectors.config.files import load_worker
from connectors.metrics.source_lag import KNOWN_MS, MOST_LOOKS, EndHistory, SourceEnds, SourceLag
from connectors.runtime.status import ConnectorState, Status
from connectors.runtime.supervised_connector import Connector
from tests.support.cli import worker_file
from tests.support.clocks import ManualClock
from tests.support.kafka import wait_until
from tests.support.measured import RUNNING, Scrape, Series, connector

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
NOTHING = SourceLag(0, None)


@pytest.mark.parametrize(
    ("looks", "taken_in", "lag"),
    [
        pytest.param([(1, 5, 5)], 5, NOTHING, id="all taken in"),
        pytest.param([(1, 5, 0)], 0, SourceLag(5, 1), id="behind since the first look"),
        pytest.param([(1, 5, 5), (2, 9, 5), (3, 9, 5), (4, 12, 5)], 5, SourceLag(7, 2), id="nothing is taken in"),
        pytest.param([(1, 5, 5), (2, 9, 5), (4, 12, 5)], 9, SourceLag(3, 4), id="a part was taken in since"),
        pytest.param([(1, 5, 5), (2, 9, 5)], 11, NOTHING, id="more was taken in than the last look saw"),
        pytest.param([(1, 9, 5), (2, 3, 0)], 0, SourceLag(3, 2), id="the end fell: another log"),
        pytest.param([(1, 0, 0)], 0, NOTHING, id="an empty source"),
    ],
)
def test_a_partition_is_behind_since_an_end_was_seen_that_is_not_taken_in(
    looks: list[tuple[int, int, int]], taken_in: int, lag: SourceLag
) -> None:
    """By (time, end, what was taken in then) of each look, and what is taken in now."""
    history = EndHistory(0, 0)
    for now_ms, end, then in looks:
        history = history.seen(now_ms, end, then)
    assert history.lag(taken_in) == lag


@given(st.lists(st.integers(0, 3), min_size=1, max_size=400))
def test_a_history_stays_small_and_never_says_less(steps: list[int]) -> None:
    """However long nothing is taken in: looks are joined, which makes the time longer by some looks at most."""
    history, end = EndHistory(0, 0), 0
    exact: list[tuple[int, int]] = []
    for now_ms, step in enumerate(steps):
        end += step
        history = history.seen(now_ms, end, 0)
        exact.append((now_ms, end))
    assert len(history.looks) <= MOST_LOOKS + 1
    assert all(before < after for before, after in pairwise(history.looks))
    for taken_in in range(0, end, max(1, end // 7)):
        since_ms = history.lag(taken_in).since_ms
        assert since_ms is not None
        assert since_ms <= next(at for at, seen in exact if seen > taken_in)


class Brokers:
    """An admin client of brokers with `ends`; `away`: it raises that."""

    def __init__(self) -> None:
        self.ends: dict[TopicPartition, int | KafkaError] = {}
        self.away: Exception | None = None
        self.asked: list[set[TopicPartition]] = []

    def offsets_each(self, partitions: Any, _spec: object) -> Mapping[TopicPartition, int | KafkaError]:
        self.asked.append(set(partitions))
        if self.away:
            raise self.away
        return {tp: end for tp, end in self.ends.items() if tp in partitions}


def reading(name: str, status: Status = RUNNING, /, closed: str | None = None, **config: str) -> Connector:
    """A connector that has taken in 5 offsets of t-0 and t-1, and none of u-0, whose topic may be closed."""
    logs = [replace(empty(tp, 0, 0, None), end=5) for tp in (T0, T1)]
    topics = {
        topic: Topic(topic=topic, topic_id=topic, output=None, output_id=None, closed=why)
        for topic, why in (("t", None), ("u", closed))
    }
    state = CatalogState(connector=name, buckets=1, logs=(*logs, empty(U0, 0, 0, None)), topics=topics)
    return connector(name, state, status, **config)


class Looks:
    """The looks of a worker with `connectors`; `made` are its admin clients."""

    def __init__(self, folder: Path, *connectors: Connector) -> None:
        self.clock = ManualClock(0)
        self.brokers = Brokers()
        self.made = 0
        herder: Any = SimpleNamespace(connectors=lambda: connectors)
        self.ends = SourceEnds(load_worker(worker_file(folder)), herder, self.clock, self._admin)

    def _admin(self, _: object) -> Any:
        self.made += 1
        return self.brokers


def test_connectors_of_equal_settings_are_asked_for_together(tmp_path: Path) -> None:
    """One request a look, by a client that is kept; other settings have a client of their own."""
    other = reading("c", **{"admin.override.request.timeout.ms": "7000"})
    looks = Looks(tmp_path, reading("a"), reading("b", closed="deleted"), other, connector("new", None))
    looks.ends.look()
    looks.ends.look()
    assert looks.made == 2
    assert looks.brokers.asked == [{T0, T1, U0}] * 4


@pytest.mark.parametrize("state", [ConnectorState.PAUSED, ConnectorState.FAILED, ConnectorState.RESTARTING])
def test_what_takes_nothing_in_is_measured_too(tmp_path: Path, state: ConnectorState) -> None:
    """Its source goes on, and no planner of its own asks for ends."""
    one = reading("a", Status(state))
    looks = Looks(tmp_path, one)
    looks.brokers.ends = {T0: 5, T1: 9, U0: KafkaError(KafkaError._TIMED_OUT)}
    looks.ends.look()
    assert looks.ends.lag(one, 1_000) == {T0: NOTHING, T1: SourceLag(4, 0)}


def test_brokers_that_do_not_answer_leave_what_was_known_for_a_while(tmp_path: Path) -> None:
    """After KNOWN_MS nothing is said any more: it would be no longer true."""
    one = reading("a")
    looks = Looks(tmp_path, one)
    looks.brokers.ends = {T0: 9}
    looks.ends.look()
    looks.brokers.away = TimeoutError()
    looks.clock.advance(KNOWN_MS)
    looks.ends.look()
    assert looks.ends.lag(one, KNOWN_MS) == {T0: SourceLag(4, 0)}
    assert looks.ends.lag(one, KNOWN_MS + 1) == {}
    assert looks.ends.lag(reading("b"), 0) == {}


def test_the_thread_looks_until_it_is_stopped(tmp_path: Path) -> None:
    """A look that fails is followed by another."""
    looks = Looks(tmp_path, reading("a"))
    tries: list[int] = []

    def fails() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("a setting")

    looks.ends.look = fails  # type: ignore[method-assign]
    looks.clock.wait_ms = lambda ms, event: event.wait(0.01)  # type: ignore[method-assign]
    looks.ends.start()
    wait_until(lambda: len(tries) > 2, "it looks again")
    looks.ends.stop()
    assert looks.ends._thread.join(10)


def test_the_lag_is_shown_by_topic_and_by_partition() -> None:
    """Offsets are summed over a topic's partitions, the longest time counts; what is not known has no series."""
    lag = {T0: SourceLag(4, 1_000_000), T1: SourceLag(3, 995_000)}
    found = Scrape(reading("a"), partitions=True, now_ms=1_002_500, lag=lag).values()
    shown = {series: value for series, value in found.items() if "source_lag" in series.name}
    assert shown == {
        Series("keyfold_source_lag_records", ("a", "t")): 7,
        Series("keyfold_source_lag_seconds", ("a", "t")): 7.5,
        Series("keyfold_partition_source_lag_records", ("a", "0", "t")): 4,
        Series("keyfold_partition_source_lag_records", ("a", "1", "t")): 3,
    }
