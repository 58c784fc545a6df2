"""Schedules in which a truncate could leave a row, or take one with it (debezium.truncate=apply, by an order)."""

from __future__ import annotations

from pathlib import Path

import pytest

from compactor.model.log import generation_of
from compactor.model.record import TopicPartition
from tests.support.oracle.oracle import Oracle
from tests.support.oracle.output import apply_records
from tests.support.oracle.simulation import Simulation
from tests.support.oracle.steps import (
    CRASH,
    TRUNCATE,
    AnyStep,
    AtFailpoint,
    ChangeOffset,
    Fold,
    Ingest,
    OfTopics,
    OrderedBy,
    Restart,
    Settings,
    SourceRecord,
    Vacuum,
)

ORDER = "field:rank"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def at(place: int, key: bytes | None, rank: int | None, value: bytes | None = b"v") -> SourceRecord:
    """Returns a record of the partition `place` of t with this place in the order; None: without one."""
    return SourceRecord(place, key, value, headers=() if rank is None else (("rank", b"%d" % rank),))


def truncate(place: int, rank: int) -> SourceRecord:
    """Returns a truncate."""
    return at(place, None, rank, TRUNCATE)


def told(folder: Path, *steps: AnyStep, of_topics: bool = False) -> Simulation:
    """Runs a history on logs with and without one winner over the topic."""
    oracle = Oracle(None, folder, order=ORDER, of_topics=of_topics)
    first: list[AnyStep] = [OrderedBy(ORDER), *([OfTopics()] if of_topics else [])]
    oracle.run([*first, Restart(Settings(state_index="always")), *steps])
    return oracle.simulation


def rows(simulation: Simulation) -> set[bytes | None]:
    """Returns the keys that a reader of t has."""
    places = simulation.broker.output.records.items()
    return {key for place, records in places if place.topic == "t" for key in apply_records(records)}


SCOPES = pytest.mark.parametrize("of_topics", [False, True], ids=["partition", "topic"])


@SCOPES
def test_a_partition_that_is_ahead_keeps_what_is_after_the_truncate(tmp_path: Path, *, of_topics: bool) -> None:
    """And loses what came late: the example of docs/protocol.md, cleaned before or not."""
    ahead = Ingest((at(0, b"a", 10), at(1, b"b", 30), at(1, b"c", 15)))
    betweens: list[list[AnyStep]] = [[], [Fold()], [Fold(), Vacuum()]]
    for number, between in enumerate(betweens):
        simulation = told(tmp_path / str(number), ahead, *between, Ingest((truncate(0, 20),)), of_topics=of_topics)
        assert rows(simulation) == {b"b"}
        state = simulation.components.catalog.state
        assert {generation_of(log) for log in state.logs_of("t")} == {2}


@SCOPES
def test_what_comes_later_from_before_the_truncate_is_late(tmp_path: Path, *, of_topics: bool) -> None:
    """In each partition, over cleans and restarts; the same truncate again, or an earlier one, changes nothing."""
    simulation = told(
        tmp_path,
        Ingest((at(0, b"a", 10), truncate(0, 20), at(0, b"d", 15), at(0, b"e", 21))),
        Fold(),
        Restart(),
        Ingest((at(1, b"f", 19), at(2, b"g", None), truncate(1, 20), truncate(2, 11), at(2, b"h", 20))),
        of_topics=of_topics,
    )
    assert rows(simulation) == {b"e", b"h"}
    assert simulation.components.engine.counts().get("truncates", 0) == 0


@SCOPES
@pytest.mark.parametrize(
    "point",
    [
        "generation.read",
        "generation.write",
        "generation.carry",
        "generation.before-commit",
        "generation.after-commit",
        "generation.position",
        "publish.plan",
        "publish.before-commit",
    ],
)
def test_killed_anywhere_the_next_run_goes_on_with_it(tmp_path: Path, point: str, *, of_topics: bool) -> None:
    """Nothing passes the truncate before it is applied, and it is applied once."""
    ahead = Ingest((at(0, b"a", 10), at(1, b"b", 30), at(1, b"c", 15)))
    crashed = AtFailpoint(Ingest((truncate(0, 20), at(0, b"a", 25))), point, CRASH)
    simulation = told(tmp_path, ahead, crashed, Vacuum(), Ingest(()), of_topics=of_topics)
    assert rows(simulation) == {b"a", b"b"}
    assert {generation_of(log) for log in simulation.components.catalog.state.logs_of("t")} == {2}


def test_records_that_wait_and_dead_letters_are_carried_over(tmp_path: Path) -> None:
    """What was not published yet is not lost: it is sent with the first fold, each dead letter once."""
    first = Ingest((at(0, b"a", 10), at(0, None, None, b"sent"), at(1, b"b", 30)))
    waiting = Restart(Settings(state_index="always", lag=500))
    later = Ingest((at(0, None, None, b"waits"), at(1, b"b", 31), at(1, b"c", 12), at(1, b"d", 40, None)))
    simulation = told(tmp_path, first, waiting, later, Restart(Settings()), Ingest((truncate(0, 20),)))
    assert rows(simulation) == {b"b"}
    letters = [(each.tp, each.source_offset, each.value) for each in simulation.broker.output.letters]
    assert letters == [(T0, 1, b"sent"), (T0, 2, b"waits")]


def test_when_all_is_read_again_the_truncate_is_met_again(tmp_path: Path) -> None:
    """The fence goes with the logs: otherwise nobody could get rid of one that was sent by mistake."""
    simulation = told(
        tmp_path,
        Ingest((at(3, b"a", 10), truncate(3, 20), at(3, b"b", 30))),
        ChangeOffset(3, 2, anew=True),
        Ingest((at(3, b"c", 5),)),
    )
    assert apply_records(simulation.broker.output.records[TopicPartition("u", 0)]) == {b"b": b"v", b"c": b"v"}
