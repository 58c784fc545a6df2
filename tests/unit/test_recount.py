from __future__ import annotations

import pyarrow as pa
from msgspec.structs import replace

from compactor import record
from compactor.actions import AddPartition, Append, Publish
from compactor.append import level0
from compactor.dirt import across_bounds, dirt
from compactor.log import empty
from compactor.record import TopicPartition
from compactor.recount import restated
from compactor.runfile import RunTarget, write
from compactor.state import State, apply
from compactor.testing import MemoryStorage
from tests.support.kept import rows_of, run_of


def test_records_without_a_key_are_counted_on_their_side() -> None:
    """Of a run that is counted in parts each part has its own records without a key, those that were rejected not."""
    storage = MemoryStorage()
    keys = [None, b"k", None, b"k", None, b"k"]
    rows = rows_of("t", 0, 0, [{"key": key, "value": b"v", "rejected": None} for key in keys])
    rows[2]["rejected"] = "null key"
    batch = pa.RecordBatch.from_pylist(rows, schema=record.RUN)
    target = RunTarget(storage=storage, prefix="1-job", max_bytes=1 << 20)
    run = level0(0, 6, tuple(write([batch.slice(0, 3), batch.slice(3)], target, "ingest.write")), 0)
    assert (run.keyless, run.rejected) == (2, 1)
    log = replace(empty(TopicPartition("t", 0), 0, 0, None), end=6, folded_end=2, published=2, runs=(run,))
    assert [one.keyless for one in restated(storage, log, run).runs] == [1, 1]


def test_a_run_is_counted_again_where_nothing_lies_below() -> None:
    """Published may move inside a run as often as it likes, also to an offset below which no record is left."""
    storage = MemoryStorage()
    record = {"key": b"k", "value": b"v"}
    run = run_of(storage, [*rows_of("t", 0, 0, [record] * 4), *rows_of("t", 0, 6, [record] * 4)])
    state = apply(State(), [AddPartition(topic="t", partition=0, bucket=0, start=0)])
    state = apply(state, [Append(topic="t", partition=0, start=0, end=10, run=run)])
    for published, head in ((4, 4), (5, 4), (6, 4), (8, 6)):
        state = apply(state, [Publish(topic="t", partition=0, end=published)])
        log = state.logs[0]
        state = apply(state, [restated(storage, log, run) for run in across_bounds(log)])
        found = dirt(state.logs[0])
        assert (found.records, found.head, found.unsure, found.held) == (head, 2 * head, 0, 2 * (8 - head))
