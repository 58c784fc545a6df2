"""Asks for the ends of the source's partitions and the ids of its topics: `describe` does not wait for a broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from compactor.model.record import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from connectors.config.connector import ConnectorConfig
    from connectors.config.worker import WorkerConfig

# How long (s) brokers may take: a person waits for `describe`, which says what is kept without them.
DEADLINE_S: Final = 0.5


class Ends(Struct, frozen=True):
    """Last stable offsets, as far as they are known, and the first reason why one is not.

    `ids`: the id of each topic by its name, None if the brokers know none of that name; as far as they answered.
    """

    offsets: Mapping[TopicPartition, int]
    error: str | None
    ids: Mapping[str, str | None] = {}


def source_ends(worker: WorkerConfig, connector: ConnectorConfig, tps: Sequence[TopicPartition]) -> Ends:
    """Asks for the last stable offsets of `tps`; takes at most twice DEADLINE_S, once without a broker."""
    from confluent_kafka import KafkaException

    from connectors.config.clients import client_config
    from connectors.kafka.probe import first_answer, listening

    if not tps:
        return Ends({}, None)
    admin, listener = listening(client_config("admin", worker, connector, {}))
    try:
        first_answer(admin, listener, DEADLINE_S)  # a client that knows no broker yet may miss list_offsets' answer
    except KafkaException as error:
        return Ends({}, str(error.args[0].str()))
    described = _ask_ids(admin, sorted({tp.topic for tp in tps}))
    outcomes = _ask(admin, tps)
    return ends(outcomes, dict(_ids(described)))


def ends(outcomes: Mapping[TopicPartition, int | str], ids: Mapping[str, str | None]) -> Ends:
    """Returns what is known by the outcome of each partition; one of a topic that is gone is no error."""
    gone = {name for name, topic_id in ids.items() if topic_id is None}
    errors = [outcome for tp, outcome in outcomes.items() if isinstance(outcome, str) and tp.topic not in gone]
    offsets = {tp: end for tp, end in outcomes.items() if isinstance(end, int)}
    return Ends(offsets, errors[0] if errors else None, ids)


def _ask_ids(admin: AdminClient, topics: Sequence[str]) -> Mapping[str, Future[Any]]:
    from confluent_kafka import TopicCollection

    return admin.describe_topics(TopicCollection(list(topics)), request_timeout=DEADLINE_S)


def _ids(described: Mapping[str, Future[Any]]) -> Iterator[tuple[str, str | None]]:
    """Yields the name and the id of each topic that was answered for; None for one that does not exist."""
    from confluent_kafka import KafkaException

    from connectors.kafka.admin import topic_id
    from connectors.kafka.errors import MISSING, cause

    for name, answer in described.items():
        try:
            yield name, topic_id(answer.result(DEADLINE_S * 1.2).topic_id)
        except KafkaException as error:
            if cause(error).code() in MISSING:
                yield name, None
        except TimeoutError:
            continue


def _ask(admin: AdminClient, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int | str]:
    """Returns each partition's end, or why it is not known."""
    from confluent_kafka import IsolationLevel
    from confluent_kafka import TopicPartition as KafkaPartition
    from confluent_kafka.admin import OffsetSpec

    asked = {KafkaPartition(tp.topic, tp.partition): OffsetSpec.latest() for tp in tps}
    level = IsolationLevel.READ_COMMITTED
    answers = admin.list_offsets(asked, isolation_level=level, request_timeout=DEADLINE_S)
    return {TopicPartition(each.topic, each.partition): _outcome(answer) for each, answer in answers.items()}


def _outcome(answer: Future[Any]) -> int | str:
    from confluent_kafka import KafkaException

    try:
        return int(answer.result(DEADLINE_S * 1.2).offset)
    except KafkaException as error:
        return str(error.args[0].str())
    except TimeoutError:
        return f"no answer within {DEADLINE_S} s"
