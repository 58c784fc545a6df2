"""Watches output topics as a reader would: for how long none of them had anything new."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple
from uuid import uuid4

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from connectors.threads import CancellableThread
from tests.support.kafka import end_offsets


class Gap(NamedTuple):
    """The `seconds` for which nothing was committed to `topic`."""

    seconds: float
    topic: str


class OutputWatch:
    """Reads `topics`, `read_committed`, from now on. Each is under a steady load."""

    def __init__(self, consumer: Consumer, bootstrap: str, topics: Iterable[str]) -> None:
        self._consumer = consumer
        partitions = [(topic, number) for topic in topics for number in end_offsets(bootstrap, topic)]
        self._consumer.assign([TopicPartition(*each, OFFSET_END) for each in partitions])
        self._seen = dict.fromkeys((topic for topic, _ in partitions), time.monotonic())
        self._longest = Gap(0.0, "")

    def longest(self) -> Gap:
        """Returns the longest gap until now, one that has not ended included."""
        now = time.monotonic()
        return max([self._longest, *(Gap(now - at, topic) for topic, at in self._seen.items())])

    def run(self, ended: threading.Event) -> None:
        """Reads until `ended` is set."""
        while not ended.is_set():
            topics = {message.topic() or "" for message in self._consumer.consume(1000, 0.1) if not message.error()}
            now = time.monotonic()
            for topic in topics:
                self._longest = max(self._longest, Gap(now - self._seen[topic], topic))
                self._seen[topic] = now


@contextmanager
def watching(bootstrap: str, topics: Iterable[str]) -> Iterator[OutputWatch]:
    """Watches `topics` in a thread during the block."""
    settings = {"group.id": f"watch-{uuid4().hex}", "isolation.level": "read_committed", "log_level": 0}
    with closing(Consumer({"bootstrap.servers": bootstrap, "enable.auto.commit": False, **settings})) as consumer:
        watch = OutputWatch(consumer, bootstrap, topics)
        thread = CancellableThread("output-watch", watch.run)
        thread.start()
        try:
            yield watch
        finally:
            thread.stop()
            thread.join()
