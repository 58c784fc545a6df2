"""Who waits for the engine's turn, and who does not; without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import Mock

import pytest

from compactor.engine import Engine
from compactor.errors import PositionError, PublishInterruptedError
from compactor.ingest.appends import Batch
from compactor.metrics import Counters
from compactor.model.publish_plan import PublishResult
from compactor.model.record import RangeRead, TopicPartition

PATIENCE_S = 30.0


@pytest.fixture
def changelog() -> Mock:
    """Stands for what publishes; it publishes nothing."""
    return Mock(publish=Mock(return_value=()))


@pytest.fixture
def catalog() -> Mock:
    return Mock()


@pytest.fixture
def engine(catalog: Mock, changelog: Mock) -> Engine:
    """An engine on stand-ins."""
    broker, settings = (cast("Any", Mock()) for _ in range(2))
    return Engine(cast("Any", catalog), broker, settings, cast("Any", changelog))


@contextmanager
def taking(engine: Engine) -> Iterator[None]:
    """Inside, a micro-batch is under way."""
    began, done = threading.Event(), threading.Event()

    def take(batch: Any, now_ms: int, paused: Any, pinned: Any) -> Any:
        began.set()
        assert done.wait(PATIENCE_S)

    engine._take = take  # type: ignore[method-assign]
    thread = threading.Thread(target=engine.take, args=(None, 1))
    thread.start()
    try:
        assert began.wait(PATIENCE_S)
        yield
    finally:
        done.set()
        thread.join()


def test_time_does_not_wait_for_a_micro_batch(engine: Engine, changelog: Mock) -> None:
    """A tick and a look at the topics give way to it: a stop is to be seen meanwhile."""
    with taking(engine):
        engine.tick(1)
        assert not engine.commit(lambda _: [], 1)
        assert not engine.is_idle()
        assert not changelog.publish.called
    engine.tick(2)
    assert engine.commit(lambda _: [], 2)
    assert changelog.publish.call_count == 1


def test_no_turn_begins_once_it_is_to_close(engine: Engine, changelog: Mock) -> None:
    """The micro-batch under way ends, the next one finds a closed engine, and nobody waits for either."""
    with taking(engine):
        engine.begin_close()
    assert engine.is_idle()
    engine.tick(1)
    assert not changelog.publish.called
    with pytest.raises(PublishInterruptedError):
        engine.take(cast("Any", None), 1)


def test_a_publish_that_did_not_end_well_may_have_left_a_transaction(engine: Engine, changelog: Mock) -> None:
    """One that did has not, though earlier ones failed."""
    found = [engine.transaction_may_be_open]
    changelog.publish.side_effect = RuntimeError("Job cancelled")
    with pytest.raises(RuntimeError):
        engine.tick(1)
    found.append(engine.transaction_may_be_open)
    changelog.publish.side_effect = None
    engine.tick(2)
    assert [*found, engine.transaction_may_be_open] == [False, True, False]


def test_positions_are_made_sense_of_without_a_batch(engine: Engine, changelog: Mock) -> None:
    """What they are found to be wrong with is raised before anything was taken in."""
    changelog.resolve_positions.side_effect = PositionError("Another catalog's.")
    with pytest.raises(PositionError):
        engine.resolve_positions(1)


@pytest.mark.parametrize(
    ("published", "closed", "settled"),
    [((9, 9), None, True), ((9, 8), None, False), ((0, 0), None, False), ((9, 8), "deleted", True)],
)
def test_it_is_settled_once_all_that_is_ingested_is_published(
    engine: Engine, catalog: Mock, published: tuple[int, int], closed: str | None, *, settled: bool
) -> None:
    """Set aside or not; a topic that is gone is not waited for."""
    catalog.state.logs = [Mock(topic="t", published=one, end=9) for one in published]
    catalog.state.topics = {"t": Mock(closed=closed)}
    assert engine.is_settled() is settled


def test_counts_are_those_of_this_run(engine: Engine, catalog: Mock) -> None:
    """What later records of the same task superseded, what was aborted, and commits to the catalog are among them."""
    cast("Any", engine).counters = Counters()
    catalog.commits = 4
    read = RangeRead(tp=TopicPartition("t", 0), topic_id="1", lo=0, hi=9, start=0, records=9, superseded=7)
    engine._count_ingested(Batch(ranges=(read,), parts=()))
    engine._count_published([PublishResult(topic="t", partition=0, end=9, records=2, transactions=1, aborted=3)])
    wanted = ("records_read", "records_superseded", "records_published", "transactions", "transactions_aborted")
    assert [engine.counts()[name] for name in (*wanted, "catalog_commits")] == [9, 7, 2, 1, 3, 4]


def test_a_closed_engine_fills_no_more_and_lets_go_of_what_does(catalog: Mock, changelog: Mock) -> None:
    """Whatever it waits for ends then: the run that is to end waits for the turn under way."""
    broker, settings, fill = (cast("Any", Mock()) for _ in range(3))
    engine = Engine(cast("Any", catalog), broker, settings, cast("Any", changelog), fill)
    (stopped,) = fill.stop_with.call_args.args
    assert not stopped()
    with taking(engine):
        engine.begin_close()
        assert stopped()
        assert not fill.close.called
    engine.close()
    assert fill.close.called
