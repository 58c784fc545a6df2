"""The positions name every transactional id that a partition may be published by, before a record goes by it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from compactor.errors import PublishInterruptedError
from compactor.model.record import TopicPartition
from connectors.runtime import offset_change
from tests.support.memory.journal import Event, Journal, JournalEntry
from tests.support.memory.publisher import PublishFault, PublishStep
from tests.support.oracle.oracle import Oracle
from tests.support.oracle.simulation import Simulation
from tests.support.oracle.steps import (
    ChangeOffset,
    FailingPublisher,
    Ingest,
    Restart,
    Settings,
    SourceRecord,
    Tick,
)

ONE, TWO = Restart(Settings(buckets=1)), Restart(Settings(buckets=2))
T0 = TopicPartition("t", 0)


def records(*places: int) -> Ingest:
    """One record for each of these partitions."""
    return Ingest(tuple(SourceRecord(place, b"k", b"v") for place in places))


def committed(simulation: Simulation, since: int = 0) -> list[JournalEntry]:
    """The transactions that were committed from entry `since` on."""
    return [one for one in simulation.broker.entries[since:] if one.event is Event.COMMITTED]


def named(entry: JournalEntry) -> dict[int, int | None]:
    """How many ids the positions of a transaction name, by partition."""
    return {held.partition: held.position.buckets for held in entry.positions if held.position is not None}


def opened(simulation: Simulation, since: int) -> list[int]:
    """The ids that were initialised from entry `since` on."""
    return [one.bucket for one in simulation.broker.entries[since:] if one.event is Event.OPENED]


def test_a_new_id_is_named_before_a_record_goes_by_it(tmp_path: Path) -> None:
    """Who rebuilds a lost catalog knows the ids from the positions alone, those of topics that are gone too."""
    oracle = Oracle(None, tmp_path)
    oracle.run([ONE, records(0, 1, 2)])
    before = len(oracle.simulation.broker.entries)
    oracle.run([TWO, records(0, 1, 2)])
    first, *others = committed(oracle.simulation, before)
    renewals = [first, *(one for one in others if not one.records)]
    assert {tp: ids for one in renewals for tp, ids in named(one).items()} == {0: 2, 1: 2, 2: 2}
    assert [bool(one.records) for one in (first, *others)] == [False, False, True, True]
    before = len(oracle.simulation.broker.entries)
    oracle.run([records(0, 1, 2), TWO, records(0), ONE, records(0, 1, 2)])
    assert all(one.records for one in committed(oracle.simulation, before)), "named once, and never for fewer ids"


def test_the_first_positions_name_the_ids(tmp_path: Path) -> None:
    """If the group holds nothing there is nothing to rebuild from, and nothing is committed before the records."""
    oracle = Oracle(None, tmp_path)
    oracle.run([TWO, records(0, 1)])
    found = sorted(committed(oracle.simulation), key=lambda one: one.bucket)
    assert [(named(one), bool(one.records)) for one in found] == [({0: 2}, True), ({1: 2}, True)]


def test_a_position_inside_a_fold_stays_inside(tmp_path: Path) -> None:
    """It still says at which offset the fold ends, once it names more ids."""
    oracle = Oracle(None, tmp_path)
    two = Ingest((SourceRecord(0, b"a", b"1"), SourceRecord(0, b"b", b"1")))
    fault = PublishFault(step=PublishStep.SENT, transaction=2)
    oracle.run([Restart(Settings(most=1)), FailingPublisher(two, fault)])
    held = oracle.simulation.broker.output.positions[T0]
    assert held is not None
    assert (held.offset, held.fold_end, held.buckets) == (1, 2, 1)
    before = len(oracle.simulation.broker.entries)
    oracle.run([Restart(Settings(most=1, buckets=2)), Tick()])
    renewed = committed(oracle.simulation, before)[0].positions[0].position
    assert renewed is not None
    assert (renewed.offset, renewed.fold_end, renewed.buckets) == (1, 2, 2)
    assert [one.source_offset for one in oracle.simulation.broker.output.records[T0]] == [0, 1]


def set_back_with_a_frozen_owner(folder: Path) -> tuple[Simulation, Journal, int]:
    """A catalog of one id, restored from before its later owner had two, who is frozen as it sends by id 1.

    Returns also the journal of that owner, and its producer.
    """
    simulation = Simulation(None, folder)
    simulation.perform(ONE)
    simulation.perform(records(0, 1))
    store = Path(simulation.storage.location)
    shutil.copytree(store, folder / "copy")
    simulation.perform(TWO)
    simulation.perform(records(0, 1))
    frozen = Journal(simulation.broker._storage)
    producer = frozen.open(1)
    shutil.rmtree(store)
    shutil.copytree(folder / "copy", store)
    return simulation, frozen, producer


def test_a_catalog_that_was_set_back_shuts_out_what_it_does_not_know(tmp_path: Path) -> None:
    """The positions name an id of its later owner, who is frozen with a transaction open: it commits nothing more."""
    simulation, frozen, producer = set_back_with_a_frozen_owner(tmp_path)
    before = len(simulation.broker.entries)
    simulation.perform(ONE)
    assert opened(simulation, before) == [0, 1]
    frozen.read()
    with pytest.raises(PublishInterruptedError):
        frozen.check(1, producer)
    before = len(simulation.broker.entries)
    simulation.perform(records(0, 1))
    assert 1 not in opened(simulation, before), "once is enough"


@pytest.mark.parametrize("offset", [None, 2], ids=["anew", "a gap"])
def test_a_change_of_offsets_shuts_out_what_the_catalog_does_not_know(
    offset: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the output is read: the new positions name the catalog's ids only, and nothing else would end the others.

    So it is for a rebuilt catalog as well, if the rebuild ended before it had initialised the lost one's ids.
    """
    simulation, frozen, producer = set_back_with_a_frozen_owner(tmp_path)
    simulation.components = simulation.components._replace(settings=Settings(buckets=1))
    before, steps = len(simulation.broker.entries), dict[str, list[int]]()
    monkeypatch.setattr(offset_change, "hit", lambda name: steps.setdefault(name, opened(simulation, before)))
    assert simulation.perform(ChangeOffset(0, offset))
    assert steps["generation.read"] == [0, 1]
    frozen.read()
    with pytest.raises(PublishInterruptedError):
        frozen.check(1, producer)
