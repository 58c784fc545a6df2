"""Schedules that would lose a field, or take it from a wrong record, if values were filled in another way."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import pytest
from msgspec import UNSET

from compactor.catalog.catalog import Catalog
from compactor.errors import CatalogError, PortionTooLargeError, StoppedError
from compactor.ingest.filling import with_filled
from compactor.model.record import TopicPartition
from compactor.ports import Filled, Headers
from compactor.storage.local import LocalStorage
from tests.support.engine import gathered, intake, log_of, row, target, with_range_reports
from tests.support.local_spark import LocalFrame
from tests.support.oracle import filling
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
    Fold,
    Ingest,
    Restart,
    Settings,
    Snapshot,
    SourceRecord,
    Vacuum,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T0: Final = TopicPartition("t", 0)
INDEXED: Final = Settings(state_index="always")


def rec(value: bytes | None, key: bytes = b"a") -> SourceRecord:
    return SourceRecord(0, key, value)


def table(simulation: Simulation) -> dict[bytes | None, bytes | None]:
    """What a reader of the output has."""
    return apply_records(simulation.broker.output.records[T0])


def counts(simulation: Simulation) -> tuple[int, int]:
    """Records that were filled, and those that hold a placeholder still."""
    counted = simulation.components.engine.counts()
    return counted["records_filled"], counted["records_left_unfilled"]


@pytest.mark.parametrize("settings", [INDEXED, Settings(), Settings(local=-1, state_index="always")])
def test_fields_come_from_the_record_before_in_a_portion_in_runs_and_in_the_base(
    tmp_path: Path, settings: Settings
) -> None:
    """Several records of a key in one portion, then one after the other, and after a full fold."""
    oracle = Oracle(None, tmp_path, fills=True)
    simulation = oracle.simulation
    oracle.run([Restart(settings), Ingest((rec(b"1|x"), rec(b"2|?"), rec(b"?|y", b"b"), rec(b"3|?")))])
    assert table(simulation) == {b"a": b"3|x", b"b": b"?|y"}
    assert counts(simulation) == (2, 1)
    oracle.run([Ingest((rec(b"4|?"),)), Ingest((rec(b"5|?"),))])
    assert table(simulation)[b"a"] == b"5|x"
    oracle.run([Fold(), Snapshot(), Ingest((rec(b"6|?"), rec(b"?|?", b"b"))), Fold(), Ingest((rec(b"7|?"),))])
    assert table(simulation) == {b"a": b"7|x", b"b": b"?|y"}


def test_each_filled_record_has_its_own_offset(tmp_path: Path) -> None:
    """It is published and kept under it; the record before is superseded as any other."""
    oracle = Oracle(None, tmp_path, fills=True)
    oracle.run([Restart(INDEXED), Ingest((rec(b"1|x"),)), Ingest((rec(b"2|?"),))])
    sent = oracle.simulation.broker.output.records[T0]
    assert [(each.source_offset, each.value) for each in sent] == [(0, b"1|x"), (1, b"2|x")]


def test_nothing_is_taken_from_before_a_tombstone(tmp_path: Path) -> None:
    """The row was deleted: a placeholder after that has nothing to stand for."""
    oracle = Oracle(None, tmp_path, fills=True)
    oracle.run([Restart(INDEXED), Ingest((rec(b"1|x"), rec(None), rec(b"2|?")))])
    oracle.run([Ingest((rec(None),)), Fold(), Ingest((rec(b"3|?"),)), Advance(100_000), Fold(), Ingest((rec(b"?|?"),))])
    assert table(oracle.simulation) == {b"a": b"3|?"}


@pytest.mark.parametrize("at", ["ingest.write", "ingest.fill", "ingest.before-commit", "ingest.after-commit"])
def test_a_crash_at_any_step_fills_the_same(tmp_path: Path, at: str) -> None:
    """No commit names the files of before; what is read again is filled from the same records."""
    oracle = Oracle(None, tmp_path, fills=True)
    first: list[AnyStep] = [Restart(INDEXED), Ingest((rec(b"1|x"),))]
    oracle.run([*first, AtFailpoint(Ingest((rec(b"2|?"), rec(b"?|?"))), at, CRASH), Ingest((), again=3), Vacuum()])
    assert table(oracle.simulation) == {b"a": b"2|x"}


def test_a_part_that_is_ingested_already_is_not_filled_from_itself(tmp_path: Path) -> None:
    """Records that are read again are cut off, as without a fill."""
    oracle = Oracle(None, tmp_path, fills=True)
    oracle.run([Restart(INDEXED), Ingest((rec(b"1|x"), rec(b"2|?"))), Ingest((rec(b"?|z"),), again=2)])
    assert table(oracle.simulation) == {b"a": b"2|z"}


def test_tasks_that_read_pieces_of_a_partition_are_filled_together(tmp_path: Path) -> None:
    """The record before may be in the file of another task."""
    oracle = Oracle(None, tmp_path, fills=True)
    oracle.run([Restart(INDEXED), Ingest((rec(b"1|x"), rec(b"2|?"), rec(b"3|?"), rec(b"?|?")), tasks=2)])
    assert table(oracle.simulation) == {b"a": b"3|x"}


def test_a_fold_during_a_micro_batch_changes_nothing(tmp_path: Path) -> None:
    """Nor does a vacuum, which removes the files of the records before."""
    oracle = Oracle(None, tmp_path, fills=True)
    oracle.run([Restart(INDEXED), Ingest((rec(b"1|x"),)), Ingest((rec(b"2|?"),))])
    oracle.run([AtFailpoint(Ingest((rec(b"3|?"),)), "ingest.fill", (Fold(), Advance(100_000), Vacuum()))])
    assert table(oracle.simulation) == {b"a": b"3|x"}


def test_a_generation_fills_from_what_it_has_read_itself(tmp_path: Path) -> None:
    """The log of before is gone; the source is read again from its start."""
    oracle = Oracle(None, tmp_path, fills=True)
    oracle.run([Restart(INDEXED), Ingest((rec(b"1|x"), rec(b"2|?"))), ChangeOffset(0), Ingest((rec(b"?|?"),))])
    assert table(oracle.simulation) == {b"a": b"2|x"}


def test_keys_of_one_identity_fill_each_other(tmp_path: Path) -> None:
    """They are one row, whatever the bytes of the key."""
    oracle = Oracle(None, tmp_path, any_case=True, fills=True)
    oracle.run([Restart(INDEXED), Ingest((rec(b"1|x", b"aa"),)), Ingest((rec(b"2|?", b"AA"),))])
    assert {key: value for key, value in table(oracle.simulation).items() if value is not None} == {b"AA": b"2|x"}


def test_the_fill_is_fixed_with_the_first_commit(tmp_path: Path) -> None:
    """What is kept was filled, or not; another setting is refused."""
    storage = LocalStorage(str(tmp_path))
    first = Catalog.open(storage, "c")
    first.require("offset", "key", "partition", filling.NAME)
    first.take_over("o", 0)
    Catalog.open(storage, "c").require("offset", "key", "partition", filling.NAME)
    said = re.escape("compaction.fill was unavailable so far and is none now")
    with pytest.raises(CatalogError, match=said):
        Catalog.open(storage, "c").require("offset", "key", "partition", UNSET)
    assert Catalog.open(storage, "c").state.fill == filling.NAME


def test_a_resync_changes_the_fill_and_fills_all_anew(tmp_path: Path) -> None:
    """The source is read again, and the catalog names what holds; later records go by it."""
    oracle = Oracle(None, tmp_path)
    oracle.run([Restart(INDEXED), Ingest((rec(b"1|2"), rec(b"?|3"))), Fold()])
    assert table(oracle.simulation) == {b"a": b"?|3"}
    oracle.run([ChangeFill(fills=True), Ingest((rec(b"?|4"),))])
    assert table(oracle.simulation) == {b"a": b"1|4"}
    assert oracle.simulation.components.catalog.state.fill == filling.NAME
    oracle.run([ChangeFill(fills=False), Ingest((rec(b"?|5"),))])
    assert table(oracle.simulation) == {b"a": b"?|5"}
    assert Catalog.open(oracle.simulation.storage, "c").state.fill is UNSET


@pytest.mark.parametrize("point", ["generation.before-commit", "generation.after-commit", "generation.position"])
def test_a_crash_changes_the_fill_whole_or_not_at_all(tmp_path: Path, point: str) -> None:
    """It is an action of the commit by which every log begins again."""
    oracle = Oracle(None, tmp_path, fills=True)
    told = Ingest((rec(b"1|2"), rec(b"?|3")))
    oracle.run([Restart(INDEXED), told, AtFailpoint(ChangeFill(fills=False), point, CRASH), Ingest(())])
    is_changed = point != "generation.before-commit"
    assert table(oracle.simulation) == {b"a": b"?|3" if is_changed else b"1|3"}


class Unreadable(filling.FillOfBars):
    """Reads no value."""

    def fill(self, value: bytes, headers: Headers, earlier: bytes | None, earlier_headers: Headers) -> Filled:
        """See Fill."""
        return Filled(value, 0, is_unreadable=True)


def test_values_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    """They are kept as they came; what has no placeholder is not looked into."""
    simulation = Simulation(None, tmp_path, fills=True)
    simulation.perform(Restart(INDEXED))
    simulation.perform(Ingest((rec(b"1|2"),)))
    state, storage = simulation.components.catalog.state, simulation.storage
    rows = [row(0, 1, b"a", b"?|3"), row(0, 2, b"a", b"4|5"), row(0, 3, b"a", b"?|6")]
    batch = gathered(cast("DataFrame", LocalFrame([with_range_reports(rows, {0: (1, 4)})], intake(storage))))
    made, counted = with_filled(storage, state, batch, target(storage), Unreadable())
    assert made == batch
    assert counted == {"records_filled": 0, "records_left_unfilled": 0, "records_unreadable_to_fill": 2}


def test_a_portion_that_needs_too_much_is_refused(tmp_path: Path) -> None:
    """It is read again in smaller ones; the error names the setting that makes portions smaller."""
    simulation = Simulation(None, tmp_path, fills=True)
    simulation.perform(Restart(INDEXED))
    simulation.perform(Ingest((rec(b"1|" + bytes(100)),)))
    state, storage = simulation.components.catalog.state, simulation.storage
    rows = [row(0, at, b"a", b"%d|?" % at) for at in range(1, 4)]
    frame = LocalFrame([with_range_reports(rows, {0: (1, 4)})], intake(storage))
    batch = gathered(cast("DataFrame", frame))
    made, counted = with_filled(storage, state, batch, target(storage), filling.FillOfBars())
    assert (counted["records_filled"], len(made.parts)) == (3, 1)
    with pytest.raises(PortionTooLargeError, match=re.escape("Set max.offsets.per.trigger")):
        with_filled(storage, state, batch, target(storage), filling.FillOfBars(), held_bytes=300)
    assert log_of(state).end == 1
    with pytest.raises(StoppedError):  # and whatever is left of one ends with a stop
        with_filled(storage, state, batch, target(storage), filling.FillOfBars(), stopped=lambda: True)
