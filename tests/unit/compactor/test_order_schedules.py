"""Schedules in which a record that comes late could win, or one that does not could lose (compaction.order)."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

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
    ChangeOrder,
    Fold,
    Ingest,
    OrderedBy,
    Restart,
    Settings,
    SourceRecord,
    Tick,
    Vacuum,
)

T0 = TopicPartition("t", 0)
FAR = 253_402_300_799_000  # the last second of the year 9999
FIRST: list[AnyStep] = [Restart(Settings(state_index="always"))]


def at(key: bytes, value: bytes | None, time: int) -> SourceRecord:
    """Returns a record with this timestamp."""
    return SourceRecord(0, key, value, time=time, fixed=True)


def ordered(folder: Path, *told: AnyStep) -> Oracle:
    """Runs a history in which the record with the greatest timestamp wins."""
    oracle = Oracle(None, folder, order="timestamp")
    oracle.run([OrderedBy("timestamp"), *FIRST, *told])
    return oracle


def table(simulation: Simulation) -> dict[bytes | None, bytes | None]:
    return apply_records(simulation.broker.output.records.get(T0, []))


def sent(simulation: Simulation) -> list[int]:
    return [each.source_offset for each in simulation.broker.output.records.get(T0, [])]


def counts(simulation: Simulation) -> dict[str, int]:
    return simulation.components.engine.counts()


def test_a_record_of_the_future_holds_its_key_until_one_as_high_comes(tmp_path: Path) -> None:
    """What came before that is late, tombstones too; a warning names the record, and a tombstone frees the key."""
    held = Ingest((at(b"b", b"1", 1), at(b"a", b"9999", FAR)))
    with capture_logs() as logs:
        late = ordered(tmp_path / "held", held, Ingest((at(b"a", None, 5),))).simulation
    (line,) = [each for each in logs if "by compaction.order" in each["event"]]
    assert (line["topic"], line["partition"], line["offset"], line["timestamp_ms"]) == ("t", 0, 1, FAR)
    assert table(late) == {b"b": b"1", b"a": b"9999"}
    freed = ordered(tmp_path / "freed", held, Ingest((at(b"a", None, FAR),))).simulation
    assert table(freed) == {b"b": b"1"}


def test_a_record_that_comes_late_is_neither_published_nor_kept(tmp_path: Path) -> None:
    """In the portion of the winner or in a later one; of equal ones the higher offset wins; it is counted."""
    simulation = ordered(tmp_path, Ingest((at(b"a", b"5", 5), at(b"a", b"4", 4)))).simulation
    assert (table(simulation), sent(simulation)) == ({b"a": b"5"}, [0])
    simulation = ordered(
        tmp_path / "2",
        Ingest((at(b"a", b"5", 5),)),
        Ingest((at(b"a", b"4", 4), at(b"b", b"1", 1))),
        Ingest((at(b"a", b"5 again", 5), at(b"a", b"3", 3))),
        Fold(),
        Ingest((at(b"a", b"2", 2),)),
    ).simulation
    assert (table(simulation), sent(simulation)) == ({b"a": b"5 again", b"b": b"1"}, [0, 2, 3])
    assert counts(simulation)["records_late"] == 3
    assert counts(simulation)["records_read"] == 6 == counts(simulation)["records_published"] + 3
    (base,) = (run for run in (simulation.components.catalog.state.log(T0).base,) if run)
    assert base.records == 2


def test_a_portion_of_nothing_but_late_records_moves_the_log_on(tmp_path: Path) -> None:
    """Its offsets are ingested, and no file of it is named."""
    simulation = ordered(tmp_path, Ingest((at(b"a", b"5", 5),)), Ingest((at(b"a", b"4", 4),) * 3)).simulation
    log = simulation.components.catalog.state.log(T0)
    assert (log.end, log.published, len(log.runs)) == (4, 4, 1)


def test_a_late_record_does_not_bring_back_a_key_whose_tombstone_is_kept(tmp_path: Path) -> None:
    """It does once a full fold has dropped the tombstone: nothing tells then that the key was deleted later."""
    gone: list[AnyStep] = [Ingest((at(b"a", b"5", 5),)), Ingest((at(b"a", None, 9),)), Fold()]
    oracle = ordered(tmp_path, *gone, Ingest((at(b"a", b"7", 7),)))
    assert table(oracle.simulation) == {}
    oracle.run([Advance(1_000), Fold(), Ingest((at(b"a", b"8", 8),))])
    assert table(oracle.simulation) == {b"a": b"8"}


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_tasks_that_read_pieces_of_a_partition_are_decided_about_together(tmp_path: Path, tasks: int) -> None:
    """What a later piece has is held against an earlier one, though no task has seen both."""
    times = (3, 9, 1, 2, 8, 9, 7)
    records = tuple(at(b"a", b"%d" % place, time) for place, time in enumerate(times))
    simulation = ordered(tmp_path, Ingest(records, tasks=tasks)).simulation
    assert (table(simulation), counts(simulation)["records_late"]) == ({b"a": b"5"}, 4)


def test_what_an_overlap_brings_again_is_decided_once(tmp_path: Path) -> None:
    """Records below the log's end are not held against themselves, nor counted."""
    oracle = ordered(tmp_path, Ingest((at(b"a", b"5", 5), at(b"a", b"4", 4), at(b"b", b"1", 1))))
    oracle.run([Ingest((at(b"a", b"6", 6), at(b"b", b"0", 0)), again=3)])
    assert (table(oracle.simulation), counts(oracle.simulation)["records_late"]) == ({b"a": b"6", b"b": b"1"}, 2)


@pytest.mark.parametrize("point", ["ingest.look-up", "ingest.admit", "ingest.before-commit", "ingest.after-commit"])
def test_a_crash_at_any_step_decides_the_same(tmp_path: Path, point: str) -> None:
    """No commit names what was written before; the portion is read and decided about again, on the same state."""
    late = Ingest((at(b"a", b"4", 4), at(b"b", b"1", 1)))
    oracle = ordered(tmp_path, Ingest((at(b"a", b"5", 5),)), AtFailpoint(late, point, CRASH), Ingest(()), Vacuum())
    assert (table(oracle.simulation), sent(oracle.simulation)) == ({b"a": b"5", b"b": b"1"}, [0, 2])


def test_a_clean_during_the_look_up_drops_the_tombstone_that_decides(tmp_path: Path) -> None:
    """The record has lost while the tombstone was kept, as it would have in the other order of the two."""
    told: list[AnyStep] = [Ingest((at(b"a", b"5", 5), at(b"a", None, 9))), Fold(), Advance(1_000)]
    late = AtFailpoint(Ingest((at(b"a", b"7", 7),)), "ingest.look-up", (Fold(), Vacuum()))
    simulation = ordered(tmp_path, *told, late, Tick()).simulation
    assert table(simulation) == {}


def test_a_generation_begins_below_every_value(tmp_path: Path) -> None:
    """Its tombstones are of no source record: the first record of a key wins, however old it is, and order goes on."""
    oracle = ordered(tmp_path, Ingest((at(b"a", b"5", 5), at(b"b", b"1", -1), at(b"a", b"4", 4))), ChangeOffset(0))
    oracle.run([Ingest((at(b"b", b"0", 0), at(b"a", b"3", 3)))])
    assert table(oracle.simulation) == {b"a": b"5", b"b": b"0"}
    assert counts(oracle.simulation)["records_late"] == 2


def test_a_resync_changes_the_order_and_decides_all_anew(tmp_path: Path) -> None:
    """The source is read again, every record of it is decided about by the new order, and the catalog names that."""
    told = (at(b"a", b"second by time", 5), at(b"a", b"first by time", 4), at(b"b", b"1", 1))
    oracle = ordered(tmp_path, Ingest(told), Fold())
    assert table(oracle.simulation) == {b"a": b"second by time", b"b": b"1"}
    oracle.run([ChangeOrder("offset"), Ingest(())])
    assert table(oracle.simulation) == {b"a": b"first by time", b"b": b"1"}
    oracle.run([ChangeOrder("timestamp"), Ingest((at(b"b", b"0", 0),))])
    assert table(oracle.simulation) == {b"a": b"second by time", b"b": b"1"}
    assert oracle.simulation.components.catalog.state.order == "timestamp"


@pytest.mark.parametrize("point", ["generation.before-commit", "generation.after-commit", "generation.position"])
def test_a_crash_changes_the_order_whole_or_not_at_all(tmp_path: Path, point: str) -> None:
    """It is an action of the commit by which every log begins again."""
    told = (at(b"a", b"second by time", 5), at(b"a", b"first by time", 4))
    oracle = ordered(tmp_path, Ingest(told), AtFailpoint(ChangeOrder("offset"), point, CRASH), Ingest(()))
    is_changed = point != "generation.before-commit"
    assert oracle.simulation.components.catalog.state.order == ("offset" if is_changed else "timestamp")
    assert table(oracle.simulation) == {b"a": b"first by time" if is_changed else b"second by time"}


def test_within_the_lag_a_record_loses_against_what_waits(tmp_path: Path) -> None:
    """What is kept counts, published or not."""
    oracle = Oracle(None, tmp_path, order="timestamp")
    lag = Restart(Settings(lag=500, state_index="always"))
    oracle.run([OrderedBy("timestamp"), lag, Ingest((SourceRecord(0, b"a", b"now"),))])
    assert sent(oracle.simulation) == []
    oracle.run([Ingest((SourceRecord(0, b"a", b"before", time=-100),)), Advance(1_000), Tick()])
    assert (table(oracle.simulation), sent(oracle.simulation)) == ({b"a": b"now"}, [0])
