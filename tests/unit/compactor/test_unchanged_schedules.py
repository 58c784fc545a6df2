"""Schedules that would lose a record if what changes nothing were told by the log alone (publish.unchanged=skip)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from compactor.model.record import TopicPartition
from tests.support.memory.journal import REFUSED
from tests.support.memory.publisher import PublishFault, PublishStep
from tests.support.oracle.oracle import Oracle
from tests.support.oracle.output import apply_records
from tests.support.oracle.simulation import Simulation
from tests.support.oracle.steps import (
    CRASH,
    Advance,
    AnyStep,
    AtFailpoint,
    ChangeOffset,
    FailingPublisher,
    Fold,
    Ingest,
    Restart,
    Settings,
    SourceRecord,
    Tamper,
    Tick,
)

T0 = TopicPartition("t", 0)
SKIP = Settings(unchanged="skip")
A1, A2, B1 = SourceRecord(0, b"a", b"1"), SourceRecord(0, b"a", b"2"), SourceRecord(0, b"b", b"1")
FIRST: list[AnyStep] = [Restart(SKIP), Ingest((A1, B1))]


def sent(simulation: Simulation) -> list[int]:
    return [each.source_offset for each in simulation.broker.output.records.get(T0, [])]


def unchanged(simulation: Simulation) -> int:
    return simulation.components.engine.counts()["records_unchanged"]


def test_what_changes_nothing_is_counted_and_positions_move_on(tmp_path: Path) -> None:
    """Nor is it superseded; the log keeps it, with its own offset and time, and a snapshot has it."""
    oracle = Oracle(None, tmp_path)
    simulation = oracle.simulation
    oracle.run([*FIRST, Ingest((A1, B1)), Ingest((A2, A1, B1))])
    assert sent(simulation) == [0, 1]
    assert unchanged(simulation) == 4
    counts = simulation.components.engine.counts()
    assert counts["records_read"] == counts["records_published"] + counts["records_superseded"] + 4
    position = simulation.broker.output.positions[T0]
    assert position is not None
    assert position.offset == simulation.components.catalog.state.log(T0).published == 7
    oracle.run([Ingest((A2,)), Fold(), Ingest((A2, SourceRecord(0, b"b", None), B1)), Ingest((A2, A1))])
    assert sent(simulation) == [0, 1, 7, 12]


@pytest.mark.parametrize("way", [Settings(unchanged="skip", local=-1), SKIP], ids=["tasks", "this process"])
def test_a_tombstone_is_sent_once(tmp_path: Path, way: Settings) -> None:
    """As long as the log keeps it; once its time is over it is sent again, as nothing tells that the key is gone."""
    oracle = Oracle(None, tmp_path)
    gone = SourceRecord(0, b"a", None)
    oracle.run([Restart(way), Ingest((A1,)), Ingest((gone,)), Ingest((gone,)), Fold(), Ingest((gone,))])
    assert sent(oracle.simulation) == [0, 1]
    oracle.run([Fold(), Advance(1_000), Fold(), Ingest((gone,))])
    assert sent(oracle.simulation) == [0, 1, 4]


def test_records_are_not_compared_with_what_waits_for_its_lag(tmp_path: Path) -> None:
    """A record that is kept and not published is no record that a reader has."""
    oracle = Oracle(None, tmp_path)
    settings = Settings(unchanged="skip", lag=200)
    old = A1._replace(time=-300)
    oracle.run([Restart(settings), Ingest((old,)), Ingest((A2, A1)), Advance(100), Ingest((A2,))])
    assert sent(oracle.simulation) == [0]
    oracle.run([Advance(100), Tick()])
    assert (sent(oracle.simulation), unchanged(oracle.simulation)) == ([0], 1)
    oracle.run([Advance(100), Tick()])
    assert sent(oracle.simulation) == [0, 3]


def test_a_fold_that_was_sent_in_part_goes_on_without_comparing(tmp_path: Path) -> None:
    """Below its position lies what the fold itself supersedes: no reader has seen that."""
    oracle = Oracle(None, tmp_path)
    lag = Settings(unchanged="skip", lag=100, most=1)
    first: list[AnyStep] = [Restart(lag), Ingest((A1, B1)), Advance(100), Tick()]
    step = Ingest((A2, SourceRecord(0, b"c", b"1"), SourceRecord(0, b"d", b"1"), A2))
    fault = PublishFault(step=PublishStep.SENT, transaction=2)
    oracle.run([*first, step, Advance(100), FailingPublisher(Tick(), fault)])
    assert sent(oracle.simulation) == [0, 1, 3]
    oracle.run([Tick()])
    assert sent(oracle.simulation) == [0, 1, 3, 4, 5]


@pytest.mark.parametrize("at", ["publish.plan", "publish.before-commit", "publish.after-commit"])
def test_after_a_crash_every_reader_has_the_last_record(tmp_path: Path, at: str) -> None:
    """What the catalog has missed is not compared with: it is sent once more, which changes no reader's table."""
    oracle = Oracle(None, tmp_path)
    oracle.run([*FIRST, AtFailpoint(Ingest((A2, B1)), at, CRASH), Tick(), Ingest((A2, B1)), Ingest((A2, B1))])
    assert apply_records(oracle.simulation.broker.output.records[T0]) == {b"a": b"2", b"b": b"1"}
    assert (
        sent(oracle.simulation)
        == {
            "publish.plan": [0, 1, 2],
            "publish.before-commit": [0, 1, 2, 4, 5],
            "publish.after-commit": [0, 1, 2],
        }[at]
    )


IN_PART: AnyStep = FailingPublisher(
    Ingest((SourceRecord(0, b"c", b"1"), A1)), PublishFault(step=PublishStep.SENT, transaction=2)
)


@pytest.mark.parametrize("lost", [(Ingest((A2,)),), (Ingest((A2,)), IN_PART)], ids=["at a fold's end", "inside a fold"])
def test_a_catalog_that_was_set_back_compares_nothing_with_what_it_had(tmp_path: Path, lost: tuple[AnyStep]) -> None:
    """The output is ahead of it, and what superseded a record there may be gone from the source since."""
    simulation = Simulation(None, tmp_path)
    first: list[AnyStep] = [Restart(SKIP._replace(most=1)), Ingest((A1, B1))]
    for step in first:
        simulation.perform(step)
    store = Path(simulation.storage.location)
    shutil.copytree(store, tmp_path / "copy")
    for step in lost:
        simulation.perform(step)
    shutil.rmtree(store)
    shutil.copytree(tmp_path / "copy", store)
    simulation.perform(Restart())
    simulation.perform(Ingest((A1,)))  # folded as it comes: the log has nothing of the record that the output has
    table = apply_records(simulation.broker.output.records[T0])
    assert (table[b"a"], table[b"b"]) == (b"1", b"1")


def test_a_record_that_the_broker_refused_is_sent_when_it_comes_again(tmp_path: Path) -> None:
    """The log keeps it, and no reader has it: after its publish all is sent once more."""
    oracle = Oracle(None, tmp_path)
    oracle.run([*FIRST, Ingest((SourceRecord(0, b"a", REFUSED),)), Ingest((SourceRecord(0, b"a", REFUSED), B1))])
    letters = [each.source_offset for each in oracle.simulation.broker.output.letters]
    assert (letters, sent(oracle.simulation)) == ([2, 3], [0, 1, 4])


def test_a_position_that_is_lost_is_found_by_the_last_record_that_was_sent(tmp_path: Path) -> None:
    """What was left out after it may be sent now."""
    oracle = Oracle(None, tmp_path)
    oracle.run([*FIRST, AtFailpoint(Ingest((A2, B1)), "publish.before-commit", CRASH), Tamper(0), Restart(), Tick()])
    assert apply_records(oracle.simulation.broker.output.records[T0]) == {b"a": b"2", b"b": b"1"}
    oracle.run([Ingest((A2,)), Ingest((A2,))])
    assert sent(oracle.simulation)[-1] == 4


def test_what_was_sent_while_all_was_sent_is_not_compared_with(tmp_path: Path) -> None:
    """What was refused meanwhile, nobody knows; each key is sent once more."""
    oracle = Oracle(None, tmp_path)
    oracle.run([*FIRST, Restart(Settings()), Ingest((A2,)), Restart(SKIP), Ingest((A2, B1)), Ingest((A2, B1))])
    assert sent(oracle.simulation) == [0, 1, 2, 3, 4]


def test_a_new_generation_sends_everything_once_more(tmp_path: Path) -> None:
    """Its records name it; from then on what changes nothing is left out again."""
    oracle = Oracle(None, tmp_path)
    oracle.run([*FIRST, Ingest((A1,)), ChangeOffset(0), Ingest(()), Tick()])
    assert sent(oracle.simulation)[2:] == [1, 2]
    oracle.run([Ingest((A1, B1)), Ingest((SourceRecord(0, b"a", None),))])
    assert sent(oracle.simulation)[4:] == [5]


def test_other_bytes_of_a_key_are_a_change(tmp_path: Path) -> None:
    """Where keys have an identity: the reader ends with the key of the last record, and the same bytes retire none."""
    oracle = Oracle(None, tmp_path, any_case=True)
    small, large = SourceRecord(0, b"aa", b"1"), SourceRecord(0, b"AA", b"1")
    oracle.run([Restart(SKIP), Ingest((small,)), Ingest((large,)), Ingest((large,))])
    assert [(each.key, each.value) for each in oracle.simulation.broker.output.records[T0]] == [
        (b"aa", b"1"), (b"aa", None), (b"AA", b"1"),
    ]  # fmt: skip
