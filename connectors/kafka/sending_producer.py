"""Sends records in transactions together with a group's position that says so, so that none goes twice.

An earlier run that was cut off is fenced by its transactional id; the position tells what it has done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Partition
from msgspec import Struct

from compactor.errors import OutcomeUnknownError
from compactor.failpoints import hit
from connectors.clock import Deadline
from connectors.errors import ConflictError, RecordRefusedError
from connectors.kafka import producers
from connectors.kafka.client_settings import PRODUCER_DEFAULTS, Setting
from connectors.kafka.errors import FENCED, cause, typed

# How long (s) reports of deliveries are waited for while the queue is full.
_POLL_S: Final = 0.1

SentHeaders = list[tuple[str, str | bytes | None]]


class SentRecord(Struct, frozen=True):
    """A record that is to be sent; `partition` -1: by its key. `name` and `size` (bytes) are for messages."""

    topic: str
    partition: int
    value: bytes | None
    key: bytes | None
    timestamp: int
    headers: SentHeaders
    name: str
    size: int


class SendingWords(Struct, frozen=True):
    """What a command says if records cannot be sent (`doing`, of the place `{}`), and of another run of it.

    `sent`, `offsets` and `committed` are its failpoints; `logger` is the name of its logger. `write`: the right that it
    needs.
    """

    doing: str
    another: str
    look: str
    sent: str
    offsets: str
    committed: str
    logger: str
    write: str


class SendingProducer:
    """Sends records in transactions with the positions of the group of `member`."""

    def __init__(
        self,
        settings: Mapping[str, Setting],
        group: str,
        member: Consumer,
        words: SendingWords,
        initialised: Callable[..., Producer] = producers.initialised,
        deadline_s: float = producers.DEADLINE_S,
    ) -> None:
        """Fences every earlier producer with the transactional id of `settings`.

        `group` is that of `member`. Each answer of the brokers is waited for at most `deadline_s`.
        """
        self._producer: Producer = initialised(settings, logger=_logger(settings, words.logger))
        self._bootstrap = str(settings.get("bootstrap.servers"))
        self._member = member
        self._words = words
        self._deadline_s = deadline_s
        self._rights = {
            KafkaError.GROUP_AUTHORIZATION_FAILED: f"Read on group {group}",
            KafkaError.TOPIC_AUTHORIZATION_FAILED: words.write,
        }

    def send(self, position: Partition, records: Iterable[SentRecord]) -> None:
        """Sends `records` and commits `position` in one transaction.

        Raises UnreachableError, NotAllowedError, OutcomeUnknownError; ConflictError if another run has begun;
        RecordRefusedError if a record is too large.
        """
        where = f"{position.topic}-{position.partition}"
        try:
            self._send(records)
            self._commit(position)
        except (KafkaException, KafkaError, SystemError) as error:  # type: ignore[misc]  # its stub has no base
            kafka_error = _of_client(error)
            if kafka_error.code() in FENCED:
                raise ConflictError(
                    f"Another {self._words.another} of {position.topic} has taken over.", self._words.look
                ) from error
            doing, right = self._words.doing.format(where), self._rights.get(kafka_error.code())
            raise typed(kafka_error, doing, self._bootstrap, right) from error

    def _send(self, records: Iterable[SentRecord]) -> None:
        failures: list[KafkaError] = []
        self._producer.begin_transaction()
        for record in records:
            self._produce(record, failures)
        left = self._producer.flush(self._deadline_s)
        if failures or left:
            producers.call_until_answered(self._producer.abort_transaction, self._deadline_s, lambda: False)
            raise KafkaException(failures[0] if failures else KafkaError(KafkaError._MSG_TIMED_OUT))
        hit(self._words.sent)

    def _produce(self, record: SentRecord, failures: list[KafkaError]) -> None:
        """Produces a record as soon as librdkafka's queue has room for it."""
        deadline = Deadline(self._deadline_s)
        noted = partial(producers.note_failure, failures)
        while True:
            waiting = len(self._producer)
            try:
                self._producer.produce(
                    *(record.topic, record.value, record.key, record.partition, noted, None),
                    *(record.timestamp, record.headers),
                )
            except BufferError:
                if waiting == 0:
                    raise _too_large(record) from None
                if failures or deadline.has_passed:
                    raise KafkaException(failures[0] if failures else KafkaError(KafkaError._MSG_TIMED_OUT)) from None
                self._producer.poll(_POLL_S)
            else:
                self._producer.poll(0)
                return

    def _commit(self, position: Partition) -> None:
        add = partial(self._producer.send_offsets_to_transaction, [position], self._member.consumer_group_metadata())
        producers.call_until_answered(add, self._deadline_s, lambda: False)
        hit(self._words.offsets)
        try:
            producers.call_until_answered(self._producer.commit_transaction, self._deadline_s, lambda: False)
        except KafkaException as error:
            if cause(error).txn_requires_abort() or cause(error).fatal():
                raise
            raise OutcomeUnknownError(
                "The commit of a transaction was not answered.",
                "Run the command again: the group's position says whether it took effect.",
            ) from error
        hit(self._words.committed)


def _logger(settings: Mapping[str, Setting], name: str) -> logging.Logger | None:
    """Returns what drops librdkafka's lines, as what goes wrong is raised; None if more of them were asked for."""
    if "debug" in settings or settings.get("log_level") != PRODUCER_DEFAULTS["log_level"]:
        return None
    logger = logging.getLogger(name)
    logger.disabled = True
    return logger


def _of_client(error: BaseException) -> KafkaError:
    """Returns what went wrong: poll and flush raise a fatal error bare, or as the cause of a callback's SystemError."""
    if isinstance(error, SystemError) and error.__cause__ is not None:
        error = error.__cause__
    return error if isinstance(error, KafkaError) else cause(error)


def _too_large(record: SentRecord) -> RecordRefusedError:
    return RecordRefusedError(
        f"{record.name} of {record.size:,} bytes is larger than the producer's queue.",
        f"Set {producers.QUEUE} (producer.override.buffer.memory; in the worker file producer.buffer.memory) higher.",
    )
