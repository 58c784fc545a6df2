"""Single things that happen to a connector, on the real engine; Kafka, Spark and the clock are stood for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from compactor.errors import FoldError
from compactor.model.actions import CloseTopic
from compactor.model.record import TopicPartition
from compactor.runs.reader import read_file_range
from compactor.snapshot import data_files as snapshotdata
from tests.support.memory.journal import REFUSED
from tests.support.memory.publisher import PublishFault, PublishStep
from tests.support.oracle.log_contents import LogContents
from tests.support.oracle.oracle import Oracle
from tests.support.oracle.output import apply_records
from tests.support.oracle.simulation import Simulation
from tests.support.oracle.steps import (
    Advance,
    AnyStep,
    ChangeOffset,
    FailingPublisher,
    Fold,
    FoldMethod,
    Ingest,
    Restart,
    Round,
    Settings,
    Snapshot,
    SourceRecord,
    Tick,
    Vacuum,
)

T0 = TopicPartition("t", 0)
LAG = Settings(lag=200)
SENT_IN_PART: list[AnyStep] = [
    Restart(Settings(most=1)),
    Ingest((SourceRecord(0, b"x", b"0"),)),
    FailingPublisher(
        Ingest((SourceRecord(0, b"AA", b"1"), SourceRecord(0, b"b", b"1"))),
        PublishFault(step=PublishStep.SENT, transaction=2),
    ),
]
"""Of a fold of two records the first is sent."""

GIVE_UP = ChangeOffset(0, 1_000)
EVERYTHING_ELSE: list[AnyStep] = [Advance(1_000), Tick(), Round(), Fold(), Snapshot(), Vacuum()]


def offsets(simulation: Simulation) -> tuple[int, ...]:
    log = simulation.components.catalog.state.log(T0)
    return log.clean_end, log.published, log.folded_end, log.end


def sent(simulation: Simulation, tp: TopicPartition = T0) -> list[int]:
    return [one.source_offset for one in simulation.broker.output.records.get(tp, [])]


def test_a_clock_that_is_set_back_moves_nothing_back(tmp_path: Path) -> None:
    """What was published and folded stays so, though it is young again; what is old even so goes on."""
    oracle = Oracle(None, tmp_path)
    oracle.run(
        [Restart(LAG), Ingest(tuple(SourceRecord(0, key, b"1", time=-300) for key in (b"a", b"b", b"c"))), Fold()]
    )
    assert offsets(oracle.simulation) == (3, 3, 3, 3)
    oracle.run([Advance(-70_000), Ingest((SourceRecord(0, b"d", b"1"),)), Tick(), Round(), Fold(), Restart(), Tick()])
    assert offsets(oracle.simulation) == (3, 3, 3, 4)
    oracle.run([Advance(100), Ingest((SourceRecord(0, b"e", b"1"),)), Advance(100), Tick(), Fold()])
    assert offsets(oracle.simulation) == (4, 4, 4, 5)
    assert sent(oracle.simulation) == [0, 1, 2, 3]


def test_what_waited_for_its_lag_stays_in_the_log_of_a_deleted_topic(tmp_path: Path) -> None:
    """It is never published, with the next life and without a lag neither, and nothing takes it out of the log."""
    simulation = Simulation(None, tmp_path)
    simulation.perform(Restart(LAG))
    simulation.perform(
        Ingest((SourceRecord(0, b"a", b"1", time=-300), SourceRecord(0, b"b", b"2"), SourceRecord(3, b"a", b"u")))
    )
    simulation.components.catalog.commit(lambda _: [CloseTopic(topic="t", reason="deleted")], simulation.clock.now_ms())
    for step in (*EVERYTHING_ELSE, Restart(Settings()), *EVERYTHING_ELSE):
        simulation.perform(step)
    assert offsets(simulation) == (1, 1, 1, 2)
    assert [
        one["value"] for one in LogContents(simulation.storage).of(simulation.components.catalog.state.log(T0))
    ] == [b"1", b"2"]
    assert (sent(simulation), sent(simulation, TopicPartition("u", 0))) == ([0], [0])


def test_a_log_that_ends_in_a_hole_is_done_to_its_end(tmp_path: Path) -> None:
    """Read, published, folded and in a snapshot up to the last offset, where no record is; what comes next follows."""
    oracle = Oracle(None, tmp_path)
    simulation = oracle.simulation
    oracle.run([Ingest((SourceRecord(0, b"a", b"1"), SourceRecord(0, b"b", b"1")), tail=5), Fold(), Snapshot(), Tick()])
    assert offsets(simulation) == (7, 7, 7, 7)
    position = simulation.broker.output.positions[T0]
    assert position is not None
    assert position.offset == 7
    assert [taken.source_offsets["0"] for taken in simulation.components.catalog.state.snapshots] == [7]
    oracle.run([Ingest((), tail=3), Ingest((SourceRecord(0, b"a", b"2"),)), Fold(), Snapshot()])
    assert offsets(simulation) == (11, 11, 11, 11)
    assert sent(simulation) == [0, 1, 10]


def test_a_snapshot_that_lacks_a_record_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was copied and left out is compared with what the base runs hold; nothing of such a snapshot is named."""
    simulation = Simulation(None, tmp_path)
    simulation.perform(Ingest((SourceRecord(0, b"a", b"1"), SourceRecord(0, b"b", None), SourceRecord(0, b"c", b"1"))))
    monkeypatch.setattr(
        snapshotdata, "read_file_range", lambda *told: (batch.slice(1) for batch in read_file_range(*told))
    )
    with pytest.raises(FoldError, match=r"has 1 records and left out 1; the runs hold 3 records"):
        simulation.perform(Snapshot())
    assert not simulation.components.catalog.state.snapshots
    monkeypatch.undo()
    simulation.perform(Snapshot())
    assert [taken.records for taken in simulation.components.catalog.state.snapshots] == [2]


@pytest.mark.parametrize(
    "settings", [Settings(), LAG, Settings(lag=200, segment_bytes=40, fold_method=FoldMethod.SPARK)]
)
def test_every_record_that_was_taken_in_is_accounted_for(tmp_path: Path, settings: Settings) -> None:
    """Once all is published, what was read was sent, superseded or has no key; no count goes down on the way."""
    oracle = Oracle(None, tmp_path)
    told: list[AnyStep] = [Restart(settings)]
    for _ in range(6):
        aging = tuple(SourceRecord(0, b"%d" % (at % 3), b"v", time=20 * at - 180) for at in range(9))
        told += [Ingest(aging), Advance(70)]
        told += [Ingest((SourceRecord(1, None, b"no key"), SourceRecord(0, b"k", b"v"))), Tick(), Fold(), Advance(30)]
    superseded = [0]
    for step in (*told, Advance(500), Tick()):
        oracle.run([step])
        superseded.append(oracle.simulation.components.engine.counts()["records_superseded"])
    counts = oracle.simulation.components.engine.counts()
    assert counts["records_read"] == 66
    assert counts["records_published"] + counts["records_superseded"] + counts["records_rejected"] == 66
    assert counts["records_rejected"] == counts["dead_letters"] == 6
    assert superseded == sorted(superseded)
    assert superseded[-1] > 0


def test_a_damaged_file_below_what_is_sent_sets_its_log_aside_where_keys_have_an_identity(tmp_path: Path) -> None:
    """What keys are to be retired cannot be read: nothing of it is sent until it can, and other logs go on."""
    simulation = Simulation(None, tmp_path, any_case=True)
    simulation.perform(Ingest((SourceRecord(0, b"AA", b"1"),)))
    simulation.perform(Fold())
    simulation.perform(Ingest((SourceRecord(1, b"AA", b"1"),)))
    (file,) = simulation.components.catalog.state.log(T0).base.files  # type: ignore[union-attr]
    path = Path(simulation.storage.location, file.path)
    whole = path.read_bytes()
    path.write_bytes(whole[:40] + bytes([whole[40] ^ 255]) + whole[41:])
    more = Ingest((SourceRecord(0, b"aa", b"2"), SourceRecord(1, b"aa", b"2")))
    simulation.perform(more)
    held = {log.tp: log.quarantine for log in simulation.components.catalog.state.logs if log.quarantine}
    assert {tp: one.publishing for tp, one in held.items()} == {T0: True}
    assert sent(simulation) == [0]
    path.write_bytes(whole)
    simulation.components.maintenance.release(simulation.clock.now_ms(), [T0])
    simulation.perform(Tick())
    for tp in (T0, TopicPartition("t", 1)):
        assert [(one.key, one.value) for one in simulation.broker.output.records[tp]] == [
            (b"AA", b"1"), (b"AA", None), (b"aa", b"2"),
        ]  # fmt: skip


def index_of_base(simulation: Simulation) -> Path:
    """Returns the index file of the base run of T0."""
    base = simulation.components.catalog.state.log(T0).base
    assert base is not None
    (file,) = base.files
    return Path(simulation.storage.location, str(file.index_path))


@pytest.mark.parametrize("byte", [0, -1])
def test_an_index_that_is_not_what_was_written_is_made_again(tmp_path: Path, byte: int) -> None:
    """A publish does without it; after the next vacuum a clean writes another one, though nothing else is due."""
    simulation = Simulation(None, tmp_path, any_case=True)

    def perform(*told: AnyStep) -> None:
        for step in told:
            simulation.perform(step)

    perform(Restart(Settings(state_index="always", ratio=1.0)), Ingest((SourceRecord(0, b"AA", b"1"),)), Fold())
    damaged = index_of_base(simulation)
    content = bytearray(damaged.read_bytes())
    content[byte] ^= 1
    damaged.write_bytes(content)
    perform(Round(), Vacuum(), Round())
    assert index_of_base(simulation) == damaged, "nobody has met it yet"
    perform(Ingest((SourceRecord(0, b"aa", b"2"),)))
    keys = [(one.key, one.value) for one in simulation.broker.output.records[T0]]
    assert keys == [(b"AA", b"1"), (b"AA", None), (b"aa", b"2")]
    perform(Vacuum(), Round())
    made = index_of_base(simulation)
    perform(Vacuum(), Round())
    assert damaged != made == index_of_base(simulation)


@pytest.mark.parametrize("cleaned", [False, True])
def test_a_refused_record_retires_other_encodings_all_the_same(tmp_path: Path, cleaned: bool) -> None:
    """A clean forgets the record before it, so the next one could not: a reader ends with one key of the identity."""
    oracle = Oracle(None, tmp_path, any_case=True)
    oracle.run([Ingest((SourceRecord(0, b"AA", b"1"),)), Ingest((SourceRecord(0, b"aa", REFUSED),))])
    oracle.run([Fold()] if cleaned else [])
    oracle.run([Ingest((SourceRecord(0, b"aa", b"2"),))])
    assert apply_records(oracle.simulation.broker.output.records[T0]) == {b"aa": b"2"}


def test_nothing_is_folded_as_it_comes_below_what_was_sent_where_keys_have_an_identity(tmp_path: Path) -> None:
    """A catalog that was set back reads again what the output has: the key that it holds must stay in the log."""
    simulation = Simulation(None, tmp_path, any_case=True)
    simulation.perform(Ingest((SourceRecord(0, b"x", b"0"),)))
    store = Path(simulation.storage.location)
    shutil.copytree(store, tmp_path / "copy")
    simulation.perform(Ingest((SourceRecord(0, b"AA", b"1"),)))
    shutil.rmtree(store)
    shutil.copytree(tmp_path / "copy", store)
    simulation.perform(Restart())
    simulation.perform(Ingest((SourceRecord(0, b"aa", b"2"),)))
    assert apply_records(simulation.broker.output.records[T0]) == {b"x": b"0", b"aa": b"2"}


def test_offsets_are_not_given_up_while_a_fold_is_sent_in_part_where_keys_have_an_identity(tmp_path: Path) -> None:
    """The log would forget what the output has; once all is sent they may be."""
    oracle = Oracle(None, tmp_path, any_case=True)
    oracle.run(SENT_IN_PART)
    assert not oracle.simulation.perform(GIVE_UP)
    oracle.run([Tick(), GIVE_UP, Ingest((SourceRecord(0, b"aa", b"2"),))])
    assert [one.key for one in oracle.simulation.broker.output.records[T0]] == [b"x", b"AA", b"b", b"AA", b"aa"]


def test_offsets_are_not_given_up_while_a_fold_is_sent_in_part(tmp_path: Path) -> None:
    """A snapshot would lack what of it the output has, and whoever goes on from there would never see it."""
    oracle = Oracle(None, tmp_path)
    oracle.run(SENT_IN_PART)
    refused = not oracle.simulation.perform(GIVE_UP)
    oracle.run([Ingest((SourceRecord(0, b"c", b"2"),)), Tick(), Fold(), Snapshot()])
    assert refused
    oracle.run([GIVE_UP, Ingest((SourceRecord(0, b"d", b"2"),)), Fold(), Snapshot()])
    assert sent(oracle.simulation) == [0, 1, 2, 3, 4]
