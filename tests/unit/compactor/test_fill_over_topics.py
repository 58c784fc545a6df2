"""Schedules that would lose a field, or take it from a wrong record, if values are filled over a topic's partitions."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

import pytest

from compactor.model.record import TopicPartition
from tests.support.memory.journal import REFUSED
from tests.support.oracle.filling import filled
from tests.support.oracle.oracle import Oracle
from tests.support.oracle.output import apply_records
from tests.support.oracle.simulation import Simulation
from tests.support.oracle.steps import (
    CRASH,
    Advance,
    AnyStep,
    AtFailpoint,
    ChangeFill,
    ChangeOffset,
    ChangeScope,
    Fold,
    Ingest,
    Rebuild,
    Restart,
    Settings,
    Snapshot,
    SourceRecord,
    Tick,
    Vacuum,
)

U0, U1 = TopicPartition("u", 0), TopicPartition("u", 1)
INDEXED: Final = Settings(state_index="always")
READ_ON: Final = Ingest(())


def at(number: int, time: int, value: bytes | None, key: bytes = b"a") -> SourceRecord:
    """Returns a record in partition `number` of topic u, with this timestamp."""
    return SourceRecord(3 + number, key, value, time=time, fixed=True)


def ago(number: int, ms: int, value: bytes | None) -> SourceRecord:
    """Returns a record of key a in partition `number`, written so many ms ago by its timestamp."""
    return SourceRecord(3 + number, b"a", value, time=-ms)


def run(folder: Path, *told: AnyStep, settings: Settings = INDEXED) -> Oracle:
    """Runs a history that the oracle holds against the promises after every step."""
    oracle = Oracle(None, folder, fills=True, of_topics=True)
    oracle.run([Restart(settings), *told])
    return oracle


def table(simulation: Simulation) -> dict[bytes | None, bytes | None]:
    """Returns what a reader of the output has."""
    records = simulation.broker.output.records
    return {key: value for tp in (U0, U1) for key, value in apply_records(records.get(tp, ())).items()}


def end(simulation: Simulation, tp: TopicPartition) -> int:
    """Returns the offset up to which a partition is ingested."""
    return simulation.components.catalog.state.log(tp).end


@pytest.mark.parametrize("settings", [INDEXED, Settings(), Settings(local=-1, state_index="always")])
def test_a_key_that_moves_to_another_partition_keeps_its_fields(tmp_path: Path, settings: Settings) -> None:
    """In one portion, from runs, from the base run, and back again."""
    oracle = run(tmp_path, Ingest((at(1, 20, b"2|?"), at(0, 10, b"1|x"))), settings=settings)
    assert table(oracle.simulation) == {b"a": b"2|x"}
    oracle.run([Ingest((at(0, 30, b"3|?"),)), Fold(), Snapshot(), Ingest((at(1, 40, b"4|?"), at(0, 50, b"?|y")))])
    assert table(oracle.simulation) == {b"a": b"4|y"}
    oracle.run([Fold(), Advance(100_000), Vacuum(), Ingest((at(1, 60, b"?|?"),))])
    assert table(oracle.simulation) == {b"a": b"4|y"}


def test_the_record_before_is_that_of_the_topic_not_that_of_the_own_log(tmp_path: Path) -> None:
    """A key that comes back to its partition takes what the other one has had meanwhile."""
    oracle = run(tmp_path, Ingest((at(0, 10, b"1|x"),)), Ingest((at(1, 20, b"2|y"),)), Ingest((at(0, 30, b"3|?"),)))
    assert table(oracle.simulation) == {b"a": b"3|y"}


def test_a_record_waits_until_the_other_partition_is_read(tmp_path: Path) -> None:
    """What had come there by then may be before it; nothing of its own partition is taken meanwhile."""
    told = at(0, 10, b"1|1", b"b"), at(0, 15, b"1|x"), at(1, 20, b"2|?"), at(1, 21, b"3|3", b"b")
    oracle = run(tmp_path, Ingest(told, most=1))
    assert (end(oracle.simulation, U0), end(oracle.simulation, U1)) == (1, 0)
    oracle.run([Ingest((), most=1)])
    assert (end(oracle.simulation, U0), end(oracle.simulation, U1)) == (2, 1)
    oracle.run([READ_ON])
    assert table(oracle.simulation) == {b"a": b"2|x", b"b": b"3|3"}


def test_a_record_does_not_wait_for_one_that_comes_after_it(tmp_path: Path) -> None:
    """Two partitions that are behind do not wait for each other for ever."""
    told = *(at(0, time, b"%d|?" % time) for time in range(10, 30, 2)), *(at(1, time, b"?|?") for time in (11, 27, 99))
    oracle = run(tmp_path, Ingest(told, most=2), *[Ingest((), most=2)] * 8)
    assert (end(oracle.simulation, U0), end(oracle.simulation, U1)) == (10, 3)


def test_a_busy_source_does_not_make_a_record_wait_for_ever(tmp_path: Path) -> None:
    """It waits for what was there once it was read, whatever comes after that, and with whatever times."""
    oracle = run(tmp_path, Ingest((at(1, 90, b"2|?"), at(0, 10, b"1|1", b"b"), at(0, 10, b"1|x")), most=1))
    assert end(oracle.simulation, U1) == 0
    oracle.run([Ingest((at(0, 10, b"3|3", b"b"),), most=1)])
    assert (end(oracle.simulation, U0), end(oracle.simulation, U1)) == (2, 1)
    assert table(oracle.simulation)[b"a"] == b"2|x"


def test_a_restart_while_a_record_waits_loses_nothing(tmp_path: Path) -> None:
    """It waits for what is there by then."""
    told = Ingest((at(1, 90, b"2|?"), at(0, 10, b"1|1", b"b"), at(0, 20, b"1|x")), most=1)
    oracle = run(tmp_path, told, Restart(INDEXED), READ_ON)
    assert table(oracle.simulation)[b"a"] == b"2|x"


def test_one_that_is_written_too_late_fills_nothing_that_was_taken(tmp_path: Path) -> None:
    """It loses, and is not sent; what comes after the winner goes on from that."""
    oracle = run(tmp_path, Ingest((at(0, 10, b"1|x"), at(1, 30, b"3|?"))), Ingest((at(0, 20, b"2|y"),)))
    assert table(oracle.simulation) == {b"a": b"3|x"}
    oracle.run([Fold(), Ingest((at(1, 40, b"4|?"), at(1, 50, b"?|z"), at(0, 45, b"5|?")))])
    assert table(oracle.simulation) == {b"a": b"5|z"}


def test_of_what_is_published_the_winner_alone_counts(tmp_path: Path) -> None:
    """A clean may take the others at any moment; what loses to the winner is not sent, and stays as it is."""
    oracle = run(tmp_path, Ingest((at(0, 10, b"1|x"), at(1, 30, b"3|y"))), Ingest((at(0, 20, b"2|?"),)))
    assert table(oracle.simulation) == {b"a": b"3|y"}
    assert oracle.simulation.components.engine.counts()["records_filled"] == 0


def test_nothing_is_taken_from_before_a_tombstone_of_another_partition(tmp_path: Path) -> None:
    """The row was deleted there; nor from before one that was dropped since."""
    oracle = run(tmp_path, Ingest((at(0, 10, b"1|x"),)), Ingest((at(1, 20, None),)), Ingest((at(0, 30, b"3|?"),)))
    assert table(oracle.simulation) == {b"a": b"3|?"}
    oracle.run([Ingest((at(1, 40, None),)), Fold(), Advance(100_000), Fold(), Ingest((at(0, 50, b"?|?"),))])
    assert table(oracle.simulation) == {b"a": b"?|?"}


def test_a_record_is_filled_from_one_that_waits_for_its_lag_in_another_partition(tmp_path: Path) -> None:
    """Also if a later one of the key waits there: that is published after it."""
    lagging = INDEXED._replace(lag=500)
    oracle = run(tmp_path, Ingest((ago(0, 400, b"1|x"), ago(0, 100, b"3|y"))), settings=lagging)
    oracle.run([Ingest((ago(1, 300, b"2|?"),)), Advance(250), Tick()])
    assert table(oracle.simulation) == {b"a": b"2|x"}
    oracle.run([Advance(250), Tick()])
    assert table(oracle.simulation) == {b"a": b"3|y"}


@pytest.mark.parametrize(
    "point", ["ingest.wait", "ingest.admit", "ingest.fill", "ingest.before-commit", "ingest.after-commit"]
)
def test_a_crash_at_any_step_fills_the_same(tmp_path: Path, point: str) -> None:
    """No commit names the files of before; what is read again is filled from the same records."""
    told = at(1, 20, b"2|?"), at(1, 90, b"3|?"), at(0, 15, b"1|x"), at(0, 14, b"1|late"), at(0, 80, b"?|y")
    oracle = run(tmp_path, Ingest((at(0, 10, b"1|w"),)), AtFailpoint(Ingest(told, most=2), point, CRASH))
    oracle.run([Ingest((), again=2), Vacuum(), READ_ON])
    assert table(oracle.simulation) == {b"a": b"3|y"}


@pytest.mark.parametrize("point", ["ingest.wait", "ingest.fill"])
def test_a_clean_during_a_portion_changes_nothing(tmp_path: Path, point: str) -> None:
    """It takes losers away, and a vacuum the files in which they were."""
    oracle = run(tmp_path, Ingest((at(0, 10, b"1|x"), at(1, 20, b"2|y"), at(0, 30, b"3|z", b"b"))))
    told = at(1, 40, b"4|?"), at(0, 25, b"5|5", b"b"), at(1, 90, b"6|?"), at(0, 35, b"7|?", b"b")
    oracle.run([AtFailpoint(Ingest(told, most=1), point, (Fold(), Advance(100_000), Vacuum())), READ_ON, READ_ON])
    assert table(oracle.simulation) == {b"a": b"6|y", b"b": b"7|z"}


def test_a_generation_fills_from_what_it_has_read_itself(tmp_path: Path) -> None:
    """All logs of the topic begin again, and so do its fields."""
    oracle = run(tmp_path, Ingest((at(0, 10, b"1|x"), at(1, 20, b"2|?"))), ChangeOffset(3, None), READ_ON)
    assert table(oracle.simulation) == {b"a": b"2|x"}


def test_a_rebuilt_log_fills_from_what_readers_have_of_a_key_that_the_broker_refused(tmp_path: Path) -> None:
    """Their record is of the generation before, and comes before each of the source."""
    oracle = run(tmp_path, Ingest((at(0, 10, b"1|x"), at(1, 10, b"0|z", b"b"))), ChangeOffset(3, offset=1, anew=True))
    oracle.run([Ingest((at(0, 20, REFUSED), at(1, 20, b"1|z", b"b"))), Rebuild()])
    assert table(oracle.simulation) == {b"a": b"1|x", b"b": b"1|z"}
    oracle.run([Ingest((at(1, 30, b"?|?"),)), Fold(), Snapshot(), Ingest((at(0, 40, b"2|?"),))])
    assert table(oracle.simulation) == {b"a": b"2|x", b"b": b"1|z"}


@pytest.mark.parametrize("change", [ChangeScope(of_topics=False), ChangeFill(fills=False)])
def test_a_resync_takes_one_of_both_away(tmp_path: Path, change: AnyStep) -> None:
    """What is left goes on by itself."""
    oracle = run(tmp_path, Ingest((at(0, 10, b"1|x"), at(1, 20, b"2|?"))), change, READ_ON)
    assert table(oracle.simulation) == {b"a": b"2|?"}


SEEDS: Final = [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 60))]


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_are_filled_in_the_order_of_time_whatever_is_read_first(tmp_path: Path, seed: int) -> None:
    """A table's rows are those of one log: a source whose times rise in each partition, read in whatever parts."""
    chance = Random(seed)
    forms = b"%d|?", b"?|%d", b"%d|%d", b"?|?", None
    told: list[SourceRecord] = []
    rows: dict[bytes | None, bytes | None] = {}
    ends, expected = [0, 0], dict[tuple[int, int], bytes | None]()
    for time in range(10, 50):
        form, key, number = chance.choice(forms), chance.choice((b"a", b"b")), chance.choice((0, 0, 1))
        value = form if form is None else form.replace(b"%d", b"%d" % time)
        told.append(at(number, time, value, key))
        expected[number, ends[number]] = rows[key] = filled(value, rows.get(key))
        ends[number] += 1
    oracle = run(tmp_path)
    while told:
        count = chance.choice((4, 15, 40))
        oracle.run([Ingest(tuple(told[:count]), most=chance.choice((1, 2, 5)))])
        told = told[count:]
    oracle.run([*(Ingest((), most=chance.choice((1, 2, 5))) for _ in range(10)), *[READ_ON] * 3])
    simulation = oracle.simulation
    assert [end(simulation, tp) for tp in (U0, U1)] == ends
    assert table(simulation) == {key: value for key, value in rows.items() if value is not None}
    sent = [each for tp in (U0, U1) for each in simulation.broker.output.records.get(tp, ())]
    assert {expected[each.tp.partition, each.source_offset] == each.value for each in sent} == {True}
