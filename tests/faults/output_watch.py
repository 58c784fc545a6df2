"""Watches output topics as a reader would: for how long none of them had anything new."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import NamedTuple, Self
from uuid import uuid4

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from tests.support.kafka import end_offsets


class Gap(NamedTuple):
    """The `seconds` for which nothing was committed to `topic`."""

    seconds: float
    topic: str


class OutputWatch:
    """Reads `topics`, `read_committed`, from now on in a thread, as a context manager. Each is under a steady load."""

    def __init__(self, bootstrap: str, topics: Iterable[str]) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"watch-{uuid4().hex}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        partitions = [(topic, number) for topic in topics for number in end_offsets(bootstrap, topic)]
        self._consumer.assign([TopicPartition(*each, OFFSET_END) for each in partitions])
        self._seen = dict.fromkeys((topic for topic, _ in partitions), time.monotonic())
        self._longest = Gap(0.0, "")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="output-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()

    def longest(self) -> Gap:
        """Returns the longest gap until now, one that has not ended included."""
        now = time.monotonic()
        return max([self._longest, *(Gap(now - at, topic) for topic, at in self._seen.items())])

    def _watch(self) -> None:
        while not self._ended.is_set():
            topics = {message.topic() or "" for message in self._consumer.consume(1000, 0.1) if not message.error()}
            now = time.monotonic()
            for topic in topics:
                self._longest = max(self._longest, Gap(now - self._seen[topic], topic))
                self._seen[topic] = now
