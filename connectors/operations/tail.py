"""Reads the committed records of a topic as they come: `keyfold tail`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import Any, Final

import structlog
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from compactor.errors import KeyfoldError
from connectors.clock import Clock
from connectors.config.clients.merged import client_config
from connectors.config.worker import WorkerConfig
from connectors.errors import ConnectorError, NotAllowedError, UnreachableError, UsageError
from connectors.kafka.broker_text import broker_text
from connectors.kafka.client_log import logged
from connectors.kafka.errors import MISSING, NOT_ALLOWED, cause
from connectors.kafka.probe import probe
from connectors.progress.observer import Interval

_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.2
_BATCH: Final = 500
_AWAY_AGAIN_MS: Final = 30_000
_LOOK_EVERY_MS: Final = 10_000
_LOOK_S: Final = 1.0
_SILENT_MS: Final = 1_000
"""After so long without a record it is said that more is waited for: people take two seconds of silence for a fault."""
_COUNT_MS: Final = 700
"""How long the brokers are asked how many records there are: a person takes a second of silence for a fault."""
_FINAL: Final = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "TOPIC_AUTHORIZATION_FAILED")

Begun = Callable[[int | None], object]
"""Is told once, before the first record, how many offsets are there; None if brokers do not say it."""
Silent = Callable[[], object]
"""Is called once, when no record has come for a second."""

log = structlog.get_logger(__name__)


def tail(
    worker: WorkerConfig,
    topic: str,
    clock: Clock,
    begun: Begun,
    silent: Silent,
    partition: int | None = None,
    key: str | None = None,
    limit: int | None = None,
    *,
    from_beginning: bool = False,
) -> Generator[list[Message], None, None]:
    """Yields what each poll of `topic` brings, without end or up to `limit` records; joins no consumer group.

    Only what a `read_committed` consumer sees: from the end that the topic has now, or `from_beginning`, of all
    partitions or of `partition`, all records or those with `key`. Raises UsageError if there is no such topic or
    partition, NotAllowedError, UnreachableError; ConnectorError if the topic is gone later.
    """
    with closing(_consumer(worker, clock)) as consumer:
        numbers = chosen(topic, partitions(consumer, topic), partition)
        start = OFFSET_BEGINNING if from_beginning else OFFSET_END
        consumer.assign([TopicPartition(topic, number, start) for number in numbers])
        begun(count_offsets(consumer, [TopicPartition(topic, number) for number in numbers], clock))
        yield from follow(consumer, limit, key, TopicWatch(consumer, topic, clock).look, Silence(clock, silent).polled)


def follow(
    consumer: Consumer,
    limit: int | None,
    key: str | None = None,
    look: Callable[[], None] = lambda: None,
    polled: Callable[[int], None] = lambda _: None,
) -> Iterator[list[Message]]:
    """Yields the records of each poll of what `consumer` is assigned; ends after `limit` records.

    With `key` only records that have it are yielded and counted. `look` is called after each poll, to raise if reading
    on makes no sense, and `polled` with the number of records that it has brought.
    """
    wanted = None if key is None else key.encode()
    left = limit
    while left is None or left > 0:
        count = _BATCH if left is None or wanted is not None else min(_BATCH, left)
        messages = list(_good(consumer.consume(count, timeout=_POLL_S)))
        matching = [message for message in messages if wanted is None or message.key() == wanted][:left]
        yield matching
        left = None if left is None else left - len(matching)
        polled(len(messages))
        look()


def partitions(consumer: Consumer, topic: str) -> list[int]:
    """Lists the partitions of `topic`.

    Raises UsageError if it does not exist, NotAllowedError if it may not be read, UnreachableError if no
    broker answers or one cannot say it at the moment.
    """
    try:
        metadata = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
    except KafkaException as error:
        raise UnreachableError(
            f"No broker answered within {_TIMEOUT_S:.0f} s: {broker_text(cause(error))}.",
            "Check bootstrap.servers in the worker file, and that the broker runs.",
        ) from error
    if metadata.error is not None:
        raise refused(topic, metadata.error)
    return sorted(metadata.partitions)


def refused(topic: str, error: KafkaError) -> KeyfoldError:
    """Returns the error for what a broker answered about `topic`: not there, not allowed, or not at the moment."""
    if error.code() in MISSING:
        return UsageError(f"Topic {topic} does not exist.", "Check its name, and bootstrap.servers of the worker file.")
    what = f"Topic {topic}: {broker_text(error)}."
    if error.code() == KafkaError.TOPIC_EXCEPTION:
        return UsageError(what, "Check its name.")
    if error.code() in NOT_ALLOWED:
        return NotAllowedError(what, f"Grant the principal Read and Describe on topic {topic} (kafka-acls.sh --add).")
    return UnreachableError(what, "Try it again in a moment.")


def chosen(topic: str, numbers: list[int], partition: int | None) -> list[int]:
    """Returns the partitions, of `numbers`, that are asked for. Raises UsageError if `topic` has no such one."""
    if partition is None:
        return numbers
    if partition not in numbers:
        raise UsageError(f"Topic {topic} has no partition {partition}.", f"It has {len(numbers)}, from 0.")
    return [partition]


class BrokerWarnings:
    """Warns, as librdkafka's `error_cb`, when every broker is away, and again every 30 s while it stays so."""

    def __init__(self, clock: Clock) -> None:
        self._times = Interval(clock, _AWAY_AGAIN_MS)

    def __call__(self, error: KafkaError) -> None:
        """Logs `error` if it says that every broker is away."""
        if error.name() == "_ALL_BROKERS_DOWN" and self._times.ready(error.name()):
            log.warning("no broker answers, reading goes on once one does", error=broker_text(error))


def count_offsets(consumer: Consumer, partitions: Iterable[TopicPartition], clock: Clock) -> int | None:
    """Counts the offsets of `partitions`; None if brokers do not say it within _COUNT_MS."""
    until_ms, total = clock.monotonic_ms() + _COUNT_MS, 0
    for partition in partitions:
        left_ms = until_ms - clock.monotonic_ms()
        if left_ms <= 0:
            return None
        try:
            marks: Any = consumer.get_watermark_offsets(partition, timeout=left_ms / 1000)
        except KafkaException:
            return None
        total += marks[1] - marks[0] if marks else 0
    return total


class Silence:
    """Calls `silent` once, when no record has come for a second: a silent end looks like a fault."""

    def __init__(self, clock: Clock, silent: Silent) -> None:
        self._clock = clock
        self._silent = silent
        # When (monotonic ms) the last record came; None once it was said.
        self._since_ms: int | None = clock.monotonic_ms()

    def polled(self, count: int) -> None:
        """Takes how many records a poll has brought."""
        if self._since_ms is None:
            return
        now_ms = self._clock.monotonic_ms()
        if count:
            self._since_ms = now_ms
        elif now_ms - self._since_ms >= _SILENT_MS:
            self._since_ms = None
            self._silent()


class TopicWatch:
    """Looks now and then whether `topic` is still there: a consumer that is assigned to a deleted one reads on."""

    def __init__(self, consumer: Consumer, topic: str, clock: Clock) -> None:
        self._consumer = consumer
        self._topic = topic
        self._times = Interval(clock, _LOOK_EVERY_MS)
        self._times.begin_pause(topic)
        self._missed = False

    def look(self) -> None:
        """Raises ConnectorError if two looks in a row found no such topic; brokers that are away say nothing."""
        if not self._times.ready(self._topic):
            return
        try:
            error = self._consumer.list_topics(self._topic, timeout=_LOOK_S).topics[self._topic].error
        except KafkaException:
            return
        missing = error is not None and error.code() in MISSING
        if missing and self._missed:
            raise ConnectorError(f"Topic {self._topic} was deleted: {broker_text(error)}.", "Check the topic.")
        self._missed = missing


def _consumer(config: WorkerConfig, clock: Clock) -> Consumer:
    """Returns a consumer that the brokers let in. Raises UnreachableError if they do not."""
    pinned = {
        "group.id": "keyfold-tail",  # librdkafka asks for one before it lets a consumer assign; it joins none
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": False,
    }
    quiet = {"log_level": 0}  # errors are reported in our own words; librdkafka repeats its own ten times a second
    settings = client_config("consumer", config, None, pinned, quiet)
    probe("consumer", settings, _TIMEOUT_S)
    return Consumer(logged({**settings, "error_cb": BrokerWarnings(clock)}))


def _good(messages: list[Message]) -> Iterator[Message]:
    """Yields `messages` without the errors from which librdkafka recovers; raises ConnectorError for another one."""
    for message in messages:
        error = message.error()
        if error is None:
            yield message
        elif error.fatal() or error.name() in _FINAL:
            raise ConnectorError(
                f"Topic {message.topic()} cannot be read any more: {broker_text(error)}.", "Check the topic."
            )
        else:
            log.warning("reading is disturbed, it goes on by itself", error=broker_text(error))
