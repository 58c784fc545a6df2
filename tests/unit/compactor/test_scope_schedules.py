"""Schedules in which a key could be live twice, or missing, if it has one winner over a topic (compaction.scope)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from compactor.model.log import Gap
from compactor.model.record import TopicPartition
from connectors.sinks.partitioner import partitions_of
from tests.support.memory.publisher import PublishFault, PublishStep
from tests.support.oracle.oracle import Oracle
from tests.support.oracle.output import apply_records
from tests.support.oracle.simulation import Simulation
from tests.support.oracle.snapshots import SnapshotReader
from tests.support.oracle.steps import (
    CRASH,
    AnyStep,
    AtFailpoint,
    ChangeOffset,
    ChangeScope,
    FailingPublisher,
    Fold,
    Ingest,
    OfTopics,
    Restart,
    Settings,
    Snapshot,
    SourceRecord,
    Tick,
)

U0, U1 = TopicPartition("u", 0), TopicPartition("u", 1)
ONE: Final = Settings(state_index="always", most=1, buckets=2)
"""Each record has a transaction of its own."""


def at(number: int, key: bytes, value: bytes | None, time: int) -> SourceRecord:
    """Returns a record in partition `number` of topic u, with this timestamp."""
    return SourceRecord(3 + number, key, value, time=time, fixed=True)


# By Kafka's default partitioner a and b go to output partition 0 of two, k0 and k1 to 1.
TOLD: Final = (
    at(0, b"k0", b"moves", 10),
    at(1, b"a", b"moves", 20),
    at(0, b"b", b"stays", 30),
    at(1, b"b", b"wins over the one that stays", 40),
    at(0, b"k1", b"wins over the one that stays", 60),
    at(1, b"k1", b"stays", 50),
)
OF_PARTITIONS: Final = (
    {b"k0": b"moves", b"b": b"stays", b"k1": b"wins over the one that stays"},
    {b"a": b"moves", b"b": b"wins over the one that stays", b"k1": b"stays"},
)
OF_TOPIC: Final = (
    {b"a": b"moves", b"b": b"wins over the one that stays"},
    {b"k0": b"moves", b"k1": b"wins over the one that stays"},
)
READ_ON: Final = Ingest(())


def run(folder: Path, *told: AnyStep, of_topics: bool = False) -> Oracle:
    """Runs a history that the oracle holds against the promises after every step."""
    oracle = Oracle(None, folder, of_topics=of_topics)
    oracle.run([*([OfTopics()] if of_topics else []), Restart(ONE), *told])
    return oracle


def tables(simulation: Simulation) -> tuple[dict[bytes | None, bytes | None], ...]:
    """Returns what a reader has of each output partition."""
    return tuple(apply_records(simulation.broker.output.records.get(tp, ())) for tp in (U0, U1))


def test_another_scope_leaves_each_key_once(tmp_path: Path) -> None:
    """A key goes from the partitions that had it, also if its own log has its newest record, and comes back."""
    oracle = run(tmp_path, Ingest(TOLD))
    assert tables(oracle.simulation) == OF_PARTITIONS
    oracle.run([ChangeScope(of_topics=True), READ_ON])
    assert tables(oracle.simulation) == OF_TOPIC
    state = oracle.simulation.components.catalog.state
    assert (state.scope, state.topics["u"].outputs, len({log.bucket for log in state.logs_of("u")})) == ("topic", 2, 1)
    oracle.run([Fold(), Snapshot(), Ingest((at(0, b"a", None, 70),)), ChangeScope(of_topics=False), READ_ON])
    assert tables(oracle.simulation) == OF_PARTITIONS
    oracle.run([Fold(), Snapshot(), Ingest((at(1, b"a", None, 5),))])
    assert tables(oracle.simulation) == (OF_PARTITIONS[0], {key: OF_PARTITIONS[1][key] for key in (b"b", b"k1")})


@pytest.mark.parametrize("of_topics", [True, False], ids=["to topic", "to partition"])
@pytest.mark.parametrize(
    "point", ["generation.write", "generation.before-commit", "generation.after-commit", "generation.position"]
)
def test_a_crash_changes_the_scope_whole_or_not_at_all(tmp_path: Path, point: str, *, of_topics: bool) -> None:
    """It is an action of the commit by which every log begins again; what is asked for once more changes all again."""
    change = ChangeScope(of_topics=of_topics)
    oracle = run(tmp_path, Ingest(TOLD), AtFailpoint(change, point, CRASH), of_topics=not of_topics)
    is_changed = point in {"generation.after-commit", "generation.position"}
    assert oracle.simulation.components.catalog.state.is_of_topics == (of_topics == is_changed)
    oracle.run([change, READ_ON])
    assert tables(oracle.simulation) == (OF_TOPIC if of_topics else OF_PARTITIONS)


@pytest.mark.parametrize("of_topics", [True, False], ids=["to topic", "to partition"])
@pytest.mark.parametrize(
    ("step", "point"),
    [(Ingest((at(0, b"a", b"later", 80),)), "publish.plan"), (Fold(), "clean.before-commit")],
    ids=["publishes", "cleans"],
)
def test_an_owner_of_the_scope_before_wakes_up(
    tmp_path: Path, step: Ingest | Fold, point: str, *, of_topics: bool
) -> None:
    """It was frozen inside a step, and has no effect once another owner has changed the scope."""
    oracle = run(tmp_path, Ingest(TOLD), of_topics=not of_topics)
    oracle.run([AtFailpoint(step, point, (ChangeScope(of_topics=of_topics), READ_ON)), READ_ON, Fold(), Snapshot()])
    assert oracle.simulation.components.catalog.state.is_of_topics == of_topics


def test_a_first_fold_that_is_sent_in_part_goes_on_by_the_new_scope(tmp_path: Path) -> None:
    """Tombstones of moved keys are sent once, and before the records of their own logs."""
    fault = PublishFault(step=PublishStep.SENT, transaction=3)
    oracle = run(tmp_path, Ingest(TOLD), ChangeScope(of_topics=True), FailingPublisher(READ_ON, fault), Tick())
    assert tables(oracle.simulation) == OF_TOPIC


UNSETTLED: Final[tuple[AnyStep, ...]] = (
    Ingest((at(0, b"a", b"1", 10),)),
    # The record of b is in the first transaction, with the position of partition 0. The second has the winner of a, and
    # fails: below the position of partition 0 lies a record of a that was passed over for it.
    FailingPublisher(
        Ingest((at(0, b"a", b"2", 20), at(0, b"b", b"1", 20), at(1, b"a", b"3", 30))),
        PublishFault(step=PublishStep.SENT, transaction=2),
    ),
)


def test_nothing_is_left_out_for_an_equal_record_that_was_passed_over(tmp_path: Path) -> None:
    """With publish.unchanged=skip: the catalog has learned of the first transaction by its positions alone."""
    oracle = Oracle(None, tmp_path, of_topics=True)
    oracle.run([OfTopics(), Restart(ONE._replace(unchanged="skip")), *UNSETTLED])
    logs = {log.tp: log for log in oracle.simulation.components.catalog.state.logs_of("u")}
    assert (logs[U0].published, logs[U1].published, logs[U1].folded_end) == (3, 0, 1)
    oracle.run([Ingest((at(0, b"a", b"2", 40),))])
    assert tables(oracle.simulation)[0] == {b"a": b"2", b"b": b"1"}


def test_offsets_of_one_partition_are_given_up_once_the_topic_is_settled(tmp_path: Path) -> None:
    """Before that a record may have been passed over for one of those: its key would be missing."""
    more = Ingest((SourceRecord(4, b"c", b"given up"), SourceRecord(4, b"k0", b"stays")))
    oracle = run(tmp_path, *UNSETTLED, ChangeOffset(4, 1), of_topics=True)
    assert oracle.simulation.components.catalog.state.log(U1).gaps == ()
    oracle.run([Tick(), Restart(ONE._replace(lag=500)), more, ChangeOffset(4, 2), Restart(ONE), READ_ON])
    assert oracle.simulation.components.catalog.state.log(U1).gaps == (Gap(1, 2),)
    assert tables(oracle.simulation) == ({b"a": b"3", b"b": b"1"}, {b"k0": b"stays"})


def test_a_topic_is_not_cleaned_while_a_fold_of_it_is_sent_in_part(tmp_path: Path) -> None:
    """A reader would go on from a base run above what of it was sent; it is cleaned as soon as it is settled."""
    oracle = run(tmp_path, *UNSETTLED, Fold(), of_topics=True)
    assert [log.base for log in oracle.simulation.components.catalog.state.logs_of("u")] == [None, None]
    oracle.run([Tick(), Fold(), Snapshot()])
    assert all(log.base for log in oracle.simulation.components.catalog.state.logs_of("u"))


def test_a_record_that_loses_to_a_tombstone_as_that_is_dropped_stays_away(tmp_path: Path) -> None:
    """It comes while the clean runs that drops the tombstone, and is passed over: no snapshot has its key either."""
    gone = Ingest((at(0, b"a", b"1", 20), at(0, b"a", None, 30), at(0, b"b", b"1", 20), at(1, b"b", b"2", 30)))
    late = Ingest((at(1, b"a", b"late", 10),))
    settings = Restart(ONE._replace(delete_retention=0))
    for number, point in enumerate(("clean.write", "clean.before-commit")):
        told = (settings, gone, Fold(), AtFailpoint(Fold(), point, (late,)), Snapshot())
        assert tables(run(tmp_path / str(number), *told, of_topics=True).simulation)[0] == {b"b": b"2"}


def test_what_other_partitions_send_while_a_snapshot_is_taken_comes_after_it(tmp_path: Path) -> None:
    """Their records go to the output partition of a log that has published nothing, as they are sent."""
    keys = [b"%d" % number for number in range(20)]
    here, there = (keys[partitions_of(pa.array(keys, pa.binary()), 2).tolist().index(place)] for place in (0, 1))
    oracle = Oracle(None, tmp_path, of_topics=True)
    waiting = SourceRecord(0, b"waits", b"1")
    oracle.run([OfTopics(), Restart(Settings(lag=200)), Ingest((waiting, SourceRecord(1, there, b"1", time=-300)))])
    sent = Ingest((SourceRecord(1, here, b"2", time=-200),))
    oracle.run([AtFailpoint(Snapshot(), "clean.before-commit", (sent,))])
    (taken,) = oracle.simulation.components.catalog.state.snapshots
    assert SnapshotReader(oracle.simulation.shelf).load(taken).manifest.output_offsets["0"] == 0
