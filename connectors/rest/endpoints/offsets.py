"""Answers for the offsets of a connector (KIP-875): how far each partition is published, and what is read next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Final, NoReturn

import msgspec
from fastapi import APIRouter, Depends, Query, Response
from starlette.concurrency import run_in_threadpool

from compactor.digits import whole
from compactor.model.log import PartitionLog
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from connectors.config.connector import ConnectorConfig
from connectors.config.worker import WorkerConfig
from connectors.errors import UsageError
from connectors.operations import offsets as operation
from connectors.rest import bodies, shapes
from connectors.rest.answers import Share, ShareDependency
from connectors.rest.context import ContextDependency, RestContext, error_responses, json_body
from connectors.runtime.supervised_connector import Connector

router = APIRouter(prefix="/connectors/{connector}/offsets", tags=["offsets"])

AcceptLoss = Annotated[str | None, Query(alias="acceptLoss")]
Body = Annotated[dict[str, Any], Depends(bodies.json_object)]

_SHAPE: Final = (
    'Send {"offsets": [{"partition": {"kafka_topic": "orders", "kafka_partition": 0}, "offset": {"kafka_offset": 5}}]}'
    '; "offset": null goes back to the start.'
)


@router.get("", response_model=shapes.ConnectorOffsets, responses=error_responses(404, 503))
async def get_offsets(context: ContextDependency, share: ShareDependency, connector: str) -> Response:
    """Lists the next source offset to be published of each partition, as the catalog has it, which decides."""
    state = await _state(context, context.herder.connector(connector))
    return await run_in_threadpool(_shown, share, state)


def _shown(share: Share, state: CatalogState) -> Response:
    """Returns the answer of a shapes.ConnectorOffsets."""
    logs = sorted(state.logs, key=lambda log: log.tp)
    return share.json_object([b'"offsets":[%s]' % b",".join(map(_offset_of, logs))])


def _offset_of(log: PartitionLog) -> bytes:
    """Returns a shapes.ConnectorOffset as JSON."""
    partition = {"kafka_topic": log.topic, "kafka_partition": log.partition}
    return msgspec.json.encode({"partition": partition, "offset": {"kafka_offset": log.position}})


@router.patch(
    "",
    response_model=shapes.Message,
    responses=error_responses(400, 404, 409, 415, 503),
    openapi_extra=json_body("ConnectorOffsets"),
)
async def alter_offsets(
    context: ContextDependency, connector: str, body: Body, accept_loss: AcceptLoss = None
) -> shapes.Message:
    """Sets from where a stopped connector goes on: forward leaves a gap, back begins a generation."""
    bodies.only(body, "offsets")
    offsets = await run_in_threadpool(_offsets, body.get("offsets"))
    change = partial(operation.alter_offsets, offsets=offsets, accepts_loss=bodies.flag(accept_loss))
    await context.slow.offsets.run(_change, context, connector, change)
    return shapes.Message(message="The offsets for this connector have been altered successfully")


@router.delete("", response_model=shapes.Message, responses=error_responses(400, 404, 409, 503))
async def reset_offsets(context: ContextDependency, connector: str, accept_loss: AcceptLoss = None) -> shapes.Message:
    """Has a stopped connector go back to the start of each partition, where it does not stand there already."""
    change = partial(operation.reset_offsets, accepts_loss=bodies.flag(accept_loss))
    await context.slow.offsets.run(_change, context, connector, change)
    return shapes.Message(message="The offsets for this connector have been reset successfully")


def _change(context: RestContext, name: str, change: Callable[[WorkerConfig, ConnectorConfig], object]) -> None:
    """Changes offsets while nothing else starts the connector. Raises OffsetChangeError, UsageError."""
    with context.herder.stopped(name) as config:
        change(context.worker, config)


async def _state(context: RestContext, connector: Connector) -> CatalogState:
    """Returns what this process knows of the catalog; of a connector that does not run it is read."""
    known = connector.catalog_state
    if known is not None:
        return known
    return await context.slow.reads.run(operation.kept_state, context.worker, connector.name)


def _offsets(given: object) -> dict[TopicPartition, int | None]:
    """Returns the offsets that a body names, by partition. Raises UsageError if they are not in Connect's form."""
    if not isinstance(given, list) or not given:
        raise UsageError("Partitions / offsets need to be provided for an alter offsets request", _SHAPE)
    offsets: dict[TopicPartition, int | None] = {}
    for number, each in enumerate(given):
        where = f"offsets[{number}]"
        tp = _partition(_object(each, where, "partition", "offset"), where)
        if tp in offsets:
            _refuse(f"{where}: topic {bodies.excerpt(tp.topic)}, partition {tp.partition} is there twice.")
        offsets[tp] = _offset(each.get("offset"), where)
    return offsets


def _partition(entry: Mapping[str, Any], where: str) -> TopicPartition:
    given = _object(entry.get("partition"), f"{where}.partition", "kafka_topic", "kafka_partition")
    topic = given.get("kafka_topic")
    if not isinstance(topic, str) or not topic:
        _refuse(f"{where}.partition.kafka_topic is {bodies.excerpt(repr(topic))}, and should be a topic's name.")
    return TopicPartition(topic, _whole(given.get("kafka_partition"), f"{where}.partition.kafka_partition"))


def _offset(given: object, where: str) -> int | None:
    if given is None:
        return None
    return _whole(_object(given, f"{where}.offset", "kafka_offset").get("kafka_offset"), f"{where}.offset.kafka_offset")


def _object(given: object, where: str, *names: str) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        _refuse(f"{where} is {'missing' if given is None else 'no object'}.")
    for name in given:
        if name not in names:
            _refuse(f'{where} has a field "{bodies.excerpt(name)}", and may have {" and ".join(names)}.')
    return given


def _whole(given: object, where: str) -> int:
    """Returns a number, or the text of one, that is not negative and fits into 64 bits."""
    number = whole(given) if isinstance(given, str) else None
    if number is None:
        _refuse(f"{where} is {bodies.excerpt(repr(given))}, and should be a whole number from 0 on.")
    return number


def _refuse(message: str) -> NoReturn:
    raise UsageError(message, _SHAPE)
