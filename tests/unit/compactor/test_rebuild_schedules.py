"""Storage that is lost in the midst of a publish, and made again from the output (docs/protocol.md, schedules)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from compactor.model.record import TopicPartition
from connectors.sinks.partitioner import partitions_of
from tests.support.memory.broker import OUTPUTS
from tests.support.memory.journal import REFUSED
from tests.support.memory.publisher import PublishFault, PublishStep
from tests.support.oracle.histories import FIELD
from tests.support.oracle.histories import RANK as HEADER
from tests.support.oracle.oracle import Oracle
from tests.support.oracle.output import apply_records
from tests.support.oracle.snapshots import SnapshotReader
from tests.support.oracle.steps import (
    CRASH,
    Advance,
    AnyCase,
    AnyStep,
    AtFailpoint,
    ChangeOffset,
    ChangeScope,
    FailingPublisher,
    Fold,
    Ingest,
    OfTopics,
    OrderedBy,
    Rebuild,
    Restart,
    Round,
    Settings,
    Snapshot,
    SourceRecord,
)

T: Final = (TopicPartition("t", 0), TopicPartition("t", 1))
ONE_A_TRANSACTION: Final = Settings(most=1)
NOTHING_NEW: Final = Ingest(())


def keys_of(place: int, outputs: int = OUTPUTS) -> list[bytes]:
    """Returns keys that Kafka's default partitioner sends to one of so many output partitions."""
    keys = [b"%d" % number for number in range(20)]
    places = partitions_of(pa.array(keys, pa.binary()), outputs).tolist()
    return [key for key, own in zip(keys, places, strict=True) if own == place]


HERE, THERE = keys_of(0), keys_of(1)


def read_again_until(transaction: int) -> list[AnyStep]:
    """Returns the steps by which topic t is read again, and fails in this transaction of the first fold."""
    fault = PublishFault(step=PublishStep.SENT, transaction=transaction)
    return [ChangeOffset(0), FailingPublisher(NOTHING_NEW, fault)]


def live(oracle: Oracle) -> list[dict[bytes | None, bytes | None]]:
    """Returns the table that a reader has of each output partition of topic t."""
    records = oracle.simulation.broker.output.records
    return [apply_records(records.get(place, ())) for place in T]


@pytest.mark.parametrize("transaction", [1, 2, 3, 4])
def test_a_first_fold_that_was_sent_in_part_begins_again_in_all_logs_of_the_topic(
    tmp_path: Path, transaction: int
) -> None:
    """A key whose tombstone was passed over for a record that was not sent goes, if the source loses that record."""
    oracle, source = Oracle(None, tmp_path, of_topics=True), HERE[0]
    told: list[AnyStep] = [
        OfTopics(),
        Restart(ONE_A_TRANSACTION),
        Ingest((SourceRecord(0, source, b"1"), SourceRecord(0, HERE[1], b"1"), SourceRecord(1, THERE[0], b"1"))),
        Ingest((SourceRecord(1, HERE[2], b"1"), SourceRecord(1, source, b"2"))),
    ]
    oracle.run([*told, *read_again_until(transaction)])
    for tp in T:
        kept = [row for row in oracle.simulation.source.rows[tp] if row["key"] != source]
        oracle.simulation.source.rows[tp][:] = kept
    oracle.run([Rebuild(), NOTHING_NEW])
    assert live(oracle) == [{HERE[1]: b"1", HERE[2]: b"1"}, {THERE[0]: b"1"}]


@pytest.mark.parametrize("transaction", [1, 2, 3])
def test_a_scope_that_was_applied_in_part_leaves_each_key_once(tmp_path: Path, transaction: int) -> None:
    """The tombstone of a key that goes to another output partition stays where the key was."""
    oracle, (here, other, *_), (there, *_) = Oracle(None, tmp_path), keys_of(0, 3), keys_of(1, 3)
    told = (SourceRecord(0, there, b"1"), SourceRecord(0, here, b"1"), SourceRecord(1, other, b"1"))
    fault = PublishFault(step=PublishStep.SENT, transaction=transaction)
    oracle.run([Restart(ONE_A_TRANSACTION), Ingest(told), ChangeScope(of_topics=True)])
    oracle.run([FailingPublisher(NOTHING_NEW, fault), Rebuild(), NOTHING_NEW])
    assert live(oracle) == [{here: b"1", other: b"1"}, {there: b"1"}]


def test_the_tombstone_after_a_late_record_is_late_in_a_rebuilt_log_as_well(tmp_path: Path) -> None:
    """What is after the late record stays: the output does not have that one, and the position says whose it was."""
    oracle = Oracle(None, tmp_path, order=FIELD)
    early, late = (SourceRecord(0, b"a", b"%d" % rank, headers=(("rank", bytes([rank])),)) for rank in (5, 3))
    oracle.run([OrderedBy(FIELD), Restart(), Ingest((early,)), Ingest((late,)), Rebuild()])
    oracle.run([Ingest((SourceRecord(0, b"a", None),))])
    assert live(oracle)[0] == {b"a": b"5"}
    oracle.run([Rebuild(), Ingest((SourceRecord(0, b"b", None), SourceRecord(0, b"a", None)))])
    assert live(oracle)[0] == {}


def test_what_a_rebuilt_log_lacks_is_sent_by_no_one_again(tmp_path: Path) -> None:
    """What was published before stays as it was, and what follows is published once."""
    oracle = Oracle(None, tmp_path)
    oracle.run([Restart(), Ingest((SourceRecord(0, b"a", b"1"), SourceRecord(0, b"b", b"1"))), Rebuild()])
    oracle.run([Ingest((SourceRecord(0, b"a", b"2"),))])
    sent = [record.source_offset for record in oracle.simulation.broker.output.records[T[0]]]
    assert sent == [0, 1, 2]


SAME_KEY: Final = (SourceRecord(0, b"a", REFUSED),)
"""A record of a key that the output has from before a resync, which the broker refuses."""


@pytest.mark.parametrize(
    "between",
    [
        pytest.param((), id="at once"),
        pytest.param((Fold(), Advance(1_000), Fold()), id="after its log was cleaned twice"),
        pytest.param((Rebuild(),), id="after a second rebuild"),
        pytest.param((ChangeOffset(0, offset=1, anew=True), NOTHING_NEW, Rebuild()), id="after another resync"),
    ],
)
@pytest.mark.parametrize("of_topics", [False, True])
def test_a_key_that_the_broker_refused_since_a_resync_has_one_spelling_after_a_rebuild(
    tmp_path: Path, between: Sequence[AnyStep], *, of_topics: bool
) -> None:
    """Its value from before the resync is live in the output, and the next record of the key spells it otherwise."""
    oracle = Oracle(None, tmp_path, any_case=True, of_topics=of_topics)
    begun: list[AnyStep] = [AnyCase(), *([OfTopics()] if of_topics else []), Restart()]
    other = SourceRecord(1, b"b", b"1")  # each log has something of the generation
    oracle.run([*begun, Ingest((SourceRecord(0, b"a", b"1"), other)), ChangeOffset(0, offset=1, anew=True)])
    oracle.run([Ingest((*SAME_KEY, other)), Rebuild(), *between])
    oracle.run([Ingest((SourceRecord(0, b"A", b"2", time=100),))])
    assert {key: value for table in live(oracle) for key, value in table.items()} == {b"A": b"2", b"b": b"1"}


def test_a_rebuilt_log_has_what_readers_have_of_a_key_that_the_broker_refused_since_a_resync(tmp_path: Path) -> None:
    """Who goes on from a snapshot has the same keys as who has read all of the output."""
    oracle = Oracle(None, tmp_path)
    oracle.run([Restart(), Ingest((SourceRecord(0, b"a", b"1"),)), ChangeOffset(0, offset=1, anew=True)])
    oracle.run([Ingest((*SAME_KEY, SourceRecord(0, b"b", b"2"))), Rebuild(), Snapshot()])
    (taken,) = oracle.simulation.components.catalog.state.snapshots
    rows = SnapshotReader(oracle.simulation.shelf).load(taken).rows
    assert {row["key"]: row["value"] for row in rows} == live(oracle)[0] == {b"a": b"1", b"b": b"2"}


def test_a_fold_that_was_sent_in_part_is_sent_to_its_end_after_a_rebuild(tmp_path: Path) -> None:
    """Until then a reader lacks keys of which the fold had passed over a record for one that was not sent."""
    oracle, fault = Oracle(None, tmp_path), PublishFault(step=PublishStep.SENT, transaction=2)
    told = tuple(SourceRecord(0, key, value) for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", b"2")))
    oracle.run([Restart(ONE_A_TRANSACTION), FailingPublisher(Ingest(told), fault), Rebuild()])
    assert live(oracle)[0] == {b"b": b"1"}
    oracle.run([NOTHING_NEW])
    assert live(oracle)[0] == {b"a": b"2", b"b": b"1"}


def test_offsets_that_were_given_up_are_read_if_the_positions_were_not_told_of_it(tmp_path: Path) -> None:
    """The commit of the gap is lost with the catalog, and the position is the one from before it."""
    oracle, waiting = Oracle(None, tmp_path), Restart(Settings(lag=500))
    oracle.run([waiting, Ingest((SourceRecord(0, b"a", b"1", time=-500), SourceRecord(0, b"a", b"2")))])
    oracle.run([AtFailpoint(ChangeOffset(0, offset=2), "generation.after-commit", CRASH), Rebuild()])
    oracle.run([Restart(Settings()), NOTHING_NEW])
    assert live(oracle)[0] == {b"a": b"2"}


def test_a_partition_that_comes_while_a_snapshot_is_taken_is_not_in_it(tmp_path: Path) -> None:
    """A rebuilt topic has the partitions that were published; the others come as new ones."""
    oracle = Oracle(None, tmp_path)
    oracle.run([Restart(), Ingest((SourceRecord(1, b"b", b"1"),)), Rebuild()])
    coming = Ingest((SourceRecord(0, b"a", b"1"),))
    oracle.run([AtFailpoint(Snapshot(), "snapshot.write", (coming,)), Snapshot()])
    taken = oracle.simulation.components.catalog.state.snapshots
    assert [each.source_offsets for each in taken] == [{"1": 1}, {"0": 1, "1": 1, "2": 0}]


def test_what_retention_took_before_its_key_came_otherwise_is_retired_by_the_next_record_after_a_rebuild(
    tmp_path: Path,
) -> None:
    """The log had forgotten the key, and the rebuilt one has it from the output, where it is live."""
    oracle = Oracle(None, tmp_path, any_case=True)
    aa, other, last = (SourceRecord(0, key, b"1", time=-500) for key in (b"aa", b"AA", b"Aa"))
    oracle.run([AnyCase(), Restart(Settings(retention_ms=200)), Ingest((aa,)), Advance(300), Round()])
    oracle.run([Ingest((other,)), Rebuild()])
    assert live(oracle)[0] == {b"aa": b"1", b"AA": b"1"}
    oracle.run([Ingest((last,))])
    assert live(oracle)[0] == {b"Aa": b"1"}


DELETED_BY: Final = (("rank", b"\x00\x00\x00\x00\x00\x00\x00\x05"),)
BEFORE_THAT: Final = (("rank", b"\x00\x00\x00\x00\x00\x00\x00\x03"),)


@pytest.mark.parametrize("order", ["timestamp", HEADER, FIELD])
@pytest.mark.parametrize(
    ("of_topics", "place"),
    [
        pytest.param(True, 1, id="in another log of the topic"),
        pytest.param(True, 0, id="in its log, of a topic"),
        pytest.param(False, 0, id="in its log"),
    ],
)
def test_a_late_record_loses_to_a_dropped_tombstone_that_the_output_has(
    tmp_path: Path, order: str, place: int, *, of_topics: bool
) -> None:
    """The rebuilt log has the tombstone again, until it is dropped once more: then nothing tells of the deletion."""
    oracle = Oracle(None, tmp_path, order=order, of_topics=of_topics)
    begun: list[AnyStep] = [OfTopics()] if of_topics else []
    deletion = SourceRecord(0, b"a", None, headers=DELETED_BY)
    late = SourceRecord(place, b"a", b"late", time=-500, headers=BEFORE_THAT)
    oracle.run([*begun, OrderedBy(order), Restart(Settings(delete_retention=0)), Ingest((deletion,)), Fold(), Fold()])
    oracle.run([Rebuild(), Ingest((late,)), Fold(), Snapshot()])
    assert live(oracle) == [{}, {}]
    oracle.run([Fold(), Ingest((late,)), Snapshot()])
    assert {key: value for table in live(oracle) for key, value in table.items()} == {b"a": b"late"}


@pytest.mark.parametrize("order", ["timestamp", HEADER, FIELD])
@pytest.mark.parametrize("place", [pytest.param(1, id="in another log"), pytest.param(0, id="in its log")])
def test_a_key_that_lives_in_other_bytes_than_its_dropped_tombstone_lives_in_a_rebuilt_topic(
    tmp_path: Path, order: str, place: int
) -> None:
    """A snapshot has it, and the next record of the key, which the tombstone would beat, takes its place."""
    oracle = Oracle(None, tmp_path, any_case=True, order=order, of_topics=True)
    deletion = SourceRecord(0, b"a", None, headers=DELETED_BY)
    record = SourceRecord(place, b"A", b"1", time=-500, headers=BEFORE_THAT)
    begun: list[AnyStep] = [AnyCase(), OfTopics(), OrderedBy(order), Restart(Settings(delete_retention=0))]
    oracle.run([*begun, Ingest((deletion,)), Fold(), Fold(), Ingest((record,)), Rebuild(), NOTHING_NEW, Snapshot()])
    (taken,) = oracle.simulation.components.catalog.state.snapshots
    rows = SnapshotReader(oracle.simulation.shelf).load(taken).rows
    assert {row["key"]: row["value"] for row in rows} == {b"A": b"1"}
    oracle.run([Ingest((record._replace(key=b"a", value=b"2"),)), Fold(), Snapshot()])
    assert {key: value for table in live(oracle) for key, value in table.items()} == {b"a": b"2"}


@pytest.mark.parametrize(("lost", "value"), [(False, b"1"), (True, b"2")])
def test_a_record_between_two_equal_ones_wins_after_a_rebuild(tmp_path: Path, value: bytes, *, lost: bool) -> None:
    """The later of the equal ones was not sent, so that the output, and a log that is made from it, has the earlier."""
    oracle = Oracle(None, tmp_path, order="timestamp")
    first, equal = SourceRecord(0, b"a", b"1", time=-1000), SourceRecord(0, b"a", b"1")
    oracle.run([OrderedBy("timestamp"), Restart(Settings(unchanged="skip")), Ingest((first,)), Ingest((equal,))])
    oracle.run([*([Rebuild()] if lost else []), Ingest((SourceRecord(0, b"a", b"2", time=-500),))])
    assert live(oracle)[0] == {b"a": value}
