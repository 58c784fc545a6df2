"""Answers what a connector keeps of some keys: the worker as a state store, as Kafka Streams' interactive queries."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Annotated, Final

from fastapi import APIRouter, Query
from msgspec import Struct

from compactor.errors import LookUpError
from compactor.lookup.latest import unindexed_bytes
from compactor.lookup.records_at import FileOutlines
from compactor.model.log import PartitionLog
from compactor.model.state import CatalogState
from connectors.config.stores import connector_storage
from connectors.errors import UsageError
from connectors.operations import get as operation
from connectors.operations.offsets import kept_state
from connectors.rest import bodies, shapes
from connectors.rest.context import ContextDependency, RestContext, error_responses
from connectors.runtime.supervised_connector import Connector

router = APIRouter(prefix="/keyfold/connectors/{connector}", tags=["records"])

MOST_KEYS: Final = 100
"""How many keys a request has at most: each takes some 2 ms of processor time, ten times that without an index."""

MOST_BYTES: Final = 32 << 20
"""What the records of one answer may take: as JSON, which has bytes as base64, four times that for some moments."""

UNINDEXED_BYTES: Final = 256 << 20
"""How much of a storage one request may read because no index has its keys: about a second of a core's time."""

OUTLINES: Final = FileOutlines(is_whole=True)
"""Of the files that look-ups of this worker have read."""

_DIGITS: Final = 10
"""Of the largest number that a partition can have."""

Keys = Annotated[list[str] | None, Query(alias="key", description="A key; up to 100 of them.")]
Topic = Annotated[str | None, Query(description="Only this source topic.")]
Partition = Annotated[str | None, Query(description="Only this partition.")]
Hex = Annotated[str | None, Query(alias="hex", description="true: keys are in hexadecimal digits.")]
Text = Annotated[str | None, Query(alias="text", description="true: bytes that are UTF-8 as text, otherwise base64.")]


class LookUp(Struct, frozen=True, kw_only=True):
    """What a request asks for; `partition` and `topic` None: all of them."""

    keys: tuple[bytes, ...]
    topic: str | None
    partition: int | None
    is_text: bool


@router.get("/records", response_model=shapes.LookUpAnswer, responses=error_responses(400, 404, 503))
async def get_records(
    context: ContextDependency,
    connector: str,
    keys: Keys = None,
    topic: Topic = None,
    partition: Partition = None,
    is_hex: Hex = None,
    is_text: Text = None,
) -> shapes.LookUpAnswer:
    """Shows the latest record that is kept of each key, and below which source offsets the answer holds."""
    asked = LookUp(
        keys=_keys(keys or [], is_hex=bodies.flag(is_hex)),
        topic=topic,
        partition=_number(partition),
        is_text=bodies.flag(is_text),
    )
    return await context.slow.look_ups.run(_look_up, context, context.herder.connector(connector), asked)


def _keys(texts: list[str], *, is_hex: bool) -> tuple[bytes, ...]:
    if not texts or len(texts) > MOST_KEYS:
        raise UsageError(f"The request has {len(texts)} keys.", f"Send 1 to {MOST_KEYS}, as key=…&key=….")
    return tuple(_bytes(text, is_hex=is_hex) for text in dict.fromkeys(texts))


def _bytes(text: str, *, is_hex: bool) -> bytes:
    try:
        return bytes.fromhex(text) if is_hex else text.encode()
    except ValueError:
        raise UsageError(f'The key "{text}" is not in hexadecimal digits.', "For example hex=true&key=00ff.") from None


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise UsageError(f'The partition "{text}" is no number.', "Send a whole number from 0 on, or none.")
    return int(text)


def _look_up(context: RestContext, connector: Connector, asked: LookUp) -> shapes.LookUpAnswer:
    """Raises UsageError if the connector keeps no such partition, or too much without an index; StorageError."""

    def chosen(state: CatalogState) -> tuple[PartitionLog, ...]:
        if not state.logs and asked.topic is None and asked.partition is None:
            return ()
        logs = operation.logs_of(state, connector.name, asked.topic, asked.partition)
        if (unindexed := unindexed_bytes(logs)) > UNINDEXED_BYTES:
            raise UsageError(
                f"Connector {connector.name} keeps {unindexed:,} bytes of records there without an index of keys; over "
                f"REST at most {UNINDEXED_BYTES:,} are read for an answer.",
                "Set state.index=always: the next clean indexes what is kept. Or name a partition, or use keyfold get.",
            )
        return logs

    storage, config = connector_storage(context.worker, connector.name), connector.spec.config
    try:
        answer = operation.get(
            storage, config, lambda: _state(context, connector), asked.keys, chosen, OUTLINES, MOST_BYTES
        )
    except LookUpError as error:
        raise UsageError(error.message, error.action) from None
    form: Callable[[bytes | None], shapes.Bytes] = _readable if asked.is_text else _base64
    ends: dict[str, dict[str, int]] = {}
    for log in answer.logs:
        ends.setdefault(log.topic, {})[str(log.partition)] = log.end
    return shapes.LookUpAnswer(records=[_shown(record, form) for record in answer.records], ends=ends)


def _state(context: RestContext, connector: Connector) -> CatalogState:
    """Returns what this process knows of the catalog; of a connector that does not run it is read."""
    known = connector.catalog_state
    return kept_state(context.worker, connector.name) if known is None else known


def _shown(record: operation.KeyRecord, form: Callable[[bytes | None], shapes.Bytes]) -> shapes.KeptRecordEntity:
    return shapes.KeptRecordEntity(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        timestamp_type=record.timestamp_type,
        key=form(record.key),
        value=form(record.value),
        headers=[(name, form(value)) for name, value in record.headers],
        delete_horizon=record.delete_horizon,
        published=record.published,
    )


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _readable(data: bytes | None) -> shapes.Bytes:
    """Returns `data` as text if it is UTF-8, else as `{"base64": …}`."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
