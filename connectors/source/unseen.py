"""Whether the rest of a range holds anything that a read_committed consumer is given.

librdkafka drops records of an aborted transaction, and its position passes them only with the next marker or record
behind them. Right below a transaction that is still open there is none. A consumer that was just made, with no other
assignment, shows that nothing is left: its end-of-partition event comes behind all that it delivers.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message

from compactor.model.record import TopicPartition
from connectors.kafka.consumers import ClientFactory
from connectors.source.progress import Cursor

_ASKED_S: Final = 3.0
_POLL_S: Final = 0.1


def nothing_left(clients: ClientFactory, cursors: Iterable[Cursor]) -> frozenset[TopicPartition]:
    """The partitions of `cursors` between whose position and end a read_committed consumer is given nothing.

    Only those for which that is shown within _ASKED_S; of the others nothing is known.
    """
    waiting = {cursor.key: cursor for cursor in cursors}
    found: set[TopicPartition] = set()
    if not waiting:
        return frozenset()
    settings = {**clients.consumer_settings(), "enable.partition.eof": True, "queued.min.messages": 1}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([cursor.partition for cursor in waiting.values()])
        until = time.monotonic() + _ASKED_S
        while waiting and time.monotonic() < until:
            for message in consumer.consume(len(waiting), _POLL_S):
                cursor = waiting.pop(TopicPartition(message.topic() or "", message.partition() or 0), None)
                if cursor is not None and _is_behind(message, cursor.part.hi):
                    found.add(cursor.key)
    return frozenset(found)


def _is_behind(message: Message, end: int) -> bool:
    """Whether the first thing delivered is the end of the partition, or a record, at `end` or above.

    After any other error nothing is: librdkafka goes on behind a batch that it cannot read.
    """
    error, offset = message.error(), message.offset()
    return (error is None or error.code() == KafkaError._PARTITION_EOF) and offset is not None and offset >= end
