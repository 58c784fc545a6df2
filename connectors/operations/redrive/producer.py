"""Sends letters to their source topics, and with them the position that says so: steps D3 to D5 of docs/protocol.md."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Partition

from compactor.errors import OutcomeUnknownError
from compactor.failpoints import hit
from connectors.errors import ConflictError, RecordRefusedError
from connectors.kafka import producers
from connectors.kafka.client_settings import PRODUCER_DEFAULTS, Setting
from connectors.kafka.errors import FENCED, cause, typed
from connectors.operations.redrive.letters import Letter
from connectors.operations.redrive.plan import RedriveTarget

# How long (s) each step may take: below librdkafka's default of transaction.timeout.ms, 60 s.
DEADLINE_S: Final = 50.0
# How long (s) reports of deliveries are waited for while the queue is full.
_POLL_S: Final = 0.1
_LARGEST_RECORD: Final = 1_000_000_000
"""Bytes; librdkafka takes no larger one (message.max.bytes). A transaction's letters are few bytes, or one letter."""
RedriveTargets = Sequence[tuple[Letter, RedriveTarget]]
"""Letters, each with its target."""


def redrive_settings(config: Mapping[str, Setting], name: str) -> dict[str, Setting]:
    """Returns the settings of a redrive's producer: a queue for any letter, and Java's choice of a key's partition."""
    settings = producers.settings(config, name, producers.LARGEST_BATCH, _LARGEST_RECORD)
    return {"partitioner": "murmur2_random", **settings}


class RedriveProducer:
    """Sends letters in transactions with the positions of the group of `member`."""

    def __init__(
        self,
        config: Mapping[str, Setting],
        name: str,
        group: str,
        member: Consumer,
        initialised: Callable[..., Producer] = producers.initialised,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """Takes step D1 for the transactional id `name`; `config` is a connector's producer settings.

        `group` is that of `member`. Each answer of the brokers is waited for at most `deadline_s`.
        """
        settings = redrive_settings(config, name)
        self._producer: Producer = initialised(settings, logger=_logger(settings))
        self._bootstrap = str(config.get("bootstrap.servers"))
        self._member = member
        self._deadline_s = deadline_s
        self._rights = {
            KafkaError.GROUP_AUTHORIZATION_FAILED: f"Read on group {group}",
            KafkaError.TOPIC_AUTHORIZATION_FAILED: "Write on the source topics of the letters",
        }

    def transaction(self, position: Partition, targets: RedriveTargets) -> None:
        """Takes steps D3 to D5 for letters of one partition; `position` is the partition's new one.

        Raises UnreachableError, NotAllowedError, OutcomeUnknownError; ConflictError if another redrive runs;
        RecordRefusedError if a letter is too large.
        """
        where = f"{position.topic}-{position.partition}"
        try:
            self._send(targets)
            self._commit(position)
        except (KafkaException, KafkaError, SystemError) as error:  # type: ignore[misc]  # its stub has no base
            kafka_error = _of_client(error)
            if kafka_error.code() in FENCED:
                raise ConflictError(
                    f"Another redrive of {position.topic} has taken over.", "Let it end, and look with --dry-run."
                ) from error
            raise typed(
                kafka_error,
                f"Letters of {where} cannot be sent back",
                self._bootstrap,
                self._rights.get(kafka_error.code()),
            ) from error

    def _send(self, targets: RedriveTargets) -> None:
        """Takes step D3."""
        failures: list[KafkaError] = []
        self._producer.begin_transaction()
        for letter, target in targets:
            self._produce(letter, target, failures)
        left = self._producer.flush(self._deadline_s)
        if failures or left:
            producers.call_until_answered(self._producer.abort_transaction, self._deadline_s, lambda: False)
            raise KafkaException(failures[0] if failures else KafkaError(KafkaError._MSG_TIMED_OUT))
        hit("redrive.sent")

    def _produce(self, letter: Letter, target: RedriveTarget, failures: list[KafkaError]) -> None:
        """Produces a letter as soon as librdkafka's queue has room for it."""
        value, key, timestamp, headers = letter.source_row()
        until = time.monotonic() + self._deadline_s
        while True:
            waiting = len(self._producer)
            try:
                self._producer.produce(
                    target.topic, value, key, target.partition, partial(_failed, failures), None, timestamp, headers
                )
            except BufferError:
                if waiting == 0:
                    raise _too_large(letter) from None
                if failures or time.monotonic() >= until:
                    raise KafkaException(failures[0] if failures else KafkaError(KafkaError._MSG_TIMED_OUT)) from None
                self._producer.poll(_POLL_S)
            else:
                self._producer.poll(0)
                return

    def _commit(self, position: Partition) -> None:
        """Takes steps D4 and D5."""
        add = partial(self._producer.send_offsets_to_transaction, [position], self._member.consumer_group_metadata())
        producers.call_until_answered(add, self._deadline_s, lambda: False)
        hit("redrive.offsets")
        try:
            producers.call_until_answered(self._producer.commit_transaction, self._deadline_s, lambda: False)
        except KafkaException as error:
            if cause(error).txn_requires_abort() or cause(error).fatal():
                raise
            raise OutcomeUnknownError(
                "The commit of a transaction of letters was not answered.",
                "Run the command again: the group's position says whether it took effect.",
            ) from error
        hit("redrive.committed")


def _logger(settings: Mapping[str, Setting]) -> logging.Logger | None:
    """Returns what drops librdkafka's lines, as what goes wrong is raised; None if more of them were asked for."""
    if "debug" in settings or settings.get("log_level") != PRODUCER_DEFAULTS["log_level"]:
        return None
    logger = logging.getLogger("keyfold.redrive-producer")
    logger.disabled = True
    return logger


def _of_client(error: BaseException) -> KafkaError:
    """Returns what went wrong: poll and flush raise a fatal error bare, or as the cause of a callback's SystemError."""
    if isinstance(error, SystemError) and error.__cause__ is not None:
        error = error.__cause__
    return error if isinstance(error, KafkaError) else cause(error)


def _failed(failures: list[KafkaError], error: KafkaError | None, _message: Message) -> None:
    if error is not None:
        failures.append(error)


def _too_large(letter: Letter) -> RecordRefusedError:
    return RecordRefusedError(
        f"The letter {letter.partition}/{letter.offset} of {letter.size:,} bytes is larger than the producer's queue.",
        f"Set {producers.QUEUE} (producer.override.buffer.memory) higher in the connector's file.",
    )
