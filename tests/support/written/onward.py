"""How a connector goes on from what an older version has written, and what must be true of it then."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.parquet as pq

from compactor.catalog import commits
from compactor.catalog.catalog import Catalog
from compactor.model.log import PartitionLog
from compactor.snapshot import listing, manifest
from tests.support.engine import Row
from tests.support.memory.storage import DictModel
from tests.support.oracle.kept import Dumps
from tests.support.oracle.steps import (
    Advance,
    Any,
    Fold,
    Ingest,
    Rec,
    Restart,
    Round,
    Settings,
    Snapshot,
    Tick,
    Vacuum,
    Way,
)
from tests.support.oracle.world import CONNECTOR, World
from tests.support.written.making import OLDER, STRANGER

Latest = dict[bytes, tuple[int, bytes | None, int]]
"""Offset, value and timestamp by key."""


def go_on(world: World, way: Way) -> None:
    """All that a worker does: it takes over, publishes, cleans, takes snapshots and clears up, in two lives."""
    settings = Settings(ratio=0.0, level0=2, way=way, local=1_000 if way is Way.MEMORY else -1)
    steps: list[Any] = [
        Restart(settings),
        Advance(1_500),
        Ingest((Rec(0, b"a", b"after"), Rec(1, b"a", b"after"), Rec(2, b"b", None), Rec(3, b"new", b"after"))),
        Tick(),
        Round(),
        Advance(70_000),  # what was set aside is looked at again
        Round(),
        Ingest((Rec(0, b"c", None), Rec(0, b"a", b"later"), Rec(4, b"b", b"after"))),
        Fold(),
        Snapshot(),
        Advance(1),
        Vacuum(),
        Restart(settings),
        Ingest((Rec(0, b"a", b"last"), Rec(1, b"b", None), Rec(2, b"b", b"last"), Rec(3, b"\xfe", b"last"))),
        Advance(200_000),  # tombstones are past their horizons
        Round(),
        Fold(),
        Snapshot(),
        Advance(1),
        Vacuum(),
    ]
    for step in steps:
        assert world.perform(step), step


def breaches(world: World) -> Iterator[str]:
    """What is not as it must be once a world has gone on."""
    state = world.life.catalog.state
    if Catalog.open(world.storage, CONNECTOR).state != state:
        yield "the catalog is not what its owner has committed"
    if commits.listing(world.storage).checkpoints != (50, 100):
        yield f"there are the checkpoints {commits.listing(world.storage).checkpoints}"
    if {info.path for info in world.storage.walk("runs")} != state.paths:
        yield "the run files are not those that the catalog names"
    for log in state.logs:
        if state.topics[log.topic].closed is None:
            yield from (f"{log.tp}: {wrong}" for wrong in _wrong_in(world, log))
    for topic in ("t", "u"):
        yield from (f"{topic}: {wrong}" for wrong in _wrong_snapshot(world, topic))


def _wrong_in(world: World, log: PartitionLog) -> Iterator[str]:
    rows = world.source.rows[log.tp]
    if log.quarantine or (log.published, log.end) != (world.source.ends[log.tp],) * 2:
        yield f"it is not done to its end: {log}"
    sent = world.outside.output.records[log.tp]
    offsets = [one.source_offset for one in sent]
    if offsets != sorted({*offsets}):
        yield f"the output has the source offsets {offsets}"
    last: Latest = {one.key: (one.source_offset, one.value, one.timestamp) for one in sent if one.key is not None}
    if last != _latest(rows):
        yield f"the output ends as {last}, the source as {_latest(rows)}"
    kept = _latest(Dumps(world.storage).of(log))
    wanted = {key: one for key, one in _latest(rows).items() if one[0] >= log.start}
    if _living(kept) != _living(wanted):
        yield f"{kept} is kept of {wanted}"


def _wrong_snapshot(world: World, topic: str) -> Iterator[str]:
    state, shelf = world.life.catalog.state, world.shelf
    ours = [one for one in state.snapshots if one.topic == topic]
    others = [OLDER, STRANGER] if topic == "t" else []
    standing = listing.list_ids(shelf, state, topic)
    if sorted(standing) != sorted([*others, *(one.id for one in ours)]) or len(ours) != 2:
        yield f"the snapshots {standing} are there, the catalog names {[one.id for one in ours]}"
    folder = f"{CONNECTOR}/{topic}"
    if shelf.read(f"{folder}/{listing.LATEST}").decode().strip() != ours[-1].id:
        yield "LATEST names another one"
    found: list[Row] = []
    for name in shelf.list(f"{folder}/{listing.CURRENT}"):
        with shelf.open_input(f"{folder}/{listing.CURRENT}/{name}") as data:
            found += pq.read_table(data).to_pylist()
    starts = {log.partition: log.start for log in state.logs if log.topic == topic}
    rows = [row for tp, rows in world.source.rows.items() if tp.topic == topic for row in rows]
    living = [row for row in DictModel(rows).live() if row["offset"] >= starts[row["partition"]]]
    if [(row["partition"], row["offset"], row["key"], row["value"]) for row in found] != [
        (row["partition"], row["offset"], row["key"], row["value"]) for row in living
    ]:
        yield f"the newest snapshot holds {found} instead of {living}"
    said = manifest.read(shelf, ours[-1].path)
    ends = {str(log.partition): log.end for log in state.logs if log.topic == topic}
    if (said.records, said.source_offsets) != (len(living), ends):
        yield f"its manifest says {said}"


def _latest(rows: list[Row]) -> Latest:
    found = DictModel(rows).latest()
    return {key: (row["offset"], row["value"], row["timestamp"]) for (_, _, key), row in found.items()}


def _living(latest: Latest) -> Latest:
    return {key: one for key, one in latest.items() if one[1] is not None}
