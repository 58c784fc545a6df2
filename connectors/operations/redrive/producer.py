"""Sends letters to their source topics, and with them the position that says so: steps D3 to D5 of docs/protocol.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Partition

from connectors.kafka import producers
from connectors.kafka.client_settings import Setting
from connectors.kafka.sending_producer import SendingProducer, SendingWords, SentRecord
from connectors.operations.redrive.letters import Letter
from connectors.operations.redrive.plan import RedriveTarget

_LARGEST_RECORD: Final = 1_000_000_000
"""Bytes; librdkafka takes no larger one (message.max.bytes). A transaction's letters are few bytes, or one letter."""
_WORDS: Final = SendingWords(
    doing="Letters of {} cannot be sent back",
    another="redrive",
    look="Let it end, and look with --dry-run.",
    sent="redrive.sent",
    offsets="redrive.offsets",
    committed="redrive.committed",
    logger="keyfold.redrive-producer",
    write="Write on the source topics of the letters",
)
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
        deadline_s: float = producers.DEADLINE_S,
    ) -> None:
        """Takes step D1 for the transactional id `name`; `config` is a connector's producer settings."""
        settings = redrive_settings(config, name)
        self._sender = SendingProducer(settings, group, member, _WORDS, initialised, deadline_s)

    def transaction(self, position: Partition, targets: RedriveTargets) -> None:
        """Takes steps D3 to D5 for letters of one partition; `position` is the partition's new one.

        Raises as `SendingProducer.send`.
        """
        self._sender.send(position, [_record(letter, target) for letter, target in targets])


def _record(letter: Letter, target: RedriveTarget) -> SentRecord:
    value, key, timestamp, headers = letter.source_row()
    name = f"The letter {letter.partition}/{letter.offset}"
    return SentRecord(target.topic, target.partition, value, key, timestamp, headers, name, letter.size)
