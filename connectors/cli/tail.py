"""`keyfold tail`: the records of a topic as they come, one JSON object a line."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final

import structlog
import typer
from msgspec import Struct

from connectors.cli.options import KeyOption, MaxOption, SomePartitionOption, WorkerOption, worker_of
from connectors.cli.output import JsonLines, Readable, readable
from connectors.clock import Clock, SystemClock
from connectors.errors import ConnectorError, NotAllowedError, UnreachableError, UsageError
from connectors.progress.observer import Interval

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

    from compactor.errors import KeyfoldError
    from connectors.config.worker import WorkerConfig

_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.2
_BATCH: Final = 500
_AWAY_AGAIN_S: Final = 30.0
_LOOK_EVERY_S: Final = 10.0
_LOOK_S: Final = 1.0
_SILENT_S: Final = 1.0
"""After so long (s) without a record it is said what is waited for: people take two seconds of silence for a fault."""
_COUNT_S: Final = 0.7
"""How long (s) the brokers are asked how many records there are, so that all is said within two seconds."""
_FINAL: Final = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "TOPIC_AUTHORIZATION_FAILED")

TopicArgument = Annotated[str, typer.Argument(help="The topic.", metavar="TOPIC")]
BeginningOption = Annotated[bool, typer.Option("--from-beginning", help="From the first record there is.")]

log = structlog.get_logger(__name__)


class TopicRecord(Struct, frozen=True):
    """A record of a topic; what is text appears as text, other bytes as `{"base64": …}`; times in ms."""

    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: Readable
    value: Readable
    headers: tuple[tuple[str, Readable], ...]


def tail(
    topic: TopicArgument,
    from_beginning: BeginningOption = False,
    partition: SomePartitionOption = None,
    key: KeyOption = None,
    limit: MaxOption = None,
    worker: WorkerOption = None,
) -> None:
    """Prints the committed records of TOPIC as they come, until Ctrl-C or --max; joins no consumer group."""
    config = worker_of(worker)
    signal.signal(signal.SIGTERM, _interrupt)
    with suppress(KeyboardInterrupt), closing(_consumer(config)) as consumer:  # Ctrl-C is the way to end it
        numbers = chosen(topic, partitions(consumer, topic), partition)
        assign(consumer, topic, numbers, from_beginning=from_beginning)
        notice = WaitingNotice(consumer, topic, numbers, SystemClock(), from_beginning=from_beginning)
        follow(consumer, limit, key, TopicWatch(consumer, topic, SystemClock()).look, notice.polled)


class BrokerWarnings:
    """Warns, as librdkafka's `error_cb`, when every broker is away, and again every 30 s while it stays so."""

    def __init__(self, clock: Clock) -> None:
        self._times = Interval(clock, _AWAY_AGAIN_S)

    def __call__(self, error: KafkaError) -> None:
        """Logs `error` if it says that every broker is away."""
        if error.name() == "_ALL_BROKERS_DOWN" and self._times.ready(error.name()):
            log.warning("no broker answers, reading goes on once one does", error=error.str())


class WaitingNotice:
    """Says once on stderr that `tail` waits, when no record has come for a second: a silent end looks like a fault."""

    def __init__(
        self, consumer: Consumer, topic: str, numbers: list[int], clock: Clock, *, from_beginning: bool
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._numbers = numbers
        self._clock = clock
        self._from_beginning = from_beginning
        self._since: float | None = clock.monotonic()
        """When the last record came, in monotonic seconds; None once it was said."""

    def polled(self, count: int) -> None:
        """Takes how many records a poll has brought."""
        if self._since is None:
            return
        now = self._clock.monotonic()
        if count:
            self._since = now
        elif now - self._since >= _SILENT_S:
            self._since = None
            typer.echo(waiting(self._topic, self._records(), from_beginning=self._from_beginning), err=True)

    def _records(self) -> int | None:
        """Counts the offsets of the partitions; None if brokers do not say it within COUNT_S."""
        from confluent_kafka import KafkaException, TopicPartition

        end, total = self._clock.monotonic() + _COUNT_S, 0
        for number in self._numbers:
            left = end - self._clock.monotonic()
            if left <= 0:
                return None
            try:
                marks: Any = self._consumer.get_watermark_offsets(TopicPartition(self._topic, number), timeout=left)
            except KafkaException:
                return None
            total += marks[1] - marks[0] if marks else 0
        return total


def waiting(topic: str, records: int | None, *, from_beginning: bool) -> str:
    """Returns the sentence that says what `tail` waits for, and how what is there is seen. `records`: offsets there."""
    if from_beginning:
        return f"No record has come for a second; waiting for more of {topic}. Ctrl-C ends it."
    if records == 0:
        return f"{topic} is empty; waiting for its first record. Ctrl-C ends it."
    there = "What is there already" if records is None else f"What is there already ({records:,} offsets)"
    return f"Waiting for new records of {topic}. {there} is printed with --from-beginning. Ctrl-C ends it."


class TopicWatch:
    """Looks now and then whether `topic` is still there: a consumer that is assigned to a deleted one reads on."""

    def __init__(self, consumer: Consumer, topic: str, clock: Clock) -> None:
        self._consumer = consumer
        self._topic = topic
        self._times = Interval(clock, _LOOK_EVERY_S)
        self._times.begin_pause(topic)
        self._missed = False

    def look(self) -> None:
        """Raises ConnectorError if two looks in a row found no such topic; brokers that are away say nothing."""
        from confluent_kafka import KafkaException

        from connectors.kafka.errors import MISSING

        if not self._times.ready(self._topic):
            return
        try:
            error = self._consumer.list_topics(self._topic, timeout=_LOOK_S).topics[self._topic].error
        except KafkaException:
            return
        missing = error is not None and error.code() in MISSING
        if missing and self._missed:
            raise ConnectorError(f"Topic {self._topic} was deleted: {error.str()}.", "Check the topic.")
        self._missed = missing


def follow(
    consumer: Consumer,
    limit: int | None,
    key: str | None = None,
    look: Callable[[], None] = lambda: None,
    polled: Callable[[int], None] = lambda _: None,
) -> None:
    """Writes what `consumer` is assigned to stdout, each poll at once; ends after `limit` records.

    With `key` only records that have it are written and counted. `look` is called after each poll, to raise if reading
    on makes no sense, and `polled` with the number of records that it has brought.
    """
    out = JsonLines()
    wanted = None if key is None else key.encode()
    left = limit
    while (left is None or left > 0) and out.read_on:
        count = _BATCH if left is None or wanted is not None else min(_BATCH, left)
        messages = list(_good(consumer.consume(count, timeout=_POLL_S)))
        matching = [message for message in messages if wanted is None or message.key() == wanted][:left]
        out.write([line(message) for message in matching])
        out.flush()
        left = None if left is None else left - len(matching)
        polled(len(messages))
        look()


def line(message: Message) -> TopicRecord:
    """Returns `message` as it is shown; header names that are not UTF-8 as one header that says so."""
    from compactor.model.record import TIMESTAMP_TYPES
    from connectors.kafka.consumers import headers_of

    kind, timestamp = message.timestamp()
    headers, odd = headers_of(message)
    named: Any = headers if odd is None else [(f"({odd})", None)]
    return TopicRecord(
        partition=_known(message.partition()),
        offset=_known(message.offset()),
        timestamp=timestamp,
        timestamp_type=TIMESTAMP_TYPES[kind - 1],
        key=readable(message.key()),
        value=readable(message.value()),
        headers=tuple((name, readable(value)) for name, value in named),
    )


def partitions(consumer: Consumer, topic: str) -> list[int]:
    """Lists the partitions of `topic`.

    Raises UsageError if it does not exist, NotAllowedError if it may not be read, UnreachableError if no
    broker answers or one cannot say it at the moment.
    """
    from confluent_kafka import KafkaException

    from connectors.kafka.errors import cause

    try:
        metadata = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
    except KafkaException as error:
        raise UnreachableError(
            f"No broker answered within {_TIMEOUT_S:.0f} s: {cause(error).str()}.",
            "Check bootstrap.servers in the worker file, and that the broker runs.",
        ) from error
    if metadata.error is not None:
        raise refused(topic, metadata.error)
    return sorted(metadata.partitions)


def refused(topic: str, error: KafkaError) -> KeyfoldError:
    """Returns the error for what a broker answered about `topic`: not there, not allowed, or not at the moment."""
    from confluent_kafka import KafkaError

    from connectors.kafka.errors import MISSING, NOT_ALLOWED

    what = f"Topic {topic}: {error.str()}."
    if error.code() in MISSING or error.code() == KafkaError.TOPIC_EXCEPTION:
        return UsageError(what, "Check its name, and bootstrap.servers.")
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


def assign(consumer: Consumer, topic: str, numbers: list[int], *, from_beginning: bool) -> None:
    """Makes `consumer` read the partitions `numbers` of `topic`, from their start or their last stable offset."""
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

    start = OFFSET_BEGINNING if from_beginning else OFFSET_END
    consumer.assign([TopicPartition(topic, number, start) for number in numbers])


def _consumer(config: WorkerConfig) -> Consumer:
    """Returns a consumer that the brokers let in. Raises UnreachableError if they do not."""
    from confluent_kafka import Consumer

    from connectors.config.clients import client_config
    from connectors.kafka.probe import probe

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
    return Consumer({**settings, "error_cb": BrokerWarnings(SystemClock())})


def _good(messages: list[Message]) -> Iterator[Message]:
    """Yields `messages` without the errors from which librdkafka recovers; raises ConnectorError for another one."""
    for message in messages:
        error = message.error()
        if error is None:
            yield message
        elif error.fatal() or error.name() in _FINAL:
            raise ConnectorError(f"Topic {message.topic()} cannot be read any more: {error.str()}.", "Check the topic.")
        else:
            log.warning("reading is disturbed, it goes on by itself", error=error.str())


def _known(number: int | None) -> int:
    assert number is not None, "a consumed record has a partition and an offset"
    return number


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
