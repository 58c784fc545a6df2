"""Sends a tombstone to the source for each kept value of a key: step E2 of docs/protocol.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from msgspec import Struct

from compactor.failpoints import hit
from compactor.model.order import HEADER
from connectors.errors import UnreachableError
from connectors.kafka import producers
from connectors.kafka.client_log import logged
from connectors.kafka.client_settings import Setting
from connectors.kafka.errors import cause, typed
from connectors.operations.erase.receipt import Tombstone

_DEADLINE_S: Final = 50.0
"""How long the brokers may take to acknowledge all tombstones."""


class ToDelete(Struct, frozen=True, kw_only=True):
    """A value that is kept of the key with this number; `timestamp_ms` and `headers` are those of its record."""

    number: int
    key: bytes
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


def send(
    config: Mapping[str, Setting],
    connector: str,
    values: Sequence[ToDelete],
    order: str,
    now_ms: int,
    make: Callable[[dict[str, Any]], Producer] = Producer,
) -> tuple[Tombstone, ...]:
    """Sends a tombstone for each of `values` to its partition, and returns what the brokers acknowledged.

    A tombstone has a time, or the header, by which it wins in `order`. Raises NotAllowedError without the right to
    write, UnreachableError if the brokers do not answer: some may be there then, and sending again harms nothing.
    """
    if not values:
        return ()
    latest_ms: dict[int, int] = {}  # by key: brokers refuse times far ahead, which one of another key may have
    for each in values:
        latest_ms[each.number] = max(now_ms, each.timestamp_ms, latest_ms.get(each.number, now_ms))
    named = {"client.id": f"keyfold-erase-{connector}", "delivery.report.only.error": False}
    producer = make(logged({producers.QUEUE: producers.QUEUE_BYTES // 1024, **config, **named}))
    bootstrap = str(config.get("bootstrap.servers"))
    acknowledged: list[Tombstone] = []
    failures: list[tuple[ToDelete, KafkaError]] = []
    for each in values:
        at_ms = latest_ms[each.number]
        delivered = partial(_delivered, each, at_ms, acknowledged, failures)
        row = (each.topic, None, each.key, each.partition, delivered, None, at_ms, _headers(each, order))
        try:
            _produce(producer, row)
        except KafkaException as error:
            raise typed(cause(error), _doing(each), bootstrap, _right(each)) from error
        except BufferError as error:
            raise _unacknowledged(connector, len(values), bootstrap, len(acknowledged)) from error
    left = producer.flush(_DEADLINE_S)
    for each, refused in failures[:1]:
        raise typed(refused, _doing(each), bootstrap, _right(each))
    if left or len(acknowledged) < len(values):
        raise _unacknowledged(connector, len(values), bootstrap, len(acknowledged))
    hit("erase.sent")
    return tuple(sorted(acknowledged, key=lambda each: (each.topic, each.partition, each.offset)))


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


def _headers(value: ToDelete, order: str) -> list[tuple[str, bytes | None]]:
    """Returns the header that the order goes by, as the value has it: of equal ones the later offset wins."""
    name = order.removeprefix(HEADER) if order.startswith(HEADER) else None
    return [(header, data) for header, data in value.headers if header == name][-1:]


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
