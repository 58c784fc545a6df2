"""How a connector goes on from what an older version has written, and what must be true of it then."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.parquet as pq

from compactor.catalog import commits
from compactor.catalog.catalog import Catalog
from compactor.model.log import PartitionLog, generation_of
from compactor.snapshot import listing, manifest
from tests.support.dict_model import DictModel
from tests.support.engine import Row
from tests.support.oracle.log_contents import LogContents
from tests.support.oracle.simulation import CONNECTOR, Simulation
from tests.support.oracle.steps import (
    Advance,
    AnyStep,
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
from tests.support.written.making import OLDER, STRANGER

Latest = dict[bytes, tuple[int, bytes | None, int]]
"""Offset, value and timestamp by key."""


def go_on(simulation: Simulation, fold_method: FoldMethod) -> None:
    """All that a worker does: it takes over, publishes, cleans, takes snapshots and clears up, in two lives."""
    settings = Settings(
        ratio=0.0, level0=2, fold_method=fold_method, local=1_000 if fold_method is FoldMethod.MEMORY else -1
    )
    steps: list[AnyStep] = [
        Restart(settings),
        Advance(1_500),
        Ingest(
            (
                SourceRecord(0, b"a", b"after"),
                SourceRecord(1, b"a", b"after"),
                SourceRecord(2, b"b", None),
                SourceRecord(3, b"new", b"after"),
            )
        ),
        Tick(),
        Round(),
        Advance(70_000),  # what was set aside is looked at again
        Round(),
        Ingest((SourceRecord(0, b"c", None), SourceRecord(0, b"a", b"later"), SourceRecord(4, b"b", b"after"))),
        Fold(),
        Snapshot(),
        Advance(1),
        Vacuum(),
        Restart(settings),
        Ingest(
            (
                SourceRecord(0, b"a", b"last"),
                SourceRecord(1, b"b", None),
                SourceRecord(2, b"b", b"last"),
                SourceRecord(3, b"\xfe", b"last"),
            )
        ),
        Advance(200_000),  # tombstones are past their horizons
        Round(),
        Fold(),
        Snapshot(),
        Advance(1),
        Vacuum(),
    ]
    for step in steps:
        assert simulation.perform(step), step


def breaches(simulation: Simulation) -> Iterator[str]:
    """What is not as it must be once a world has gone on."""
    state = simulation.components.catalog.state
    if Catalog.open(simulation.storage, CONNECTOR).state != state:
        yield "the catalog is not what its owner has committed"
    if commits.list_versions(simulation.storage).checkpoints != (50, 100):
        yield f"there are the checkpoints {commits.list_versions(simulation.storage).checkpoints}"
    if {info.path for info in simulation.storage.walk("runs")} != state.paths:
        yield "the run files are not those that the catalog names"
    for log in state.logs:
        if state.topics[log.topic].closed is None:
            yield from (f"{log.tp}: {wrong}" for wrong in _wrong_in(simulation, log))
    for topic in ("t", "u"):
        yield from (f"{topic}: {wrong}" for wrong in _wrong_snapshot(simulation, topic))


def _wrong_in(simulation: Simulation, log: PartitionLog) -> Iterator[str]:
    rows = simulation.source.rows[log.tp]
    if log.quarantine or (log.published, log.end) != (simulation.source.ends[log.tp],) * 2:
        yield f"it is not done to its end: {log}"
    sent = [one for one in simulation.broker.output.records[log.tp] if one.generation == generation_of(log)]
    offsets = [one.source_offset for one in sent]
    if offsets != sorted({*offsets}):
        yield f"the output has the source offsets {offsets}"
    last: Latest = {
        one.key: (one.source_offset, one.value, one.timestamp)
        for one in sent
        if one.key is not None and not one.is_synthetic
    }
    if last != _latest(rows):
        yield f"the output ends as {last}, the source as {_latest(rows)}"
    kept = _latest(LogContents(simulation.storage).of(log))
    wanted = {key: one for key, one in _latest(rows).items() if one[0] >= log.start}
    if _living(kept) != _living(wanted):
        yield f"{kept} is kept of {wanted}"


def _wrong_snapshot(simulation: Simulation, topic: str) -> Iterator[str]:
    state, shelf = simulation.components.catalog.state, simulation.shelf
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
    rows = [row for tp, rows in simulation.source.rows.items() if tp.topic == topic for row in rows]
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
