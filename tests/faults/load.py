"""Produces a steady load and records every record that the broker has acknowledged."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from types import TracebackType
from typing import Final, NamedTuple, Self
from uuid import uuid4

from confluent_kafka import Message, Producer

from connectors.clock import SystemClock
from tests.support.kafka import TIMEOUT_S, Headers, ToSend, wait_until

KEYS: Final = 120
REPEATED: Final = 5
"""Each record of so many says what the one before it of its key has said."""
RATE: Final = 100
"""Records per second."""
TOMBSTONES: Final = 0.1
SPELLINGS: Final = (b'{"id":%d}', b'{"id": %d}', b'{"id":%d.0}')
"""Keys of different bytes that are the same JSON."""
LATE_MS: Final = 2_000
"""How much older a record that comes late is than those about it: more than a micro-batch takes."""
GONE: Final = b"__debezium_unavailable_value"
"""Debezium's placeholder for a field that a change does not have."""
# A broker may be away for minutes: until it is back the records wait, in their order and without a second copy.
_PATIENT: Final = {
    "enable.idempotence": True,
    "message.timeout.ms": 900_000,
    "linger.ms": 5,
    "reconnect.backoff.max.ms": 500,
    "log_level": 0,
}


def number_of(key: bytes | None) -> bytes | None:
    """Returns the number that a key has in each of its spellings."""
    return None if key is None else b"%d" % json.loads(key)["id"]


class Sent(NamedTuple):
    """A record as it was sent."""

    key: bytes | None
    value: bytes | None
    headers: Headers


class TopicRecords:
    """The records of one topic: makes them by chance, and remembers which of them the broker has taken.

    Every key has one of `partitions`, or, if it `wanders`, another one each time. With `fills` values are JSON, and
    every second one has a placeholder if all earlier records of its key are acknowledged: it is known what fills it.
    With `spells` keys are JSON, each time in another spelling. With `late` every ninth record is older than it should.
    `acknowledged` has (partition, offset) → record of all that the broker has taken; `refused` the errors of those that
    it never will; `under_way` counts those of which it is not known yet.
    """

    def __init__(
        self,
        topic: str,
        seed: int,
        partitions: int = 2,
        *,
        wanders: bool = False,
        fills: bool = False,
        spells: bool = False,
        late: bool = False,
    ) -> None:
        self.acknowledged: dict[tuple[int, int], Sent] = {}
        self.refused: list[str] = []
        self.under_way = 0
        self.topic = topic
        self._seed = seed
        self.partitions = partitions
        # Whether every seventh record has headers.
        self.has_headers = True
        self._wanders = wanders
        self._fills = fills
        self._spells = spells
        self._late = late
        self._chance = random.Random(seed)
        self._ends: dict[int, int] = {}
        self._count = 0
        # By key the value and headers that were sent last.
        self._last: dict[int, tuple[bytes | None, Headers]] = {}
        # How many records of each key are under way; `send` adds, `_delivered` takes.
        self._waiting: Counter[bytes | None] = Counter()

    def ends(self) -> dict[int, int]:
        """Returns partition → the offset after the last acknowledged record."""
        return dict(self._ends)

    def send(self, producer: Producer, keys: int = KEYS) -> bool:
        """Produces the next record, of one of so many keys; returns False if the producer's queue is full."""
        record = self._next(keys)
        sent = Sent(record.key, record.value, record.headers)
        self.under_way += 1
        self._waiting[sent.key] += 1
        try:
            producer.produce(
                self.topic,
                record.value,
                record.key,
                record.partition,
                headers=list(record.headers),
                timestamp=record.timestamp_ms or 0,
                on_delivery=lambda error, message: self._delivered(error, message, sent),
            )
        except BufferError:
            self.under_way -= 1
            self._waiting[sent.key] -= 1
            return False
        producer.poll(0)
        return True

    def _next(self, keys: int) -> ToSend:
        self._count += 1
        key = self._chance.randrange(keys)
        value = None if self._chance.random() < TOMBSTONES else f"{self._seed}-{self._count}".encode() * 4
        headers = [("n", str(self._count).encode()), ("h", None)] if self.has_headers and self._count % 7 == 0 else []
        if self._fills and value is not None:
            is_known = not self._waiting[f"key-{key}".encode()]
            text = GONE if is_known and self._count % 2 else value
            value = b'{"n":%d,"text":"%b"}' % (self._count, text)
        if self._fills or self._count % REPEATED or key not in self._last:
            self._last[key] = value, headers
        partition = self._chance.randrange(self.partitions) if self._wanders else key % self.partitions
        spelling = self._chance.choice(SPELLINGS) if self._spells else b"key-%d"
        time_ms = SystemClock().now_ms() - LATE_MS if self._late and self._count % 9 == 0 else None
        return ToSend(partition, spelling % key, *self._last[key], time_ms)

    def _delivered(self, error: object, message: Message, sent: Sent) -> None:
        if error is None:
            partition, offset = message.partition() or 0, message.offset() or 0
            self.acknowledged[partition, offset] = sent
            self._ends[partition] = offset + 1
        else:
            self.refused.append(str(error))
        self.under_way -= 1
        self._waiting[sent.key] -= 1


class Sender:
    """Sends the records of `topics` in turn, `rate` records/s in all, from one thread with one producer.

    As a context manager.
    """

    def __init__(self, bootstrap: str, topics: Sequence[TopicRecords], rate: float) -> None:
        self._bootstrap = bootstrap
        self._topics = topics
        self._rate = rate
        self._producer = Producer({"bootstrap.servers": bootstrap, **_PATIENT})
        self._running = threading.Event()
        self._resting = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="load", daemon=True)

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

    def burst(self, count: int, keys: int) -> None:
        """Sends `count` records of so many keys to each topic in one transaction, so that all are visible at once.

        To be called while it is paused.
        """
        name = f"burst-{uuid4().hex}"
        producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": name, "log_level": 0})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        for one in self._topics:
            for _ in range(count):
                while not one.send(producer, keys):
                    producer.poll(0.02)
        producer.commit_transaction(TIMEOUT_S)

    def pause(self, timeout_s: float = 120.0) -> None:
        """Stops sending; returns once everything sent is acknowledged or refused."""
        self._running.clear()
        wait_until(self._is_silent, "all that was sent is acknowledged", timeout_s)

    def resume(self) -> None:
        """Sends again."""
        self._running.set()

    def _is_silent(self) -> bool:
        return self._resting.is_set() and all(one.under_way == 0 for one in self._topics)

    def _work(self) -> None:
        """Sends in the only thread that uses the producer, so that callbacks run in it too."""
        turns = cycle(self._topics)
        while not self._ended.is_set():
            self._resting.clear()
            began, sent = time.monotonic(), 0
            while self._topics and self._running.is_set() and not self._ended.is_set():
                if sent > (time.monotonic() - began) * self._rate or not next(turns).send(self._producer):
                    self._producer.poll(0.02)
                else:
                    sent += 1
            self._resting.set()
            self._producer.poll(0.02)


class Load(Sender):
    """Sends records to one topic at a steady `rate` (records/s).

    See TopicRecords for its `kinds`, and for `acknowledged` and `refused`.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        seed: int,
        rate: float = RATE,
        partitions: int = 2,
        **kinds: bool,
    ) -> None:
        self._records = TopicRecords(topic, seed, partitions, **kinds)
        super().__init__(bootstrap, [self._records], rate)
        self.acknowledged = self._records.acknowledged
        self.refused = self._records.refused

    def ends(self) -> dict[int, int]:
        """Returns partition → the offset after the last acknowledged record."""
        return self._records.ends()

    def leave_headers_out(self) -> None:
        """Sends no headers from now on: of records that have any, each is read by itself."""
        self._records.has_headers = False

    def spread(self, partitions: int) -> None:
        """Spreads the keys over so many partitions from now on, which the topic has."""
        known = self._producer.list_topics(self._records.topic, TIMEOUT_S).topics[self._records.topic].partitions
        assert len(known) == partitions
        self._records.partitions = partitions
