"""Drives Kafka's own log cleaner on the embedded broker: makes topics that it cleans at once, and waits for it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Final, TypeAlias

from confluent_kafka import Producer

from tests.support.kafka import TIMEOUT_S, create_topic

BROKER: Final = {
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "100",
}
"""Server properties with which the cleaner pauses briefly and old segments are deleted at once."""

CLEANING_S: Final = 150.0
_ROUND_S: Final = 0.4
_FILLER: Final = "filler-"
# Two of them roll a segment of SEGMENT_BYTES.
_SEGMENT_BYTES: Final = 2048
_PADDING: Final = b"." * 1200

Partition: TypeAlias = tuple[str, int]
"""Topic and partition."""


def create_compacted(bootstrap: str, name: str, partitions: int, delete_retention_ms: int) -> str:
    """Makes a topic of tiny segments that is cleaned as soon as there is anything to clean."""
    settings: dict[str, str | int] = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": _SEGMENT_BYTES,
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": delete_retention_ms,
        "segment.index.bytes": 4096,
    }
    return create_topic(bootstrap, name, partitions, **settings)


class KafkaCleaner:
    """Drives the cleaner of the broker at `bootstrap` that keeps its partitions in `data`."""

    def __init__(self, bootstrap: str, data: Path) -> None:
        self._bootstrap = bootstrap
        self._file = data / "cleaner-offset-checkpoint"
        self._numbers = count()

    def checkpoints(self) -> dict[Partition, int]:
        """Returns the clean offset of each partition, below which a complete pass has cleaned."""
        if not self._file.exists():
            return {}
        lines = (line.rsplit(" ", 2) for line in self._file.read_text().splitlines()[2:])
        return {(topic, int(partition)): int(offset) for topic, partition, offset in lines}

    def pass_over(self, ends: Mapping[Partition, int]) -> None:
        """Waits until each partition is cleaned at least to its end.

        The active segment is never cleaned and an idle one never rolls: records with keys of their own, appended
        above the ends, make it roll.
        """
        deadline = time.monotonic() + CLEANING_S
        with Producer({"bootstrap.servers": self._bootstrap, "log_level": 0, "linger.ms": 0}) as producer:
            while behind := self._behind(ends):
                assert time.monotonic() < deadline, f"the cleaner has not passed {behind}: {self.checkpoints()}"
                self._append(producer, behind)
                self._wait(ends)

    def pass_again(self, places: Mapping[Partition, object]) -> None:
        """Waits for one more pass over everything that was cleaned."""
        found = self.checkpoints()
        self.pass_over({place: found[place] + 1 for place in places})

    def _behind(self, ends: Mapping[Partition, int]) -> dict[Partition, int]:
        found = self.checkpoints()
        return {place: end for place, end in ends.items() if found.get(place, 0) < end}

    def _append(self, producer: Producer, places: Mapping[Partition, int]) -> None:
        """Sends each record in a batch of its own: two would be larger than a segment."""
        for _ in range(2):
            for topic, partition in places:
                producer.produce(topic, _PADDING, f"{_FILLER}{next(self._numbers)}", partition)
            assert producer.flush(TIMEOUT_S) == 0, "records were not delivered"

    def _wait(self, ends: Mapping[Partition, int]) -> None:
        """Waits a moment for the cleaner; the caller appends more records if it was too short."""
        until = time.monotonic() + _ROUND_S
        while self._behind(ends) and time.monotonic() < until:
            time.sleep(0.02)
