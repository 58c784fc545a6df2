"""Whatever fits can be committed, and reads back as it was in memory."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from compactor.catalog.catalog import Catalog
from compactor.catalog.commits import CHECKPOINT_EVERY, FORMAT, Commit, checkpoint_path, encode, list_versions
from compactor.model.actions import (
    AddPartition,
    AddSnapshot,
    AddTopic,
    AnyAction,
    Append,
    BeginGeneration,
    CloseTopic,
    Create,
    DropSnapshot,
    Merge,
    PlanFold,
    Publish,
    Quarantine,
    Refill,
    Reidentify,
    Release,
    RenewTopic,
    ReopenTopic,
    Reorder,
    Rescope,
    Restate,
    RestoreLog,
    Retain,
    SetBuckets,
    SetFence,
    Skip,
    TakeOver,
)
from compactor.model.fence import Fence
from compactor.model.log import Gap, Generation, PartitionLog, Quarantined, empty
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState, apply
from tests.support.catalogs import NOW, append, clean, deciding, publish, run
from tests.support.memory.storage import MemoryStorage

EXAMPLES: list[AnyAction] = [
    Create(catalog_id="i", connector="ç 'x'", order="timestamp", identity="header:h", scope="topic"),
    TakeOver(epoch=2**40, owner="h:1"),
    SetBuckets(count=3),
    AddTopic(topic="t", topic_id="T", output="o", output_id="O"),
    AddTopic(topic="t", topic_id="T", output=None, output_id=None),
    CloseTopic(topic="t", reason="deleted"),
    ReopenTopic(topic="t"),
    AddPartition(topic="t", partition=2**31 - 1, bucket=1, start=2**62, backlog_end=2**63 - 1),
    append(7),
    Append(topic="t", partition=0, start=3, end=9, gap=Gap(3, 9)),
    PlanFold(topic="t", partition=0, end=9),
    publish(9),
    Publish(topic="t", partition=0, end=9),
    clean(9, "runs/1-b-x.parquet"),
    Merge(topic="t", partition=0, run=run(0, 9, "runs/1-m-x.parquet", level=1)),
    Restate(topic="t", partition=0, runs=(run(0, 4, "runs/1-a-x.parquet"), run(4, 9, "runs/1-a-x.parquet"))),
    Retain(topic="t", partition=0, start=4),
    Quarantine(
        topic="t",
        partition=0,
        quarantined=Quarantined(since_ms=1, retry_ms=2, failures=3, error="gone", publishing=True),
    ),
    Release(topic="t", partition=0),
    RenewTopic(topic="t", topic_id="id2", output_id="out2"),
    SetFence(topic="t", fence=Fence(b"\x01", {0: 3})),
    Skip(topic="t", partition=0, end=9),
    BeginGeneration(
        topic="t",
        partition=0,
        generation=Generation(number=2, start=3, first_end=7, output_offset=5),
        lead=run(-2, 3, "runs/1-g-x.parquet"),
    ),
    Reorder(order="timestamp"),
    Reidentify(identity="json"),
    Refill(fill="unavailable"),
    Rescope(scope="topic", outputs={"t": 2}),
    RestoreLog(log=replace(empty(TopicPartition("t", 1), 0, 3, None), end=9, gaps=(Gap(7, 9),), begun=True)),
    AddSnapshot(topic="t", id="1", path="t/1", created_ms=1, source_offsets={"0": 1}, records=1, bytes=1),
    DropSnapshot(topic="t", id="1"),
]


def _commit(action: AnyAction) -> Commit:
    return Commit(format=FORMAT, version=1, epoch=0, at_ms=NOW, commit_id="i", previous="", actions=(action,))


@pytest.mark.parametrize("action", EXAMPLES, ids=lambda action: type(action).__name__)
def test_every_action_survives_its_file(action: AnyAction) -> None:
    """An action reads back from JSON as it was written."""
    assert msgspec.json.decode(encode(_commit(action)), type=Commit).actions == (action,)


def test_examples_are_all_actions() -> None:
    """No action is forgotten above."""
    assert {type(action) for action in EXAMPLES} == set(AnyAction.__args__)


def _for_log(log: PartitionLog, draw: Any) -> AnyAction:
    more = draw(st.integers(1, 5))
    kind = draw(st.sampled_from(["append", "gap", "plan", "publish", "clean"]))
    if kind == "append":
        path = f"runs/1-{draw(st.integers(0, 20))}-{draw(st.integers(0, 2))}.parquet"
        return append(log.end + more, path, log.partition, log.end)
    if kind == "gap":
        gap = Gap(log.end, log.end + more)
        return Append(topic=log.topic, partition=log.partition, start=gap.start, end=gap.end, gap=gap)
    if kind == "plan":
        return PlanFold(topic=log.topic, partition=log.partition, end=draw(st.integers(log.folded_end, log.end)))
    if kind == "publish":
        return msgspec.structs.replace(publish(draw(st.integers(log.folded_end, log.end))), partition=log.partition)
    end = draw(st.integers(log.clean_end, log.published))
    return msgspec.structs.replace(clean(end, f"runs/1-base-{end}.parquet"), partition=log.partition)


def _next(state: CatalogState, draw: Any) -> AnyAction:
    """Any action that fits."""
    choices = ["topic", "snapshot", "drop", "buckets", *(["partition"] if state.topics else []), *(["log"] * 6)]
    kind = draw(st.sampled_from(choices))
    if kind == "log" and state.logs:
        return _for_log(draw(st.sampled_from(state.logs)), draw)
    if kind == "partition":
        return AddPartition(
            topic="t", partition=len(state.logs), bucket=0, start=draw(st.integers(0, 9)), backlog_end=5
        )
    if kind == "topic" or not state.topics:
        others = [CloseTopic(topic="t", reason="gone"), ReopenTopic(topic="t")] if state.topics else []
        return draw(st.sampled_from([AddTopic(topic="t", topic_id="T", output="o", output_id="O"), *others]))
    name = str(draw(st.integers(0, 3)))
    if kind == "drop":
        return DropSnapshot(topic="t", id=name)
    if kind == "buckets":
        return SetBuckets(count=draw(st.integers(1, 9)))
    return AddSnapshot(topic="t", id=name, path=name, created_ms=1, source_offsets={}, records=0, bytes=0)


@st.composite
def histories(draw: Any) -> list[list[AnyAction]]:
    """Commits of actions, each of which fits the state before it."""
    state, commits = CatalogState(), []
    for _ in range(draw(st.integers(0, 25))):
        actions = []
        for _ in range(draw(st.integers(1, 3))):
            actions.append(_next(state, draw))
            state = apply(state, actions[-1:])
        commits.append(actions)
    return commits


@settings(deadline=None, max_examples=80)
@given(histories(), st.integers(0, 25), st.integers(0, CHECKPOINT_EVERY))
def test_what_is_read_is_what_was_in_memory(commits: list[list[AnyAction]], lag: int, padding: int) -> None:
    """Anew, lagging, from a checkpoint and by pure replay: every reader has the state that the owner has."""
    storage = MemoryStorage()
    catalog = Catalog.open(storage, "c")
    catalog.take_over("h:1", NOW)
    for _ in range(padding):  # so that the checkpoint falls anywhere among the commits
        catalog.commit(lambda state: [SetBuckets(count=1)], NOW)
    beside = Catalog.open(storage, "c")
    for number, actions in enumerate(commits):
        catalog.commit(deciding(*actions), NOW)
        if number == lag:
            assert beside.refresh() == catalog.state
    assert beside.refresh() == Catalog.open(storage, "c").state == catalog.state
    for version in list_versions(storage).checkpoints:
        storage.delete(checkpoint_path(version))
    assert Catalog.open(storage, "c").state == catalog.state


def _drops(catalog: Catalog, paths: set[str]) -> dict[str, int]:
    return {path: catalog.unreferenced_since(path) for path in paths}


@settings(deadline=None, max_examples=40)
@given(histories())
def test_no_reader_thinks_a_file_dropped_too_early(commits: list[list[AnyAction]]) -> None:
    """Owner and reader agree when a file was dropped; who starts from a checkpoint says never an earlier time."""
    storage = MemoryStorage()
    catalog = Catalog.open(storage, "c")
    catalog.take_over("h:1", 1)
    named: set[str] = set()
    truth: dict[str, int] = {}
    for at_ms, actions in enumerate(commits, start=2):
        before = catalog.state.paths
        after = catalog.commit(deciding(*actions), at_ms).paths
        named |= before | after
        truth.update(dict.fromkeys(before - after, at_ms))
    gone = named - catalog.state.paths
    assert (
        _drops(catalog, gone) == _drops(Catalog.open(storage, "c"), gone) == {p: truth[p] for p in gone if p in truth}
    )
    for _ in range(CHECKPOINT_EVERY):
        catalog.commit(lambda state: [SetBuckets(count=1)], 10_000)
    late = Catalog.open(storage, "c")
    assert all(late.unreferenced_since(path) >= truth[path] for path in gone if path in truth)
