"""Produces a steady load and records every record that the broker has acknowledged."""

from __future__ import annotations

import random
import threading
import time
from types import TracebackType
from typing import Final, NamedTuple, Self

from confluent_kafka import Message, Producer

from tests.support.kafka import Headers, ToSend, wait_until

KEYS: Final = 120
RATE: Final = 100
"""Records per second."""
TOMBSTONES: Final = 0.1
# A broker may be away for minutes: until it is back the records wait, in their order and without a second copy.
_PATIENT: Final = {
    "enable.idempotence": True,
    "message.timeout.ms": 900_000,
    "linger.ms": 5,
    "reconnect.backoff.max.ms": 500,
    "log_level": 0,
}


class Sent(NamedTuple):
    """A record as it was sent."""

    key: bytes | None
    value: bytes | None
    headers: Headers


class Load:
    """Sends records at a steady `rate` (records/s) from a thread, as a context manager.

    Every key has one partition. `acknowledged` has (partition, offset) → record of all that the broker has taken;
    `refused` the errors of those that it never will.
    """

    def __init__(self, bootstrap: str, topic: str, seed: int, rate: int = RATE, partitions: int = 2) -> None:
        self.acknowledged: dict[tuple[int, int], Sent] = {}
        self.refused: list[str] = []
        self.seed = seed
        self._topic = topic
        self._rate = rate
        self._partitions = partitions
        self._chance = random.Random(seed)
        self._producer = Producer({"bootstrap.servers": bootstrap, **_PATIENT})
        self._ends: dict[int, int] = {}
        self._count = 0
        self._under_way = 0
        self._running = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"load-{topic}", daemon=True)

    def __enter__(self) -> Self:
        self._running.set()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.purge()
        self._producer.poll(0)

    def pause(self, timeout_s: float = 120.0) -> None:
        """Stops sending; returns once everything sent is acknowledged or refused."""
        self._running.clear()
        wait_until(lambda: self._under_way == 0, "all that was sent is acknowledged", timeout_s)

    def resume(self) -> None:
        """Sends again."""
        self._running.set()

    def ends(self) -> dict[int, int]:
        """Returns partition → the offset after the last acknowledged record."""
        return dict(self._ends)

    def _work(self) -> None:
        """Sends in the only thread that uses the producer, so that callbacks run in it too."""
        while not self._ended.is_set():
            began, sent = time.monotonic(), 0
            while self._running.is_set() and not self._ended.is_set():
                if sent > (time.monotonic() - began) * self._rate or not self._send():
                    self._producer.poll(0.02)
                else:
                    sent += 1
            self._producer.poll(0.02)

    def _send(self) -> bool:
        """Produces a record; returns False if the producer's queue is full."""
        record = self._next()
        sent = Sent(record.key, record.value, record.headers)
        self._under_way += 1
        try:
            self._producer.produce(
                self._topic,
                record.value,
                record.key,
                record.partition,
                headers=list(record.headers),
                on_delivery=lambda error, message: self._delivered(error, message, sent),
            )
        except BufferError:
            self._under_way -= 1
            return False
        self._producer.poll(0)
        return True

    def _next(self) -> ToSend:
        self._count += 1
        key = self._chance.randrange(KEYS)
        value = None if self._chance.random() < TOMBSTONES else f"{self.seed}-{self._count}".encode() * 4
        headers = [("n", str(self._count).encode()), ("h", None)] if self._count % 5 == 0 else []
        return ToSend(key % self._partitions, f"key-{key}".encode(), value, headers)

    def _delivered(self, error: object, message: Message, sent: Sent) -> None:
        if error is None:
            partition, offset = message.partition() or 0, message.offset() or 0
            self.acknowledged[partition, offset] = sent
            self._ends[partition] = offset + 1
        else:
            self.refused.append(str(error))
        self._under_way -= 1
