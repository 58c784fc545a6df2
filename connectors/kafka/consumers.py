"""Makes consumers that read given offsets of given partitions, keeps them between uses, and reads messages' headers.

They never join a group: librdkafka asks for a `group.id` before it lets a consumer assign. A Python worker of Spark may
live through many micro-batches, so a finished consumer is kept for the next task with the same settings; if none is
kept, a new one is made. One that was not used for some minutes is closed: its connector may be gone, or have other
settings now.

confluent-kafka decodes the names of headers when they are first asked for. One that is not UTF-8 leaves an exception
pending and hands out a list with a null pointer in it, then and later: whatever touches that ends the process. Python
finds the exception if C calls the method, as here, but not always if its own bytecode does. So each message is
asked once, and by C. (A name with a NUL is cut off there, as it is a C string to librdkafka; nothing shows that.)
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from operator import methodcaller
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from compactor.model import record
from connectors.clock import SYSTEM_CLOCK, Clock, Deadline
from connectors.errors import UnreachableError
from connectors.kafka.admin import OFFSETS_A_CALL, Admin, chunks
from connectors.kafka.client_log import logged
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.errors import cause
from connectors.kafka.message_queue import MessageQueue, open_queue
from connectors.kafka.retry import poll_until

Headers = list[tuple[str, bytes | None]]

KEPT_MS: Final = 300_000
"""How long an unused consumer is kept."""
# How long (s) librdkafka may take to stop an old assignment; a consumer that takes longer is closed.
_STOPPED_S: Final = 10.0
# Between two looks (s) at an assignment that is about to stop: each new assignment waits for that.
_POLL_S: Final = 0.001
_SHOWN: Final = 100
"""Bytes of a header's name that are shown: it may be as long as a record, and stands in each rejected one."""
_ask_headers: Final = methodcaller("headers")


class AssignedConsumer:
    """A consumer that is assigned its offsets, and an admin client of the same connector, made when first used.

    `request_s`: how long one request of the admin client may take.
    """

    def __init__(self, clients: ClientSettings, request_s: float) -> None:
        self._clients = clients
        self._request_s = request_s
        # What `pause` has paused since the last assignment; `assign` resumes it.
        self._paused: list[TopicPartition] = []
        # Has the messages of all that is assigned, if it was assigned `at_once`; the consumer has everything else.
        self.queue: MessageQueue | None = None
        # Whether anything was ever assigned to `consumer`: it takes no queue any more.
        self._is_used = False
        self.consumer = Consumer(logged(clients.consumer()))

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Delivers nothing more of `partitions`, until the next assignment."""
        self._paused.extend(partitions)
        self.consumer.pause(partitions)

    def assign(self, partitions: list[TopicPartition], *, at_once: bool = False) -> None:
        """Assigns only `partitions`, from their offsets on; resumes those paused, as a pause outlives its assignment.

        `at_once`: many messages are to be taken at once, by `queue`, if the library is one with which that is known.

        librdkafka stops the old assignment on a thread of its own: until then its messages are still taken for
        the new one's, and its positions answered. `unassign` first puts that stop ahead of the new start, and no
        partition may answer a position before anything of it was delivered. Raises UnreachableError otherwise.
        """
        if self.queue is not None or (at_once and self._is_used):
            self._begin_again()
        if self._paused:  # not all: librdkafka waits for each, and Python with it
            self.consumer.resume(self._paused)
            self._paused = []
        self.consumer.unassign()
        if not partitions:
            return
        self._is_used = True
        if at_once:
            self.queue = open_queue(self.consumer, partitions)
        self.consumer.assign(partitions)
        positions = poll_until(_stopped, lambda: self.consumer.position(partitions), _STOPPED_S, _POLL_S)
        if not _stopped(positions):
            raise UnreachableError(
                f"A consumer did not give up {partitions[0].topic}-{partitions[0].partition}'s old assignment.",
                "The range is read again with a new consumer.",
            )

    @cached_property
    def admin(self) -> Admin:
        """The admin client, for what a consumer cannot ask: topic ids, and many offsets at once."""
        return Admin(self._clients.admin(), self._request_s)

    def close(self) -> None:
        """Closes the connections."""
        self._close_queue()  # librdkafka waits for it
        self.consumer.close()
        if "admin" in self.__dict__:  # it was made
            self.admin.close()

    def _begin_again(self) -> None:
        """Puts a new consumer in the place of one that has or cannot have a queue."""
        self._close_queue()
        self.consumer.close()
        self._paused, self._is_used = [], False
        self.consumer = Consumer(logged(self._clients.consumer()))

    def _close_queue(self) -> None:
        queue, self.queue = self.queue, None
        if queue is not None:
            queue.close()


class _Kept(NamedTuple):
    """A consumer that waits for its next task, since a time (monotonic ms)."""

    consumer: AssignedConsumer
    since_ms: int


class ConsumerPool:
    """Consumers that wait for their next task, for at most KEPT_MS. Threads may share it."""

    def __init__(
        self,
        make: Callable[[ClientSettings, float], AssignedConsumer] = AssignedConsumer,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._make = make
        self._clock = clock
        # By `_key`; changed under the lock alone.
        self._idle: dict[str, list[_Kept]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def borrowed(self, clients: ClientSettings, request_s: float, share: str = "") -> Iterator[AssignedConsumer]:
        """Yields a kept or new consumer; keeps it for the next task, or closes it if the block raises.

        `share` names what the consumer reads if several share the partitions: none is given to another's.
        """
        key = _key(clients, request_s, share)
        consumer = self._take(key) or self._make(clients, request_s)
        try:
            yield consumer
            consumer.assign([])
        except BaseException:
            consumer.close()
            raise
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            self._idle.setdefault(key, []).append(_Kept(consumer, now_ms))
        self.close_idle(now_ms - KEPT_MS)

    def close_idle(self, before_ms: float = float("inf")) -> None:
        """Closes the consumers that were not used since `before_ms` (monotonic), or all that wait."""
        with self._lock:
            old = [entry.consumer for kept in self._idle.values() for entry in kept if entry.since_ms < before_ms]
            left = {key: [entry for entry in kept if entry.since_ms >= before_ms] for key, kept in self._idle.items()}
            self._idle = {key: kept for key, kept in left.items() if kept}
        for consumer in old:
            consumer.close()

    def idle(self) -> list[AssignedConsumer]:
        """Returns those that wait for a task."""
        with self._lock:
            return [entry.consumer for kept in self._idle.values() for entry in kept]

    def _take(self, key: str) -> AssignedConsumer | None:
        with self._lock:
            kept = self._idle.get(key)
            return kept.pop().consumer if kept else None


POOL: Final = ConsumerPool()
"""The consumers of this process."""
borrowed: Final = POOL.borrowed
close_idle: Final = POOL.close_idle


def _key(clients: ClientSettings, request_s: float, share: str) -> str:
    """Returns the key of kept consumers, by process too: librdkafka's threads do not live through a fork."""
    return json.dumps([os.getpid(), clients.consumer(), clients.admin(), request_s, share], sort_keys=True)


def _stopped(positions: list[TopicPartition]) -> bool:
    """Returns whether no partition answers a position of an older assignment."""
    return all(position.offset < 0 for position in positions)


def headers_of_all(messages: Iterable[Message]) -> tuple[list[Any], dict[int, str]]:
    """Returns the headers of each message, None if it has none, and by index why a message's are unreadable."""
    headers: list[Any] = []
    odd: dict[int, str] = {}
    asked = map(_ask_headers, messages)
    while True:
        try:
            headers.extend(asked)  # what came before an error stays in the list
        except (SystemError, UnicodeDecodeError) as error:
            odd[len(headers)] = _reason(error)
            headers.append(None)
        else:
            return headers, odd


def headers_of(message: Message) -> tuple[Headers, str | None]:
    """Returns one message's headers, an empty list if they are unreadable, and why they are."""
    (headers,), odd = headers_of_all([message])
    return headers or [], odd.get(0)


def _reason(error: BaseException) -> str:
    """Returns why the headers are unreadable, with the header's name as far as it is known."""
    decoding = error if isinstance(error, UnicodeDecodeError) else error.__cause__
    name = f"{decoding.object[:_SHOWN]!r} " if isinstance(decoding, UnicodeDecodeError) else ""
    return f"a header name {name}is not UTF-8"


def latest_offsets(
    consumer: Consumer, partitions: Collection[record.TopicPartition], seconds: float
) -> dict[record.TopicPartition, int | KafkaError]:
    """Asks once, for at most `seconds`, for the end of each partition; a negative one is no answer.

    The end is the last stable offset to a read_committed `consumer`, the high watermark to a read_uncommitted one; it
    reads nothing for this. An admin client makes a future for each partition, which takes five times the processor
    time; but it answers for each, while here an error of one partition is the answer for all of them (librdkafka's
    `rd_kafka_offsets_for_times`).
    """
    try:
        return _by_partition(_asked(consumer, _ends_of(partitions), seconds))
    except KafkaException as error:
        return dict.fromkeys(partitions, cause(error))


class RepeatedEnds:
    """Asks `consumer` again and again for the ends that `latest_offsets` returns; one thread may use it.

    As long as no end moves the answer is the same object, so that an idle worker need not look at each partition.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        # What was asked last, as the caller and as librdkafka has it.
        self._partitions: Collection[record.TopicPartition] = ()
        self._wanted: list[TopicPartition] = []
        # The offsets of the last answer in librdkafka's order, which is that of the question; none if one had an error.
        self._offsets: list[int] = []
        self._ends: dict[record.TopicPartition, int | KafkaError] = {}

    def ask(
        self, partitions: Collection[record.TopicPartition], seconds: float
    ) -> dict[record.TopicPartition, int | KafkaError]:
        """Returns the end of each partition, see `latest_offsets`; `partitions` is not changed by its caller."""
        if partitions is not self._partitions:
            self._partitions, self._wanted, self._offsets = partitions, _ends_of(partitions), []
        try:
            answers = _asked(self._consumer, self._wanted, seconds)
        except KafkaException as error:
            self._offsets = []
            return dict.fromkeys(partitions, cause(error))
        offsets, has_failed = [answer.offset for answer in answers], any(answer.error for answer in answers)
        if has_failed or offsets != self._offsets:
            self._offsets, self._ends = [] if has_failed else offsets, _by_partition(answers)
        return self._ends


def _ends_of(partitions: Iterable[record.TopicPartition]) -> list[TopicPartition]:
    return [TopicPartition(*tp, OFFSET_END) for tp in partitions]


def _asked(consumer: Consumer, wanted: Sequence[TopicPartition], seconds: float) -> list[TopicPartition]:
    """Returns the brokers' answers. Raises KafkaException."""
    deadline = Deadline(seconds)
    parts = (
        consumer.offsets_for_times(list(some), max(_POLL_S, deadline.left_s)) for some in chunks(wanted, OFFSETS_A_CALL)
    )
    return [answer for part in parts for answer in part]


def _by_partition(answers: Iterable[TopicPartition]) -> dict[record.TopicPartition, int | KafkaError]:
    return {
        record.TopicPartition(answer.topic, answer.partition): answer.error or int(answer.offset) for answer in answers
    }


def every_latest_offset(
    consumer: Consumer,
    partitions: Collection[record.TopicPartition],
    seconds: float,
    otherwise: Callable[[Collection[record.TopicPartition]], dict[record.TopicPartition, int]],
) -> dict[record.TopicPartition, int]:
    """Returns what `latest_offsets` does; if a partition has no answer, `otherwise` asks, and says what is wrong."""
    answers = latest_offsets(consumer, partitions, seconds) if partitions else {}
    ends = {place: end for place, end in answers.items() if isinstance(end, int) and end >= 0}
    return ends if len(ends) == len(partitions) else otherwise(partitions)
