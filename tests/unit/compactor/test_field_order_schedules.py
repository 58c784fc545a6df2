"""Schedules in which a tombstone without the field of the order could win, or lose (compaction.order=field:PATH)."""

from __future__ import annotations

from pathlib import Path

import pytest

from compactor.model.record import TopicPartition
from tests.support.oracle.oracle import Oracle
from tests.support.oracle.output import apply_records
from tests.support.oracle.simulation import Simulation
from tests.support.oracle.steps import (
    CRASH,
    Advance,
    AnyStep,
    AtFailpoint,
    ChangeOffset,
    Fold,
    Ingest,
    OrderedBy,
    Restart,
    Settings,
    SourceRecord,
)

T0 = TopicPartition("t", 0)
ORDER = "field:rank"
FIRST: list[AnyStep] = [OrderedBy(ORDER), Restart(Settings(state_index="always"))]


def at(key: bytes, value: bytes | None, rank: int | None) -> SourceRecord:
    """Returns a record whose field has this value; None: none."""
    return SourceRecord(0, key, value, headers=() if rank is None else (("rank", b"%d" % rank),))


def bare(key: bytes) -> SourceRecord:
    """Returns a tombstone: it has no field."""
    return at(key, None, None)


def ordered(folder: Path, *told: AnyStep) -> Simulation:
    """Runs a history in which the record with the greatest field wins."""
    oracle = Oracle(None, folder, order=ORDER)
    oracle.run([*FIRST, *told])
    return oracle.simulation


def each_way(*records: SourceRecord) -> list[list[Ingest]]:
    """Returns the ways to ingest `records`: each in a portion of its own, all in one, all in one by two tasks."""
    return [[Ingest((each,)) for each in records], [Ingest(records)], [Ingest(records, tasks=2)]]


def table(simulation: Simulation) -> dict[bytes | None, bytes | None]:
    return apply_records(simulation.broker.output.records.get(T0, []))


WAYS = pytest.mark.parametrize("way", [0, 1, 2], ids=["one by one", "in one portion", "by two tasks"])


@WAYS
def test_a_tombstone_takes_the_value_of_what_it_deletes(tmp_path: Path, way: int) -> None:
    """So it deletes, and a late record does not bring the key back; one as high does. It is kept over folds."""
    gone = each_way(at(b"a", b"5", 5), bare(b"a"), at(b"a", b"4", 4))[way]
    simulation = ordered(tmp_path, *gone, Fold(), Ingest((at(b"a", b"3", 3),)))
    assert table(simulation) == {}
    assert simulation.components.engine.counts()["records_late"] == 2
    back = ordered(tmp_path / "2", *gone, Ingest((at(b"a", b"5 again", 5), bare(b"a"), at(b"a", b"6", 6))))
    assert table(back) == {b"a": b"6"}


@WAYS
def test_the_tombstone_after_a_late_record_is_late_as_well(tmp_path: Path, way: int) -> None:
    """Debezium sends one after each delete event: the row that was made again since stays."""
    told = each_way(at(b"a", b"made again", 9), at(b"a", b"delete event", 5), bare(b"a"), bare(b"a"))[way]
    assert table(ordered(tmp_path, *told)) == {b"a": b"made again"}
    for number, point in enumerate(("ingest.look-up", "ingest.before-commit", "ingest.after-commit")):
        crashed = [AtFailpoint(step, point, CRASH) for step in told]
        assert table(ordered(tmp_path / str(number), *crashed, Ingest(()))) == {b"a": b"made again"}


@WAYS
def test_a_tombstone_of_another_key_follows_nothing(tmp_path: Path, way: int) -> None:
    """What comes between tells that it is not of the late record: it deletes the key."""
    told = each_way(at(b"a", b"9", 9), at(b"a", b"late", 5), at(b"b", b"1", 1), bare(b"a"))[way]
    assert table(ordered(tmp_path, *told)) == {b"b": b"1"}


def test_an_empty_portion_between_them_changes_nothing(tmp_path: Path) -> None:
    """Offsets without records, and a restart."""
    late = (at(b"a", b"9", 9), at(b"a", b"late", 5))
    simulation = ordered(tmp_path, Ingest(late, tail=3, most=2), Ingest(()), Restart(), Ingest((bare(b"a"),)))
    assert table(simulation) == {b"a": b"9"}


def test_a_gap_or_a_generation_between_them_forgets_the_late_record(tmp_path: Path) -> None:
    """What an operator has given up is followed by nothing; a generation decides all anew."""
    late = Ingest((at(b"a", b"9", 9), at(b"a", b"late", 5), at(b"b", b"given up", 1)), most=2)
    gap = ordered(tmp_path, late, ChangeOffset(0, 3), Ingest((bare(b"a"),)))
    assert table(gap) == {}
    late = Ingest((at(b"a", b"9", 9), at(b"a", b"late", 5)))
    anew = ordered(tmp_path / "2", late, ChangeOffset(0), Ingest((bare(b"a"),)))
    assert table(anew) == {b"a": b"9"}


def test_a_tombstone_with_the_field_is_as_any_other_record(tmp_path: Path) -> None:
    """A delete event that a transform has made a tombstone of: it loses if it is late."""
    told = (at(b"a", b"9", 9), at(b"a", None, 5), at(b"b", b"1", 1), at(b"b", None, 2), at(b"b", b"late", 1))
    assert table(ordered(tmp_path, Ingest(told))) == {b"a": b"9"}


def test_a_tombstone_of_a_key_without_any_value_takes_none(tmp_path: Path) -> None:
    """It deletes what has none either; the first record with the field wins."""
    told = Ingest((at(b"a", b"-", None), bare(b"a")))
    assert table(ordered(tmp_path, told)) == {}
    assert table(ordered(tmp_path / "2", told, Fold(), Advance(100), Ingest((at(b"a", b"0", 0),)))) == {b"a": b"0"}
