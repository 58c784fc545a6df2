"""Asks for the ends of the source's partitions and the ids of its topics, within a time that `describe` can wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import OffsetSpec
from msgspec import Struct

from compactor.model.record import TopicPartition
from connectors.config.clients.merged import client_config
from connectors.config.connector import ConnectorConfig
from connectors.config.worker import WorkerConfig
from connectors.kafka.admin import topic_id
from connectors.kafka.broker_text import broker_text
from connectors.kafka.errors import MISSING, cause
from connectors.kafka.probe import first_answer, listening

# How long (s) brokers may take: a person waits for `describe`, which says what is kept without them.
DEADLINE_S: Final = 0.5
# How long (s) an answer is waited for: librdkafka's own deadline has to come first, as it says why.
_ANSWER_S: Final = DEADLINE_S * 1.2


class Ends(Struct, frozen=True):
    """Last stable offsets, as far as they are known, and the first reason why one is not.

    `ids`: the id of each topic by its name, None if the brokers know none of that name; as far as they answered.
    """

    offsets: Mapping[TopicPartition, int]
    error: str | None
    ids: Mapping[str, str | None] = {}


def source_ends(worker: WorkerConfig, connector: ConnectorConfig, tps: Sequence[TopicPartition]) -> Ends:
    """Asks for the last stable offsets of `tps`; takes at most twice DEADLINE_S, once without a broker."""
    if not tps:
        return Ends({}, None)
    admin, listener = listening(client_config("admin", worker, connector, {}))
    try:
        first_answer(admin, listener, DEADLINE_S)  # a client that knows no broker yet may miss list_offsets' answer
    except KafkaException as error:
        return Ends({}, broker_text(cause(error)))
    topics = TopicCollection(sorted({tp.topic for tp in tps}))
    described = admin.describe_topics(topics, request_timeout=DEADLINE_S)
    asked = {KafkaPartition(tp.topic, tp.partition): OffsetSpec.latest() for tp in tps}
    answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=DEADLINE_S)
    outcomes = {TopicPartition(each.topic, each.partition): _outcome(answer) for each, answer in answers.items()}
    return ends(outcomes, dict(_ids(described)))


def ends(outcomes: Mapping[TopicPartition, int | str], ids: Mapping[str, str | None]) -> Ends:
    """Returns what is known by the outcome of each partition; errors of topics that are gone do not count."""
    gone = {name for name, topic_id in ids.items() if topic_id is None}
    errors = [outcome for tp, outcome in outcomes.items() if isinstance(outcome, str) and tp.topic not in gone]
    offsets = {tp: end for tp, end in outcomes.items() if isinstance(end, int)}
    return Ends(offsets, errors[0] if errors else None, ids)


def _ids(described: Mapping[str, Future[Any]]) -> Iterator[tuple[str, str | None]]:
    """Yields the name and the id of each topic that was answered for; None for one that does not exist."""
    for name, answer in described.items():
        try:
            yield name, topic_id(answer.result(_ANSWER_S).topic_id)
        except KafkaException as error:
            if cause(error).code() in MISSING:
                yield name, None
        except TimeoutError:
            continue


def _outcome(answer: Future[Any]) -> int | str:
    """Returns a partition's end, or why it is not known."""
    try:
        return int(answer.result(_ANSWER_S).offset)
    except KafkaException as error:
        return broker_text(cause(error))
    except TimeoutError:
        return f"no answer within {DEADLINE_S} s"
