"""Counts of how long records took from their creation until they could be read, by topic and second of creation."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Final

from msgspec import Struct

_STEPS: Final = 100
"""Buckets for each factor e: a latency is kept to one percent."""
_SHORTEST_S: Final = 0.001


class Latencies(Struct):
    """Counts of records by (topic, second of creation), and in each by bucket of latency; small however many."""

    counts: dict[tuple[str, int], dict[int, int]] = {}

    def add(self, topic: str, created: float, seen: float, records: int = 1) -> None:
        """Counts records of `topic`, created and seen at these seconds since the epoch."""
        bucket = round(_STEPS * math.log(max(_SHORTEST_S, seen - created)))
        second = self.counts.setdefault((topic, int(created)), {})
        second[bucket] = second.get(bucket, 0) + records

    def during(self, since: float, until: float) -> Latencies:
        """Returns those of the records that were created in whole seconds within [since, until)."""
        seconds = range(math.ceil(since), math.floor(until))
        return Latencies({key: found for key, found in self.counts.items() if key[1] in seconds})

    def of(self, topics: Collection[str]) -> Latencies:
        """Returns those of the records of `topics`."""
        return Latencies({key: found for key, found in self.counts.items() if key[0] in topics})

    @property
    def records(self) -> int:
        """How many records were counted."""
        return sum(sum(found.values()) for found in self.counts.values())

    def percentile(self, share: float) -> float:
        """Returns the seconds at rank `share` (0 to 1), to one percent; infinity if there is no record."""
        merged = _merged(self.counts.values())
        rank, passed = int(sum(merged.values()) * share), 0
        for bucket in sorted(merged):
            passed += merged[bucket]
            if passed > rank:
                return math.exp(bucket / _STEPS)
        return math.exp(max(merged) / _STEPS) if merged else math.inf

    def slowest(self, topics: Collection[str], share: float) -> float:
        """Returns the largest of the percentiles of each of `topics`; infinity if one has no record."""
        return max(self.of({topic}).percentile(share) for topic in topics)


def _merged(counts: Iterable[dict[int, int]]) -> dict[int, int]:
    merged: dict[int, int] = {}
    for found in counts:
        for bucket, count in found.items():
            merged[bucket] = merged.get(bucket, 0) + count
    return merged
