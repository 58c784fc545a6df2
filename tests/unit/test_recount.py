from __future__ import annotations

from compactor.actions import AddPartition, Append, Publish, State, apply
from compactor.dirt import across_bounds, dirt
from compactor.recount import restated
from compactor.testing import MemoryStorage
from tests.support.kept import rows_of, run_of


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
