"""The positions that a consumer group has committed, asked by a consumer that never joins it.

Not by an admin client: librdkafka 2.16's `ListConsumerGroupOffsets` ends the whole process (a null pointer) when
the group's coordinator answers that it is loading or has moved; seen on a broker just started.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Partition

from compactor.model.record import TopicPartition
from connectors.clock import Deadline
from connectors.errors import UnreachableError
from connectors.kafka.broker_text import broker_text
from connectors.kafka.client_log import logged
from connectors.kafka.client_settings import Setting
from connectors.kafka.errors import NOT_ALLOWED, cause, typed

CommittedOffset = tuple[int, str]
"""A committed offset and its metadata."""

# Between two requests (s) while a coordinator loads or moves, or a transaction with the position is open.
_PAUSE_S: Final = 0.05
_FIRST_S: Final = 2.0
"""How long (s) the first request may take; each next one may take twice as long."""
_PENDING: Final = KafkaError.UNSTABLE_OFFSET_COMMIT
_LATER: Final = frozenset(
    (
        _PENDING,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError._WAIT_COORD,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
    )
)
"""Errors after which the request is sent again."""


def member(config: Mapping[str, Setting], group: str, isolation_level: str = "read_committed") -> Consumer:
    """Makes a consumer that can ask for the positions of `group` and never joins it; `config` is an admin client's."""
    pinned = {"group.id": group, "isolation.level": isolation_level, "enable.auto.commit": False}
    return Consumer(logged({"log_level": 2, **config, **pinned}))


def committed(
    consumer: Consumer,
    config: Mapping[str, Setting],
    group: str,
    partitions: Sequence[TopicPartition],
    pending_s: float,
) -> dict[TopicPartition, CommittedOffset | None]:
    """Reads the position that `group` has committed for each partition, None if there is none.

    `consumer` is a `member` of the group, made with `config`. Positions in a transaction that is not decided yet are
    waited for, up to `pending_s` (KIP-447). Raises UnreachableError, NotAllowedError.
    """
    bootstrap = str(config.get("bootstrap.servers", "the brokers"))
    deadline = Deadline(pending_s)
    positions: dict[TopicPartition, CommittedOffset | None] = {}
    timeout_s = _FIRST_S
    while waiting := [tp for tp in partitions if tp not in positions]:
        answers, trouble = _ask(consumer, waiting, min(timeout_s, max(0.1, deadline.left_s)))
        timeout_s *= 2
        for answer in answers:
            if answer.error is None:
                held = (int(answer.offset), answer.metadata or "") if answer.offset >= 0 else None
                positions[TopicPartition(answer.topic, answer.partition)] = held
        trouble = next((answer.error for answer in answers if answer.error is not None), trouble)
        doing = f"The position of {waiting[0]} in group {group} cannot be read"
        _check(trouble, doing, f"Read and Describe on group {group}", bootstrap, deadline)
    return positions


def _ask(
    consumer: Consumer, partitions: Iterable[TopicPartition], timeout_s: float
) -> tuple[list[Partition], KafkaError | None]:
    try:
        answers = consumer.committed([Partition(tp.topic, tp.partition) for tp in partitions], timeout_s)
        consumer.poll(0)  # empties its queue of events, which nothing else reads
        return answers, None
    except KafkaException as error:
        event = consumer.poll(0)  # that the coordinator may not be asked for is reported there, and nowhere else
        refusal = event.error() if event is not None else None
        return [], refusal if refusal is not None and refusal.code() in NOT_ALLOWED else cause(error)


def _check(trouble: KafkaError | None, doing: str, right: str, bootstrap: str, deadline: Deadline) -> None:
    """Raises if waiting does not help, or has been long enough; waits a moment otherwise."""
    if trouble is None:
        return
    if trouble.code() not in _LATER and not trouble.retriable():
        raise typed(trouble, doing, bootstrap, right)
    if not deadline.has_passed:
        time.sleep(_PAUSE_S)
        return
    raise UnreachableError(
        f"{doing}: {bootstrap} did not answer in time, or a transaction that holds it is still open: "
        f"{broker_text(trouble)}.",
        "Check that the brokers are up, and wait for the transaction to time out, or abort it: kafka-transactions.sh.",
    )
