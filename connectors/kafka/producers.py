"""Makes transactional producers: one per bucket and publish task, kept only in the driver, which has one per bucket.

Two producers with one transactional id fence each other, so a producer that outlived its task in a reused Python worker
would stop the next one. A producer is ended by dropping the last reference to it: its close() would complain about a
transaction that a newer one has ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from connectors.clock import Deadline
from connectors.kafka.client_log import logged
from connectors.kafka.client_settings import Setting
from connectors.kafka.errors import cause, typed

QUEUE: Final = "queue.buffering.max.kbytes"
QUEUE_BYTES: Final = 32 << 20
"""A short queue: what a slow broker has not taken must not wait here beyond the transaction's time.

It is not among PRODUCER_DEFAULTS: it grows with the largest record, unless the connector's settings give a size.
"""

# Bytes of a produce batch, librdkafka's own default. A smaller max.message.bytes of a topic lowers it (`settings`).
LARGEST_BATCH: Final = 1_000_000
# How long (s) a step with a producer may take: less than librdkafka's default of transaction.timeout.ms, 60 s, after
# which the coordinator aborts the transaction by itself.
DEADLINE_S: Final = 50.0
_SLICE_S: Final = 1.0
"""How long one call to a producer waits, so that a stop is noticed between two calls."""
# Producers that are made at once to fence old ones: each waits for its coordinator, and has threads of its own.
_FENCERS: Final = 16

T = TypeVar("T")


def transactional_id(connector: str, bucket: int) -> str:
    """Returns `<connector>-<bucket>`: it never changes for a bucket, so that its last producer is always found."""
    return f"{connector}-{bucket}"


def takes(config: Mapping[str, Setting], largest_record: int, size: int) -> bool:
    """Returns whether a producer made for `largest_record` (bytes) can be used for a record of `size` bytes.

    It can if its queue has room, or if `config` sets the queue's size: a new producer would have no more.
    """
    return QUEUE in config or size <= max(QUEUE_BYTES, largest_record)


def settings(
    config: Mapping[str, Setting], name: str, largest_message: int, largest_record: int = 0
) -> dict[str, Setting]:
    """Returns `config`, a connector's producer settings, with what the producer of the transactional id `name` adds.

    `largest_message`: the smallest max.message.bytes of the topics that it writes to. librdkafka does not
    split a batch that the broker finds too large, so none may become larger than that. `largest_record`: bytes of
    the largest record, uncompressed: librdkafka refuses a record that is larger than its whole queue.
    """
    named: dict[str, Setting] = {"client.id": f"connector-producer-{name}", "transactional.id": name}
    batch = min(int(config.get("batch.size", LARGEST_BATCH)), largest_message)
    beyond = largest_record if largest_record > QUEUE_BYTES else 0  # and room for what is around it
    queue: dict[str, Setting] = {QUEUE: -(-(QUEUE_BYTES + beyond) // 1024)}
    return {**queue, **config, "batch.size": max(1, batch), **named}


def fence_all(config: Mapping[str, Setting], ids: Iterable[str], deadline_s: float = DEADLINE_S) -> None:
    """Fences every producer with one of the transactional `ids` and aborts its open transaction (step T2).

    `config`: a connector's producer settings. Raises UnreachableError after `deadline_s`, NotAllowedError if the ids
    may not be used.
    """
    names = sorted(ids)
    if not names:
        return

    def fence(name: str) -> None:
        initialised(settings(config, name, LARGEST_BATCH), deadline_s)  # dropped at once: each has threads of its own

    with ThreadPoolExecutor(min(_FENCERS, len(names))) as pool:
        list(pool.map(fence, names))


def initialised(
    config: Mapping[str, Setting],
    deadline_s: float = DEADLINE_S,
    stopped: Callable[[], bool] = lambda: False,
    logger: logging.Logger | None = None,
) -> Producer:
    """Makes a producer, which fences all earlier ones with its transactional id.

    Their open transactions are aborted, those being committed are waited for. Raises UnreachableError after
    `deadline_s` or once `stopped`, NotAllowedError if the id may not be used. `logger` has librdkafka's
    lines in place of the log.
    """
    producer = Producer({**logged(config), **({} if logger is None else {"logger": logger})})
    try:
        call_until_answered(producer.init_transactions, deadline_s, stopped)
    except KafkaException as error:
        name = config["transactional.id"]
        doing = f"Transactional id {name} cannot be initialised"
        right = f"Write and Describe on transactional id {name}"
        raise typed(cause(error), doing, str(config.get("bootstrap.servers")), right) from error
    return producer


def note_failure(failures: list[KafkaError], error: KafkaError | None, _message: object) -> None:
    """Takes the delivery report of a record: librdkafka reports failures only (`delivery.report.only.error`)."""
    if error is not None:
        failures.append(error)


def call_until_answered(call: Callable[[float], T], deadline_s: float, stopped: Callable[[], bool]) -> T:
    """Returns what `call` returns, a transactional function of a time-out in seconds; retriable errors call it again.

    Raises its KafkaException after `deadline_s` or once `stopped`, and at once if the transaction can only be
    aborted or calling again does not help.
    """
    deadline = Deadline(deadline_s)
    while True:
        try:
            return call(min(_SLICE_S, max(0.1, deadline.left_s)))
        except KafkaException as error:
            kafka_error = cause(error)
            over = stopped() or deadline.has_passed
            if over or not kafka_error.retriable() or kafka_error.txn_requires_abort():
                raise
