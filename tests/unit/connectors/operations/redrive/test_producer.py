"""Letters go out in one transaction with the position; a queue that is full is waited for."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as RealProducer
from confluent_kafka import TopicPartition as Partition

from connectors.errors import ConflictError, NotAllowedError, RecordRefusedError, UnreachableError
from connectors.kafka import producers
from connectors.operations.redrive.letters import Letter
from connectors.operations.redrive.plan import RedriveTarget
from connectors.operations.redrive.producer import RedriveProducer, redrive_settings

LETTER = Letter(0, 5, 7, b"k", b"v", (), {})
TARGET = RedriveTarget("t", -1)
AT = Partition("dead", 0, 6, "said")


class Producer:
    """Has room for `room` records until it is polled with a time-out; answers the commit with `error`."""

    def __init__(self, room: int = 100, error: KafkaError | None = None, failure: KafkaError | None = None) -> None:
        self.room, self.error, self.failure = room, error, failure
        self.waiting = 0
        self.calls: list[str] = []

    def __len__(self) -> int:
        return self.waiting

    def begin_transaction(self) -> None:
        self.calls.append("begin")

    def produce(self, topic: str, value: bytes, key: bytes, partition: int, failed: Any, *_: object) -> None:
        if self.waiting >= self.room:
            raise BufferError
        self.waiting += 1
        self.calls.append(topic)
        if self.failure is not None:
            failed(self.failure, None)

    def poll(self, timeout_s: float) -> None:
        if timeout_s:
            self.waiting = 0

    def flush(self, _timeout: float) -> int:
        return 0

    def abort_transaction(self, _timeout: float) -> None:
        self.calls.append("abort")

    def send_offsets_to_transaction(self, positions: list[Partition], _metadata: object, _timeout: float) -> None:
        self.calls += [f"{one.topic}-{one.partition}@{one.offset}" for one in positions]

    def commit_transaction(self, _timeout: float) -> None:
        if self.error is not None:
            raise KafkaException(self.error)
        self.calls.append("commit")


class Member:
    """What of a consumer is asked."""

    def consumer_group_metadata(self) -> object:
        """Returns nothing of interest."""
        return None


@pytest.fixture
def sender() -> Any:
    """Makes a RedriveProducer over a prepared producer."""

    def make(producer: Any, **more: float) -> RedriveProducer:
        member: Any = Member()
        return RedriveProducer({}, "c-dlq", "keyfold-dlq-c", member, lambda _, **__: producer, **more)

    return make


def test_letters_and_position_are_one_transaction(sender: Any) -> None:
    """However many letters the queue takes at once."""
    producer = Producer(room=2)
    sender(producer).transaction(AT, [(LETTER, TARGET)] * 5)
    assert producer.calls == ["begin", *["t"] * 5, "dead-0@6", "commit"]


def test_a_letter_that_the_queue_never_takes_is_named(sender: Any) -> None:
    """With its size, and the setting."""
    with pytest.raises(RecordRefusedError, match="letter 0/5 of 2 bytes"):
        sender(Producer(room=0)).transaction(AT, [(LETTER, TARGET)])


def test_a_queue_that_stays_full_is_not_waited_for_without_end(sender: Any) -> None:
    """Brokers that take nothing are unreachable."""

    class Full(Producer):
        def poll(self, _: float) -> None:
            """Sends nothing."""

    with pytest.raises(UnreachableError):
        sender(Full(room=1), deadline_s=0.0).transaction(AT, [(LETTER, TARGET)] * 2)


def test_a_letter_that_is_refused_aborts_the_transaction(sender: Any) -> None:
    """Nothing of it is sent, and no position moves."""
    producer = Producer(failure=KafkaError(KafkaError._MSG_TIMED_OUT))
    with pytest.raises(UnreachableError):
        sender(producer).transaction(AT, [(LETTER, TARGET)])
    assert producer.calls == ["begin", "t", "abort"]


@pytest.mark.parametrize(
    ("code", "right"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "Grant Read on group keyfold-dlq-c "),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Grant Write on the source topics "),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Grant Write and Describe on the transactional ids "),
    ],
)
def test_a_right_that_is_missing_is_named(sender: Any, code: int, right: str) -> None:
    """With the group of redrives, which is not the connector's."""
    with pytest.raises(NotAllowedError) as raised:
        sender(Producer(error=KafkaError(code, txn_requires_abort=True))).transaction(AT, [(LETTER, TARGET)])
    assert raised.value.action.startswith(right)


def test_a_run_that_was_fenced_says_so(sender: Any) -> None:
    """Two redrives of one connector shut each other out."""
    with pytest.raises(ConflictError, match="Another redrive"):
        sender(Producer(error=KafkaError(KafkaError._FENCED, fatal=True))).transaction(AT, [(LETTER, TARGET)])


@pytest.mark.parametrize("inside_a_callback", [False, True])
def test_a_run_that_was_fenced_while_it_sends_says_so(sender: Any, inside_a_callback: bool) -> None:
    """A flush raises the error bare; as the cause of a SystemError where a callback comes behind it."""
    fenced: Any = KafkaError(KafkaError._FENCED, fatal=True)

    class Fenced(Producer):
        def flush(self, _timeout: float) -> int:
            if inside_a_callback:
                raise SystemError("a result with an exception set") from fenced
            raise fenced

    with pytest.raises(ConflictError, match="Another redrive"):
        sender(Fenced()).transaction(AT, [(LETTER, TARGET)])


def test_the_queue_takes_any_letter_and_keys_go_where_java_sends_them() -> None:
    """By itself librdkafka refuses what is beyond its queue, and chooses another partition."""
    found = redrive_settings({"bootstrap.servers": "127.0.0.1:1", "message.max.bytes": 1_000_000_000}, "c-dlq")
    assert found["partitioner"] == "murmur2_random"
    producer = RealProducer({name: one for name, one in found.items() if name != "transactional.id"} | {"log_level": 0})
    for _ in range(3):
        producer.produce("t", bytes(producers.QUEUE_BYTES))
    producer.purge()


@pytest.mark.parametrize(
    ("more", "quiet"), [({"log_level": 2}, True), ({"log_level": 6}, False), ({"log_level": 2, "debug": "eos"}, False)]
)
def test_the_clients_own_lines_are_shown_only_where_they_were_asked_for(more: Any, quiet: bool) -> None:
    """What goes wrong is raised: the line of a producer that was fenced would stand before that."""
    found: list[logging.Logger | None] = []

    def initialised(_: object, logger: logging.Logger | None) -> Any:
        found.append(logger)

    member: Any = Member()
    RedriveProducer(more, "c-dlq", "keyfold-dlq-c", member, initialised)
    assert [one is not None and one.disabled for one in found] == [quiet]
