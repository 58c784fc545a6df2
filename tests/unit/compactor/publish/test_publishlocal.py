"""Several buckets at once in one process: what counts where some of them fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from compactor.errors import FencedError, KeyfoldError, PublishInterruptedError
from compactor.model.publish_plan import PublishPlan, PublishResult, PublishTarget
from compactor.publish import publishlocal


class Publishing:
    """Fails in the buckets that it is told of; `sent` are the others."""

    def __init__(self, failures: dict[int, KeyfoldError]) -> None:
        self.sent: list[int] = []
        self._failures = failures

    def publish(self, plan: PublishPlan, records: Iterator[pa.RecordBatch]) -> Sequence[PublishResult]:
        assert list(records) == []
        if plan.bucket in self._failures:
            raise self._failures[plan.bucket]
        self.sent.append(plan.bucket)
        return [PublishResult(topic=one.topic, partition=one.partition, end=one.end) for one in plan.targets]


def plan(bucket: int) -> PublishPlan:
    target = PublishTarget(topic="t", partition=bucket, bucket=bucket, output="o", start=0, end=5)
    return PublishPlan(bucket=bucket, epoch=1, catalog_id="c", targets=(target,))


PLANS = [plan(bucket) for bucket in range(3)]


def test_every_bucket_answers() -> None:
    """What was sent comes back by bucket."""
    sent = publishlocal.send({}, [], PLANS, Publishing({}))
    assert [(one.partition, one.end) for one in sent] == [(0, 5), (1, 5), (2, 5)]


def test_a_newer_owner_counts_before_everything_else() -> None:
    """Whoever is fenced must end, and not be started again for what another bucket met; the others did their part."""
    failing = {0: PublishInterruptedError("shut out", "again"), 1: FencedError("a newer owner", "stop")}
    publishing = Publishing(failing)
    with pytest.raises(FencedError):
        publishlocal.send({}, [], PLANS, publishing)
    assert publishing.sent == [2]


def test_otherwise_the_first_bucket_counts() -> None:
    """One error is raised, the same each time."""
    failing = {bucket: PublishInterruptedError(f"bucket {bucket}", "again") for bucket in (1, 2)}
    with pytest.raises(PublishInterruptedError, match="bucket 1"):
        publishlocal.send({}, [], PLANS, Publishing(dict(failing)))
