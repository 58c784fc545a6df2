"""The keys that a publish retires are looked for while its producer waits for brokers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from compactor.fold.in_memory import InMemory
from compactor.model.position import ResumePoint
from compactor.model.publish_plan import PublishPlan, PublishResult
from compactor.model.record import TopicPartition
from compactor.publish.executors import fold_job
from compactor.publish.plan import bucket_plans, target_of
from compactor.publish.retired import RETIRED
from compactor.storage.local import LocalStorage
from tests.support.oracle.oracle import Oracle
from tests.support.oracle.steps import AnyCase, Ingest, Restart, Settings, SourceRecord

WAIT_S = 10.0
T0 = TopicPartition("t", 0)


class LookedFor(LocalStorage):
    """A folder that tells when something is looked for in a file: what is sent is read as a whole."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.is_asked = threading.Event()

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        """See Storage."""
        self.is_asked.set()
        return super().open_input(path, size)


class Slow:
    """A publisher of which steps 6 and 7 take until keys are looked for in `storage`."""

    def __init__(self, storage: LookedFor) -> None:
        self._storage = storage
        self.retired: list[list[bytes] | None] = []

    def publish(self, plan: PublishPlan, records: Iterator[pa.RecordBatch]) -> Sequence[PublishResult]:
        """See Publisher."""
        assert self._storage.is_asked.wait(WAIT_S)
        self.retired = [keys for batch in records for keys in batch[RETIRED].to_pylist()]
        return [
            PublishResult(topic=target.topic, partition=target.partition, end=target.end, records=1)
            for target in plan.targets
        ]


def test_keys_are_looked_for_before_the_publisher_asks_for_records(tmp_path: Path) -> None:
    """The plan alone says which they are."""
    oracle, waits = Oracle(None, tmp_path, any_case=True), Restart(Settings(lag=10_000))
    oracle.run([AnyCase(), Restart(), Ingest((SourceRecord(0, b"aa", b"1"),)), waits])
    oracle.run([Ingest((SourceRecord(0, b"AA", b"2"),))])
    state = oracle.simulation.components.catalog.state
    target = target_of(state, state.log(T0), ResumePoint(start=1, committed=1), 2)
    storage = LookedFor(oracle.simulation.storage.location)
    publisher, plans = Slow(storage), bucket_plans(state, [target])
    job = fold_job(
        state, plans, storage, publisher=lambda: publisher, local_publisher=lambda: publisher, local_records=100
    )
    assert len(InMemory(storage).run(job).rows) == 1
    assert publisher.retired == [[b"aa"]]
