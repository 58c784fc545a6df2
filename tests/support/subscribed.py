"""A connector's subscription over brokers in memory, and what its reading thread would be told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from compactor.ingest.appends import Batch
from compactor.model.record import RangeRead
from connectors.source.options import SourceOptions
from connectors.source.plan import SourceRange
from connectors.source.planner import Planner
from connectors.source.portion import Offer, Portion
from connectors.source.subscription import Subscription
from tests.support.clocks import ManualClock
from tests.support.memory.cluster import MemoryCluster
from tests.support.source_options import source_options


class Subscribed:
    """One connector that reads `topic` of `cluster`; further keywords are those of `source_options`."""

    def __init__(
        self,
        cluster: MemoryCluster,
        topic: str = "a",
        *,
        clock: ManualClock | None = None,
        shared: bool = True,
        query_starts: Callable[[], bool] = lambda: False,
        begin: bool = True,
        pinned: bool = False,
        interval_ms: int = 0,
        **named: Any,
    ) -> None:
        self.clock = clock or ManualClock()
        self.asked_again = 0
        self.claimed: Offer | None = None
        made = source_options(topics=(topic,), **{"connector": f"c-{topic}", "metadata_age": 0.0, **named})
        self.options: SourceOptions = replace(made, pinned=pinned, interval_ms=interval_ms)
        self.planner = Planner(self.options, cluster, self.clock)
        self.subscription = Subscription(
            self.options, self.planner, self.clock, self._ask_again, shared=lambda: shared, starts=query_starts
        )
        if begin:
            self.subscription.begin()

    @property
    def portion(self) -> Portion:
        """The portion as it is now."""
        return self.subscription.portion

    def offered(self) -> tuple[tuple[int, int], ...]:
        """Plans, claims, and returns the offsets [lo, hi) of the portion; nothing where there is none."""
        self.subscription.plan()
        self.claimed = self.subscription.claim()
        return tuple((each.lo, each.hi) for each in self.claimed.ranges) if self.claimed else ()

    def read(self) -> Batch:
        """Returns what a micro-batch reads of the portion that was claimed last."""
        assert self.claimed is not None
        return batch_of(self.claimed.ranges)

    def apart(self) -> Offer:
        """Returns what is to be read apart."""
        offer = self.subscription.next(0)
        assert isinstance(offer, Offer), offer
        return offer

    def _ask_again(self) -> None:
        self.asked_again += 1


def batch_of(ranges: Sequence[SourceRange], *, up_to: int | None = None) -> Batch:
    """Returns what reading `ranges` gives, each without a record and at most up to the offset `up_to`."""
    ends = [(one, one.hi if up_to is None else min(one.hi, up_to)) for one in ranges]
    reads = (
        RangeRead(tp=one.topic_partition, topic_id=one.topic_id, lo=one.lo, hi=hi, start=one.lo, records=0)
        for one, hi in ends
        if hi > one.lo
    )
    return Batch(ranges=tuple(reads), parts=())
