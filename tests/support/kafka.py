"""Short ways to fill and read topics of the test broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, cast
from uuid import uuid4

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

TIMEOUT_S = 30.0
# One request under way keeps the order without idempotence, whose first handshake takes a second.
_PLAIN = {"max.in.flight.requests.per.connection": 1, "linger.ms": 0, "log_level": 0}
Headers = Sequence[tuple[str, bytes | None]]


class ToSend(NamedTuple):
    """A record to produce; a plain tuple in this order does as well. `timestamp_ms` None: now."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None


class Read(NamedTuple):
    """A record as a consumer saw it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def admin(bootstrap: str) -> AdminClient:
    """An admin client that keeps its complaints to itself."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create_topic(bootstrap: str, name: str, partitions: int = 1, **config: str | int) -> str:
    """Makes a topic and waits until its metadata is there; returns its name.

    Settings are written with underscores: `cleanup_policy="delete"` sets cleanup.policy.
    """
    settings = {key.replace("_", "."): str(value) for key, value in config.items()}
    client = admin(bootstrap)
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
    client.create_topics([topic])[name].result(TIMEOUT_S)
    wait_until(lambda: _partition_count(client, name) == partitions, f"topic {name} has {partitions} partitions")
    return name


def add_partitions(bootstrap: str, name: str, total: int) -> None:
    """Grows a topic to `total` partitions and waits until its metadata says so."""
    client = admin(bootstrap)
    client.create_partitions([NewPartitions(name, total)])[name].result(TIMEOUT_S)
    wait_until(lambda: _partition_count(client, name) == total, f"topic {name} has {total} partitions")


def delete_topic(bootstrap: str, name: str) -> None:
    """Deletes a topic and waits until its metadata is gone."""
    client = admin(bootstrap)
    client.delete_topics([name])[name].result(TIMEOUT_S)
    wait_until(lambda: _partition_count(client, name) == 0, f"topic {name} is gone")


def delete_records(bootstrap: str, topic: str, partition: int, before: int) -> None:
    """Moves the log start of one partition to offset `before`."""
    request = TopicPartition(topic, partition, before)
    client = admin(bootstrap)  # it has to live until the answer is there
    for future in client.delete_records([request]).values():
        future.result(TIMEOUT_S)


def produce(bootstrap: str, topic: str, records: Iterable[ToSend | tuple[object, ...]], **config: object) -> None:
    """Sends the records, one partition's in the given order, and waits until the broker has all of them.

    Raises KafkaException for the first record that was refused.
    """
    producer = Producer({"bootstrap.servers": bootstrap, **_PLAIN, **config})
    with _sending(producer, topic, records):
        pass


@contextmanager
def open_transaction(
    bootstrap: str, topic: str, records: Iterable[ToSend | tuple[object, ...]], transactional_id: str | None = None
) -> Iterator[Producer]:
    """Sends the records in a transaction that is still open inside the `with`; the caller ends it, or it is aborted."""
    name = transactional_id or f"test-{uuid4().hex}"
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    with _sending(producer, topic, records):
        yield producer


def produce_transaction(
    bootstrap: str, topic: str, records: Iterable[ToSend | tuple[object, ...]], *, commit: bool = True
) -> None:
    """Sends the records in one transaction and commits or aborts it; either way a marker follows in each partition."""
    with open_transaction(bootstrap, topic, records) as producer:
        if commit:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)


def end_offsets(bootstrap: str, topic: str, isolation: str = "read_committed") -> dict[int, int]:
    """Partition → end of the log: the last stable offset, or the high watermark for `read_uncommitted`."""
    client = admin(bootstrap)
    partitions = [TopicPartition(topic, number) for number in range(_partition_count(client, topic))]
    level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED
    answers = client.list_offsets({each: OffsetSpec.latest() for each in partitions}, isolation_level=level)
    return {each.partition: future.result(TIMEOUT_S).offset for each, future in answers.items()}


def consume_all(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Read]:
    """Every record between start and end of the topic, by partition and offset.

    Ends by position, not by silence: also behind markers and aborted records.
    """
    ends = end_offsets(bootstrap, topic, isolation)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"test-{uuid4().hex}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    try:
        starts = {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), TIMEOUT_S)[0] for number in ends
        }
        consumer.assign([TopicPartition(topic, number, start) for number, start in starts.items()])
        found = _read_to(consumer, topic, starts, ends)
    finally:
        consumer.close()
    return sorted(found, key=lambda record: (record.partition, record.offset))


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Returns once `condition()` is true; fails the test with `what` when that takes longer than `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s in vain until {what}"
        time.sleep(0.05)


@contextmanager
def _sending(producer: Producer, topic: str, records: Iterable[ToSend | tuple[object, ...]]) -> Iterator[None]:
    """Sends, waits for every delivery, and leaves no thread of the producer behind."""
    failures: list[KafkaException] = []

    def delivered(error: object, _message: Message) -> None:
        if error is not None:
            failures.append(KafkaException(error))

    with producer:
        for record in records:
            _send(producer, topic, ToSend(*record), delivered)
        assert producer.flush(TIMEOUT_S) == 0, f"records for {topic} were not delivered in {TIMEOUT_S:.0f} s"
        if failures:
            raise failures[0]
        yield


def _send(producer: Producer, topic: str, record: ToSend, delivered: Callable[[object, Message], None]) -> None:
    while True:
        try:
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                on_delivery=delivered,
                timestamp=record.timestamp_ms or 0,
                headers=list(record.headers),
            )
        except BufferError:
            producer.poll(0.1)
        else:
            return


def _read_to(consumer: Consumer, topic: str, starts: dict[int, int], ends: dict[int, int]) -> list[Read]:
    found: list[Read] = []
    deadline = time.monotonic() + TIMEOUT_S
    waiting = {number for number, end in ends.items() if starts[number] < end}
    while waiting:
        for message in consumer.consume(1000, 0.1):
            if message.error():
                raise KafkaException(message.error())
            found.append(_as_read(message))
        positions = consumer.position([TopicPartition(topic, number) for number in waiting])
        waiting = {each.partition for each in positions if each.offset < ends[each.partition]}
        assert time.monotonic() < deadline, f"{topic}: partitions {sorted(waiting)} did not reach {ends}"
    return [record for record in found if record.offset < ends[record.partition]]


def _as_read(message: Message) -> Read:
    return Read(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        message.key(),
        message.value(),
        cast("tuple[tuple[str, bytes | None], ...]", tuple(message.headers() or ())),
        message.timestamp()[1],
    )


def _partition_count(client: AdminClient, topic: str) -> int:
    """0 where the topic does not exist."""
    described = client.list_topics(timeout=TIMEOUT_S).topics.get(topic)
    return len(described.partitions) if described is not None and described.error is None else 0
