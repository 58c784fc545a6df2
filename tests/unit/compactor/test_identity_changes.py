"""Schedules in which a key could be live twice, or missing, if a resync applies another compaction.key.identity."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from compactor.errors import CatalogError
from compactor.model.record import KEY_IDENTITY, TopicPartition
from compactor.runs.reader import read
from compactor.runs.scan import whole
from connectors.runtime.offset_change import after_truncates
from tests.support.memory.offset_changer import MemoryOffsetChanger
from tests.support.memory.publisher import PublishFault, PublishStep
from tests.support.oracle.oracle import Oracle
from tests.support.oracle.output import apply_records
from tests.support.oracle.steps import (
    CRASH,
    AnyCase,
    AnyStep,
    AtFailpoint,
    ChangeIdentity,
    ChangeScope,
    FailingPublisher,
    Fold,
    Ingest,
    Rebuild,
    Restart,
    Settings,
    Snapshot,
    SourceRecord,
    Tick,
)

T0, U0, U1 = TopicPartition("t", 0), TopicPartition("u", 0), TopicPartition("u", 1)
ONE: Final = Settings(state_index="always", most=1)
"""Each record has a transaction of its own."""
READ_ON: Final = Ingest(())

TOLD: Final = tuple(
    SourceRecord(0, key, value)
    for key, value in (
        (b"aa", b"1"),
        (b"AA", b"2"),
        (b"b", b"3"),
        (b"B", None),
        (b"cc", b"4"),
        (b"Cc", b"5"),
        (b"CC", b"6"),
        (b"d", b"7"),
    )
)
OF_BYTES: Final = {b"aa": b"1", b"AA": b"2", b"b": b"3", b"cc": b"4", b"Cc": b"5", b"CC": b"6", b"d": b"7"}
OF_LETTERS: Final = {b"AA": b"2", b"CC": b"6", b"d": b"7"}


def run(folder: Path, *told: AnyStep, any_case: bool = False) -> Oracle:
    """Runs a history that the oracle holds against the promises after every step."""
    oracle = Oracle(None, folder, any_case=any_case)
    oracle.run([*([AnyCase()] if any_case else []), Restart(ONE), *told])
    return oracle


def table(oracle: Oracle, tp: TopicPartition = T0) -> dict[bytes | None, bytes | None]:
    """Returns what a reader who compares bytes has of an output partition."""
    return apply_records(oracle.simulation.broker.output.records.get(tp, ()))


def lose(oracle: Oracle, *keys: bytes) -> None:
    """Has the source's cleaner take all records of some keys."""
    rows = oracle.simulation.source.rows
    rows[T0][:] = [row for row in rows[T0] if row["key"] not in keys]


def test_another_identity_leaves_one_live_spelling_of_each_key_and_bytes_bring_all_back(tmp_path: Path) -> None:
    """The spellings that are live when the identity comes are retired; each is a key of its own once bytes count."""
    oracle = run(tmp_path, Ingest(TOLD))
    assert table(oracle) == OF_BYTES
    oracle.run([ChangeIdentity(any_case=True), READ_ON])
    assert table(oracle) == OF_LETTERS
    state = oracle.simulation.components.catalog.state
    assert (state.identity, state.key_identity) == ("letters", "letters")
    oracle.run([Fold(), Snapshot(), Ingest((SourceRecord(0, b"Aa", b"8"),))])
    assert table(oracle) == {b"Aa": b"8", b"CC": b"6", b"d": b"7"}
    oracle.run([ChangeIdentity(any_case=False), READ_ON, Fold(), Snapshot()])
    assert table(oracle) == {**OF_BYTES, b"Aa": b"8"}
    assert oracle.simulation.components.catalog.state.key_identity is None


@pytest.mark.parametrize("lost", [(b"AA",), (b"aa", b"AA"), (b"cc", b"Cc", b"CC"), (b"Cc", b"CC")])
def test_spellings_that_do_not_come_again_go_with_those_that_do(tmp_path: Path, lost: tuple[bytes, ...]) -> None:
    """Of several tombstones of one identity a fold leaves one, or the record of a third spelling: it retires them."""
    oracle = run(tmp_path, Ingest(TOLD))
    lose(oracle, *lost)
    oracle.run([ChangeIdentity(any_case=True), READ_ON])
    left: dict[bytes, tuple[bytes, bytes | None]] = {}
    for record in TOLD:
        if record.key is not None and record.key not in lost:
            left[record.key.lower()] = record.key, record.value
    assert table(oracle) == {key: value for key, value in left.values() if value is not None}


STEPS: Final = ["generation.read", "generation.write", "generation.before-commit", "generation.after-commit"]


@pytest.mark.parametrize("any_case", [True, False], ids=["to letters", "to bytes"])
@pytest.mark.parametrize("point", [*STEPS, "generation.position"])
def test_a_crash_changes_the_identity_whole_or_not_at_all(tmp_path: Path, point: str, *, any_case: bool) -> None:
    """It is an action of the commit by which every log begins again; what is asked for once more changes all again."""
    change = ChangeIdentity(any_case=any_case)
    oracle = run(tmp_path, Ingest(TOLD), AtFailpoint(change, point, CRASH), any_case=not any_case)
    is_changed = point in {"generation.after-commit", "generation.position"}
    assert (oracle.simulation.components.catalog.state.key_identity is not None) == (any_case == is_changed)
    oracle.run([change, READ_ON])
    assert table(oracle) == (OF_LETTERS if any_case else OF_BYTES)


@pytest.mark.parametrize("any_case", [True, False], ids=["to letters", "to bytes"])
@pytest.mark.parametrize("transaction", range(1, 9))
def test_a_first_fold_that_is_sent_in_part_goes_on_by_the_new_identity(
    tmp_path: Path, transaction: int, *, any_case: bool
) -> None:
    """Each transaction has a record or a tombstone; the next owner sends what is missing, once."""
    fault = PublishFault(step=PublishStep.SENT, transaction=transaction)
    told = Ingest(TOLD), ChangeIdentity(any_case=any_case), FailingPublisher(READ_ON, fault), Tick()
    oracle = run(tmp_path, *told, any_case=not any_case)
    assert table(oracle) == (OF_LETTERS if any_case else OF_BYTES)


@pytest.mark.parametrize("any_case", [True, False], ids=["to letters", "to bytes"])
@pytest.mark.parametrize("transaction", [1, 2, 3])
def test_storage_that_is_lost_in_the_first_fold_leaves_no_key_of_the_identity_before(
    tmp_path: Path, transaction: int, *, any_case: bool
) -> None:
    """Keys that live by the generation before begin the next one, compared by the identity of the positions."""
    fault = PublishFault(step=PublishStep.SENT, transaction=transaction)
    told = Ingest(TOLD), ChangeIdentity(any_case=any_case), FailingPublisher(READ_ON, fault)
    oracle = run(tmp_path, *told, any_case=not any_case)
    lose(oracle, b"d", b"CC")
    oracle.run([Rebuild(), READ_ON])
    by_bytes = {key: value for key, value in OF_BYTES.items() if key not in (b"d", b"CC")}
    assert table(oracle) == ({b"AA": b"2", b"Cc": b"5"} if any_case else by_bytes)


@pytest.mark.parametrize("point", ["generation.after-commit", "generation.position"])
def test_storage_that_is_lost_as_the_identity_changes_is_rebuilt_by_the_one_that_was_sent(
    tmp_path: Path, point: str
) -> None:
    """Between G3 and G4 the positions name the identity before; after G4 nothing of the new one is sent yet."""
    oracle = run(tmp_path, Ingest(TOLD), AtFailpoint(ChangeIdentity(any_case=True), point, CRASH), Rebuild(), READ_ON)
    is_changed = point == "generation.position"
    assert table(oracle) == (OF_LETTERS if is_changed else OF_BYTES)
    oracle.run([ChangeIdentity(any_case=True), READ_ON, Rebuild(), Ingest((SourceRecord(0, b"Aa", b"8"),))])
    assert table(oracle) == {b"Aa": b"8", b"CC": b"6", b"d": b"7"}


@pytest.mark.parametrize("any_case", [True, False], ids=["to letters", "to bytes"])
@pytest.mark.parametrize(
    ("step", "point"),
    [(Ingest((SourceRecord(0, b"Aa", b"8"),)), "publish.plan"), (Fold(), "clean.before-commit")],
    ids=["publishes", "cleans"],
)
def test_an_owner_of_the_identity_before_wakes_up(
    tmp_path: Path, step: Ingest | Fold, point: str, *, any_case: bool
) -> None:
    """It was frozen inside a step, and has no effect once another owner has changed the identity."""
    oracle = run(tmp_path, Ingest(TOLD), any_case=not any_case)
    change = ChangeIdentity(any_case=any_case)
    oracle.run([AtFailpoint(step, point, (change, READ_ON)), READ_ON, Fold(), Snapshot()])
    assert (oracle.simulation.components.catalog.state.key_identity is not None) == any_case


def test_identity_and_scope_change_one_after_the_other(tmp_path: Path) -> None:
    """Spellings lie in the output partitions of their own bytes, and one of them is live."""
    told = tuple(SourceRecord(3 + number, key, key) for number, key in ((0, b"aa"), (1, b"AA"), (1, b"bb"), (0, b"BB")))
    oracle = run(tmp_path, Ingest(told), ChangeIdentity(any_case=True), ChangeScope(of_topics=True), READ_ON)
    assert {**table(oracle, U0), **table(oracle, U1)} == {b"AA": b"AA", b"bb": b"bb"}
    oracle.run([ChangeIdentity(any_case=False), READ_ON, Fold(), Snapshot()])
    both = {**table(oracle, U0), **table(oracle, U1)}
    assert both == {key: key for key in (b"aa", b"AA", b"bb", b"BB")}


def test_a_truncate_that_is_applied_keeps_the_rules(tmp_path: Path) -> None:
    """The file names others by then, which nobody has asked to apply; its tombstones are compared by the old ones."""
    simulation = run(tmp_path, Ingest(TOLD)).simulation
    catalog = simulation.components.catalog
    changer = MemoryOffsetChanger(catalog, simulation.broker, simulation.source, key_identity="letters")
    changer.change(after_truncates({log.tp: log.end - 1 for log in catalog.state.logs}), simulation.clock.now_ms())
    assert catalog.state.key_identity is None
    (lead,) = catalog.state.log(T0).runs
    rows = list(read(catalog.storage, whole(catalog.state.log(T0)), ("key", KEY_IDENTITY)))
    assert (lead.records, sum(batch[KEY_IDENTITY].null_count for batch in rows)) == (len(OF_BYTES), len(OF_BYTES))


def test_a_start_by_another_identity_is_told_of_resync(tmp_path: Path) -> None:
    """No start changes it; the error says what does."""
    catalog = run(tmp_path, Ingest(TOLD)).simulation.components.catalog
    with pytest.raises(CatalogError, match=r"compaction\.key\.identity was bytes so far and is json now") as refused:
        catalog.require("offset", "json", "partition")
    assert "keyfold resync" in refused.value.action
