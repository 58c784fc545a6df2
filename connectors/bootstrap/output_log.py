"""Reads the output topic on from a position: its records by poll, and whether it still is the topic that it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Partition
from msgspec.structs import replace

from compactor.model.record import TopicPartition
from compactor.snapshot.manifest import iso
from connectors.bootstrap.freshness import ReadProgress, ReadTime
from connectors.bootstrap.position import BEGIN_AGAIN, ReaderPosition, deadline_ms, retention_ms
from connectors.clock import SYSTEM_CLOCK, Clock
from connectors.errors import ResumeError, UnreachableError
from connectors.kafka.admin import Admin, described
from connectors.kafka.broker_text import broker_text
from connectors.kafka.client_log import logged
from connectors.kafka.client_settings import CONSUMER_DEFAULTS, CONSUMER_PINNED, Setting
from connectors.kafka.consumers import latest_offsets
from connectors.kafka.errors import MISSING, NOT_ALLOWED, reading
from connectors.kafka.probe import probe

_log = structlog.get_logger(__name__)

MOST: Final = 10_000
"""Records of a poll at most."""
_CONNECT_S: Final = 10.0
# How long (s) one request for the topic or its ends may take: nothing is read meanwhile.
_REQUEST_S: Final = 3.0
# Between two looks (ms) at the topic, and two questions for its ends.
LOOK_MS: Final = 1_000
_OWN: Final[dict[str, Setting]] = {**CONSUMER_PINNED, "enable.partition.eof": True}
_DEFAULTS: Final[dict[str, Setting]] = {
    **CONSUMER_DEFAULTS,
    # It is kept for long, and mostly waits for what comes.
    "fetch.wait.max.ms": 500,
    # librdkafka asks for one before it lets a consumer assign; it joins none.
    "group.id": "keyfold-bootstrap",
}


class Clients(NamedTuple):
    """Settings of librdkafka by kind of client."""

    consumer: Mapping[str, Setting]
    admin: Mapping[str, Setting]


class Connections(NamedTuple):
    """The clients that read an output topic and ask for it."""

    consumer: Consumer
    admin: Admin


def connected(clients: Clients) -> Connections:
    """Makes the clients, once a broker has answered. Raises UnreachableError."""
    consumer: dict[str, Any] = {**_DEFAULTS, **clients.consumer, **_OWN}
    probe("consumer", consumer, _CONNECT_S)
    return Connections(Consumer(logged(consumer)), Admin(clients.admin, _REQUEST_S))


class OutputLog:
    """Reads an output topic from a position on, as a `read_committed` consumer sees it. For one thread.

    Raises UnreachableError if no broker answers at the start, and ResumeError, now or with any poll, if the reader
    cannot go on: the topic is gone or another one, what it reads next is gone, or the position is too old. After a poll
    that raised while it read, each poll raises ResumeError: the records that it had taken do not come again.
    """

    def __init__(
        self,
        clients: Clients,
        position: ReaderPosition,
        clock: Clock = SYSTEM_CLOCK,
        connect: Callable[[Clients], Connections] = connected,
    ) -> None:
        self._position = position
        self._clock = clock
        self._topic = position.output_topic
        self._settings = clients.consumer
        # The offset up to which each partition was delivered, markers included.
        self._reached: dict[int, int] = {}
        # Since when (both clocks) all that the output had is delivered.
        self.freshness = ReadProgress()
        # When (monotonic ms) the topic was looked at last; None if it is to be looked at with the next poll.
        self._looked_ms: int | None = None
        # How long (ms) the topic keeps tombstones; None for ever.
        self._tombstones_ms: int | None = None
        # Whether a poll has begun to read and not handed out what it took.
        self._is_torn = False
        self._consumer, self._admin = connect(clients)
        try:
            self._assign(self._look())
            self._check_age()
        except BaseException:
            self.close()
            raise

    def poll(self, timeout_s: float) -> list[Message]:
        """Returns the records that come within `timeout_s`, as soon as there are some; at most MOST."""
        if self._is_torn:
            raise ResumeError(
                f"A reader of output topic {self._topic} cannot be read on: an earlier poll failed, and records that "
                "it had taken do not come again.",
                f"Go on from the position that was stored last (resume). If there is none: {BEGIN_AGAIN}",
            )
        if self._looked_ms is None or self._clock.monotonic_ms() - self._looked_ms >= LOOK_MS:
            self._look_again()
        self._is_torn = True
        with reading(self._settings, f"Topic {self._topic}", self._topic):
            messages = self._consumer.consume(1, timeout_s)
            if messages:  # with more to wait for, librdkafka would wait for all of them
                messages += self._consumer.consume(MOST - 1, 0)
            records = [message for message in messages if self._is_record(message)]
            self._check_age()
            self._note(records)
        self._is_torn = False
        return records

    def ask_soon(self) -> None:
        """Has the next poll ask how far the output is, and sets no time for it otherwise. Threads may call it."""
        self._looked_ms = None

    def close(self) -> None:
        """Closes the connections."""
        self._consumer.close()
        self._admin.close()

    def _is_record(self, message: Message) -> bool:
        """Returns whether it is a record, and no event; raises what ends the reading."""
        error = message.error()
        if error is None:
            return True
        if error.code() == KafkaError._PARTITION_EOF:
            number, offset = _place(message)
            self._reached[number] = max(self._reached[number], offset)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            with suppress(UnreachableError):  # the offset is gone either way
                self._look()
            raise ResumeError(
                f"Output partition {self._topic}-{message.partition()} has no offset {message.offset()} any more: "
                f"{broker_text(error)}.",
                BEGIN_AGAIN,
            )
        elif error.code() in MISSING:  # of one broker at one moment: the next poll looks before it takes records
            self._looked_ms = None
        elif error.fatal() or error.code() in NOT_ALLOWED:
            raise KafkaException(error)
        else:
            _log.warning("reading is disturbed, it goes on by itself", error=broker_text(error))
        return False

    def _look_again(self) -> None:
        """Looks whether the topic is still the same, and asks how far it is; brokers that are away say nothing."""
        self._looked_ms = self._clock.monotonic_ms()
        now = ReadTime(self._clock.now_ms(), self._looked_ms)
        try:
            self._assign(self._look())
        except UnreachableError as error:
            _log.debug("the output topic cannot be looked at", topic=self._topic, reason=str(error))
            return
        if self.freshness.asked is None:
            places = [TopicPartition(self._topic, number) for number in self._reached]
            ends = latest_offsets(self._consumer, places, _REQUEST_S)
            known = {place.partition: end for place, end in ends.items() if isinstance(end, int) and end >= 0}
            if len(known) == len(places):
                self.freshness = self.freshness.ask(known, now)

    def _look(self) -> range:
        """Looks at the topic and its settings; returns the numbers of its partitions. Raises ResumeError."""
        info = described(self._admin.describe, [self._topic], known=[self._topic], clock=self._clock).get(self._topic)
        if info is None:
            raise ResumeError(f"Output topic {self._topic} does not exist any more.", f"Restore it. {BEGIN_AGAIN}")
        if info.id != self._position.output_topic_id:
            raise ResumeError(
                f"Output topic {self._topic} was recreated: its id is {info.id}, and the reader began with the topic "
                f"{self._position.output_topic_id}.",
                "Take a snapshot of the present topic (keyfold snapshot CONNECTOR.json), and begin again with it.",
            )
        self._tombstones_ms = retention_ms(self._admin.topic_config(self._topic))
        return range(info.partitions)

    def _assign(self, numbers: range) -> None:
        """Reads the partitions that are not read yet: from the position on, or from their start if they are new."""
        offsets = self._position.numbers
        new = {number: offsets.get(number, 0) for number in numbers if number not in self._reached}
        if new:
            self._consumer.incremental_assign([Partition(self._topic, *place) for place in new.items()])
            self._reached |= new

    def _check_age(self) -> None:
        """Raises ResumeError if tombstones may be gone that the reader would have had to see."""
        current = self.freshness.current
        position = self._position if current is None else replace(self._position, since_ms=current.wall_ms)
        until_ms, now_ms = deadline_ms(position, self._tombstones_ms), self._clock.now_ms()
        if until_ms is not None and now_ms > until_ms:
            raise ResumeError(
                f"A reader at this position of output topic {self._topic} could go on until {iso(until_ms)}, and it is "
                f"{iso(now_ms)}: the topic may have forgotten deletions since (delete.retention.ms).",
                f"{BEGIN_AGAIN} If that is too old, take one first: keyfold snapshot CONNECTOR.json.",
            )

    def _note(self, records: Sequence[Message]) -> None:
        """Takes what was delivered, and the consumer's positions, which pass the markers of transactions too."""
        self._reached |= {number: offset + 1 for number, offset in map(_place, records)}
        if self.freshness.asked is None:
            return
        behind = [number for number, end in self.freshness.ends.items() if self._reached[number] < end]
        with suppress(KafkaException):  # the next poll asks again
            for place in self._consumer.position([Partition(self._topic, number) for number in behind]):
                self._reached[place.partition] = max(self._reached[place.partition], place.offset)
        self.freshness = self.freshness.reach(self._reached)


def _place(message: Message) -> tuple[int, int]:
    """Returns the partition and the offset of a consumed message."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None, "what was consumed has a partition"
    assert offset is not None, "and an offset"
    return partition, offset
