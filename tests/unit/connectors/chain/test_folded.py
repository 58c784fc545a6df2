"""What a chain leaves is what is folded: dropped records supersede nothing, and new keys stay in their partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from compactor.analyze.analyze import analyze
from compactor.analyze.arrow_counts import ArrowCounts
from compactor.analyze.effect import Amount, Example, SplitKeys
from compactor.fold import in_memory
from compactor.model.record import SOURCE
from compactor.model.state import CatalogState
from compactor.runs.scan import between
from compactor.settings import CompactionPolicy, EngineSettings
from compactor.storage.local import LocalStorage
from connectors.source.arrow_records import range_rows
from connectors.source.plan import SourceRange
from tests.support.engine import Row, ingested, log_of, new_state, row
from tests.unit.connectors.chain.test_chain import BY_ID, chain, value

WITHOUT_HEARTBEATS = {
    "transforms": "f",
    "transforms.f.type": "Filter",
    "transforms.f.predicate": "p",
    "predicates": "p",
    "predicates.p.type": "HasHeaderKey",
    "predicates.p.name": "heartbeat",
}


def taken_in(storage: LocalStorage, settings: Mapping[str, str], rows: Sequence[Row]) -> tuple[CatalogState, list[int]]:
    """Returns the state after one reading task has taken `rows` in, and how many were dropped of each partition."""
    ends = {p: sum(one["partition"] == p for one in rows) for p in sorted({one["partition"] for one in rows})}
    report = range_rows([(SourceRange("t", "id-t", p, 0, end), 0, end) for p, end in ends.items()])
    made = chain(dict(settings)).through([pa.RecordBatch.from_pylist(list(rows), schema=SOURCE), report])
    left = [one for batch in made for one in batch.to_pylist()]
    state = ingested(storage, new_state(dict.fromkeys(ends, 0)), [left])
    return state, [one["range"]["filtered"] for one in left if one["range"]]


def test_a_record_that_is_dropped_supersedes_nothing(tmp_path: Path) -> None:
    """What its key had before is the latest still; it is counted, and offsets move over it."""
    storage = LocalStorage(str(tmp_path))
    heartbeat = [{"key": "heartbeat", "value": b""}]
    rows = [row(0, 0, b"k", b"1"), row(0, 1, b"k", b"2", headers=heartbeat)]
    state, filtered = taken_in(storage, WITHOUT_HEARTBEATS, rows)
    log = log_of(state)
    ranges = [between(log, 0, 2)]
    files = in_memory.load(storage, ranges)
    assert files is not None
    found = in_memory.latest(files, ranges)
    assert [(one["key"], one["value"]) for one in found.to_pylist()] == [(b"k", b"1")]
    assert (log.end, filtered) == (2, [1])


def test_a_new_key_in_two_source_partitions_is_counted_as_split(tmp_path: Path) -> None:
    """Each partition is a log of its own, so a key has two records: analyze says so, and that one is outdated."""
    storage = LocalStorage(str(tmp_path))
    places = {(0, 0): "a", (0, 1): "b", (1, 0): "a", (1, 1): "c"}
    rows = [row(partition, at, b"old", value(id=name)) for (partition, at), name in places.items()]
    state, _ = taken_in(storage, BY_ID, rows)
    settings = [EngineSettings(connector="c", policy=CompactionPolicy())]
    told = analyze(storage, state, settings, 9, partial(ArrowCounts, storage))
    assert told.split == {"t": SplitKeys(keys=1, examples=(Example(b"a", (0, 1)),), outdated=Amount(1, 12))}
