"""Sends what deletes each kept value of a key to the source: step E2 of docs/protocol.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from msgspec import Struct

from compactor.failpoints import hit
from connectors.errors import UnreachableError
from connectors.kafka import producers
from connectors.kafka.client_log import logged
from connectors.kafka.client_settings import Setting
from connectors.kafka.errors import cause, typed
from connectors.operations.erase.receipt import Tombstone

_DEADLINE_S: Final = 50.0
"""How long the brokers may take to acknowledge all tombstones."""


class ToDelete(Struct, frozen=True, kw_only=True):
    """A value that is kept of the key with this number; `timestamp_ms` and `headers` are those of its record.

    `identity` is what the key is compared by; None: the key itself.
    """

    number: int
    key: bytes
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]
    identity: bytes | None = None


class Deletion(Struct, frozen=True):
    """The record of the source by which `value` is deleted: a tombstone (`payload` None), or a delete event.

    `is_followed`: a tombstone with the same key is sent after the event, for the brokers' cleaner.
    """

    value: ToDelete
    key: bytes
    payload: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    is_followed: bool = False


def send(
    config: Mapping[str, Setting],
    connector: str,
    deletions: Sequence[Deletion],
    now_ms: int,
    make: Callable[[dict[str, Any]], Producer] = Producer,
) -> tuple[Tombstone, ...]:
    """Sends each of `deletions` to the partition of its value, and returns what the brokers acknowledged.

    A tombstone has the latest time of its key, by which it may win. Raises NotAllowedError without the right to
    write, UnreachableError if the brokers do not answer: some may be there then, and sending again harms nothing.
    """
    if not deletions:
        return ()
    values = [each.value for each in deletions]
    latest_ms = _latest_ms(values, now_ms)
    named = {"client.id": f"keyfold-erase-{connector}", "delivery.report.only.error": False}
    producer = make(logged({producers.QUEUE: producers.QUEUE_BYTES // 1024, **config, **named}))
    bootstrap = str(config.get("bootstrap.servers"))
    acknowledged: list[Tombstone] = []
    # Tombstones that follow delete events: the event's offset is that of the receipt.
    followers: list[Tombstone] = []
    failures: list[tuple[ToDelete, KafkaError]] = []
    for each in deletions:
        value, at_ms = each.value, latest_ms[each.value.number]
        reports = [partial(_delivered, value, at_ms, told, failures) for told in (acknowledged, followers)]
        try:
            for row in _rows(each, at_ms, *reports):
                _produce(producer, row)
        except KafkaException as error:
            raise typed(cause(error), _doing(value), bootstrap, _right(value)) from error
        except BufferError as error:
            raise _unacknowledged(connector, len(values), bootstrap, len(acknowledged)) from error
    left = producer.flush(_DEADLINE_S)
    if failures:
        value, refused = failures[0]
        raise typed(refused, _doing(value), bootstrap, _right(value))
    if left or len(acknowledged) < len(values):
        raise _unacknowledged(connector, len(values), bootstrap, len(acknowledged))
    hit("erase.sent")
    return tuple(sorted(acknowledged, key=lambda each: (each.topic, each.partition, each.offset)))


def _latest_ms(values: Iterable[ToDelete], now_ms: int) -> dict[int, int]:
    """Returns the latest time by key: brokers refuse times far ahead, which a record of another key may have."""
    latest_ms: dict[int, int] = {}
    for each in values:
        latest_ms[each.number] = max(now_ms, each.timestamp_ms, latest_ms.get(each.number, now_ms))
    return latest_ms


def _unacknowledged(connector: str, tombstones: int, bootstrap: str, acknowledged: int) -> UnreachableError:
    return UnreachableError(
        f"Connector {connector}: of {tombstones} tombstones {bootstrap} acknowledged {acknowledged}.",
        "Run the command again: a tombstone that comes twice harms nothing.",
    )


def _produce(producer: Producer, row: tuple[Any, ...]) -> None:
    """Produces a record, once there is room in librdkafka's queue. Raises BufferError if the brokers make none."""
    try:
        producer.produce(*row)
    except BufferError:
        producer.flush(_DEADLINE_S)
        producer.produce(*row)


def _rows(
    each: Deletion, at_ms: int, deleted: Callable[..., None], followed: Callable[..., None]
) -> Iterator[tuple[Any, ...]]:
    """Yields the records of a deletion, as `Producer.produce` takes them, each with who is told of its delivery."""
    topic, partition = each.value.topic, each.value.partition
    yield topic, each.payload, each.key, partition, deleted, None, at_ms, list(each.headers)
    if each.is_followed:
        yield topic, None, each.key, partition, followed, None, at_ms, []


def _delivered(
    value: ToDelete,
    timestamp_ms: int,
    acknowledged: list[Tombstone],
    failures: list[tuple[ToDelete, KafkaError]],
    error: KafkaError | None,
    message: Message,
) -> None:
    offset = message.offset()
    if error is not None or offset is None:
        failures.append((value, error or KafkaError(KafkaError._FAIL)))
        return
    acknowledged.append(
        Tombstone(
            key=value.number,
            topic=value.topic,
            partition=value.partition,
            offset=offset,
            timestamp_ms=timestamp_ms,
            sent=True,
        )
    )


def _doing(value: ToDelete) -> str:
    return f"No tombstone can be sent to {value.topic}-{value.partition}"


def _right(value: ToDelete) -> str:
    return f"Write on topic {value.topic}"
